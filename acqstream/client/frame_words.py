"""Converts the arguments of `put` besides the pixels: axes, metadata and capture time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.client.plain_metadata import NO_CHANGES, Changes, plain_metadata
from acqstream.errors import ProtocolError
from acqstream.model.axes import AxisValue


def plain_arguments(
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Mapping[str, Any] | None,
    time_ns: int | None,
    micromanager: MicroManagerAxes | None,
) -> tuple[Mapping[str, AxisValue], Mapping[str, Any] | None, int | None, Changes]:
    """Axes, metadata and capture time of a frame, from the arguments of `put`.

    The last value is what was changed in the metadata.

    Raises ProtocolError, and ConfigError for axes that Micro-Manager does not support.
    """
    plain = plain_axes(axes, axis_values)
    if micromanager is not None:
        plain = micromanager.convert(plain)
    metadata, replaced = plain_metadata(meta) if meta is not None else (None, NO_CHANGES)
    if time_ns is not None:
        time_ns = _checked_time(time_ns)
    return plain, metadata or None, time_ns, replaced


def _checked_time(value: object) -> int:
    try:
        time_ns = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        time_ns = -1
    if isinstance(value, str | bytes | bool) or not 0 <= time_ns < 2**63:
        raise ProtocolError(f"time_ns={value!r:.60} must be nanoseconds since 1970, below 2**63")
    return int(time_ns)
