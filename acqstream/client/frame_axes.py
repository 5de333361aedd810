"""The axes of one `put`: as plain integers and strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acqstream.client.plain_metadata import plain_scalar
from acqstream.errors import ConfigError, ProtocolError
from acqstream.model.axes import AxisValue, are_good_axes, check_axes

_PLAIN = frozenset({int, str})  # most values are: not worth a call
CHANNEL_AXIS = "channel"
CHANNEL_NAMES_KEY = "ChNames"


def plain_axes(axes: Mapping[Any, Any] | None, axis_values: Mapping[str, Any]) -> dict[str, AxisValue]:
    """The axes of a frame from one mapping and from keywords, checked. Raises ProtocolError naming the axis."""
    if axes is None and are_good_axes(axis_values):
        return dict(axis_values)
    merged: Mapping[Any, Any] = axis_values
    if axes is not None:
        if not isinstance(axes, Mapping):
            raise ProtocolError(f"axes must be a mapping of name to integer or string, not {type(axes).__name__}")
        twice = axes.keys() & axis_values.keys()
        if twice:
            raise ProtocolError(f"axis {min(twice)!r} is given both in the mapping and as a keyword")
        merged = {**axes, **axis_values}
    plain = {
        name if name.__class__ is str else plain_scalar(name): value
        if value.__class__ in _PLAIN
        else plain_scalar(value)
        for name, value in merged.items()
    }
    return check_axes(plain)


class MicroManagerAxes:
    """Integer axes, as Micro-Manager Studio reads them: a channel's name becomes its place in `ChNames`."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        names = summary.get(CHANNEL_NAMES_KEY)
        self._channels: dict[str, int] | None = None
        if names is None:
            return
        if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(n, str) for n in names):
            raise ConfigError(f"summary[{CHANNEL_NAMES_KEY!r}] must be a list of channel names, not {names!r:.80}")
        self._channels = {name: index for index, name in enumerate(names)}

    def convert(self, axes: dict[str, AxisValue]) -> dict[str, AxisValue]:
        """`axes` with integers only. Raises ConfigError, whose text names the value to pass."""
        return {name: self._integer(name, value) for name, value in axes.items()}

    def _integer(self, name: str, value: AxisValue) -> int:
        if isinstance(value, int):
            return value
        if name != CHANNEL_AXIS:
            raise ConfigError(f"micromanager=True needs integer axes; {name}={value!r} must be a number")
        if self._channels is None:
            raise ConfigError(
                f"channel {value!r}: with micromanager=True pass the channel names to create, "
                f"for example summary={{{CHANNEL_NAMES_KEY!r}: [{value!r}, ...]}}, or a number as channel"
            )
        if value not in self._channels:
            raise ConfigError(f"channel {value!r} is not in summary[{CHANNEL_NAMES_KEY!r}]: {list(self._channels)}")
        return self._channels[value]
