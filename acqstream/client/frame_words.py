"""What a frame carries beside its pixels, in plain values that can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.client.plain_metadata import plain_metadata
from acqstream.errors import ProtocolError
from acqstream.model.axes import AxisValue


def plain_words(
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Mapping[str, Any] | None,
    time_ns: int | None,
    micromanager: MicroManagerAxes | None,
) -> tuple[Mapping[str, AxisValue], Mapping[str, Any] | None, int | None, int]:
    """Axes, metadata and capture time of a frame; how many numbers in them became null. Raises ProtocolError."""
    plain = plain_axes(axes, axis_values)
    if micromanager is not None:
        plain = micromanager.convert(plain)
    metadata, replaced = plain_metadata(meta) if meta else (None, 0)
    if time_ns is not None and not 0 <= (time_ns := int(time_ns)) < 2**63:
        raise ProtocolError(f"time_ns={time_ns} must be nanoseconds since 1970, below 2**63")
    return plain, metadata, time_ns, replaced
