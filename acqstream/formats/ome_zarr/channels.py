"""Names, colours and windows of channels in `omero`. Pure. Source: OME-NGFF 0.5, "omero"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.channels import channel_color, display_range

_RGB = ("FF0000", "00FF00", "0000FF", "FFFFFF")


def omero_channels(full: ArraySpec, count: int, labels: Sequence[str], *, is_rgb: bool) -> list[Any]:
    """An entry for each channel; those without a label are numbered. Readers require as many as there are channels."""
    channels = []
    for number in range(count):
        look = full.looks[number] if number < len(full.looks) and not is_rgb else None
        label = labels[number] if number < len(labels) else (look.name if look is not None else "") or str(number)
        color = _RGB[number % len(_RGB)] if is_rgb else channel_color(label, number) if look is None else look.color
        shown = display_range(look, full.dtype, full.bits)
        window = {"min": shown.low, "max": shown.high, "start": shown.start, "end": shown.end}
        channels.append({"label": label, "color": color.lstrip("#").upper(), "active": True, "window": window})
    return channels
