"""Converts the arguments of `put` besides the pixels: axes, metadata and capture time."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.client.plain_metadata import NO_CHANGES, Changes, plain_metadata
from acqstream.errors import ProtocolError
from acqstream.model.axes import AxisValue
from acqstream.model.metadata import AXES_KEY, TIME_KEY, encode_given


def plain_arguments(
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Mapping[str, Any] | None,
    time_ns: int | None,
    micromanager: MicroManagerAxes | None,
) -> tuple[Mapping[str, AxisValue], bytes, int | None, Changes]:
    """Axes, encoded metadata (b"" for none) and capture time of a frame, from the arguments of `put`.

    Nothing of the result changes with what was given. The last value is what was changed in the metadata.

    Raises ProtocolError, and ConfigError for axes that Micro-Manager does not support.
    """
    plain = plain_axes(axes, axis_values)
    if micromanager is not None:
        plain = micromanager.convert(plain)
    if time_ns is not None:
        time_ns = _checked_time(time_ns)
    if meta is None:
        return plain, b"", time_ns, NO_CHANGES
    metadata, replaced = plain_metadata(meta)
    try:
        text, time_ns = encode_given(metadata, time_ns)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"the metadata cannot be stored as JSON: {error}") from error
    if AXES_KEY in metadata or TIME_KEY in metadata:
        own = {AXES_KEY: plain, TIME_KEY: time_ns if time_ns is not None else metadata.get(TIME_KEY)}
        keys = ", ".join(key for key, value in own.items() if metadata.get(key, value) != value)
        replaced = replaced._replace(keys=keys)
    return plain, text, time_ns, replaced


def _checked_time(value: object) -> int:
    try:
        time_ns = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        time_ns = -1
    if isinstance(value, bool) or not 0 <= time_ns < 2**63:
        raise ProtocolError(f"time_ns={value!r:.60} must be an integer: nanoseconds since 1970, below 2**63")
    return time_ns
