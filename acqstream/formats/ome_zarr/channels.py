"""Names, colours and windows of channels in `omero`. Pure. Source: OME-NGFF 0.5, "omero"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_RGB = ("FF0000", "00FF00", "0000FF", "FFFFFF")
_CYCLE = ("00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF")
_BY_NAME = {  # of dyes and proteins, by a part of the channel's name
    "dapi": "0000FF",
    "hoechst": "0000FF",
    "cfp": "00FFFF",
    "gfp": "00FF00",
    "fitc": "00FF00",
    "yfp": "FFFF00",
    "rfp": "FF0000",
    "mcherry": "FF0000",
    "tritc": "FF0000",
    "cy3": "FF8000",
    "cy5": "FF00FF",
    "bright": "FFFFFF",
    "bf": "FFFFFF",
    "phase": "FFFFFF",
    "dic": "FFFFFF",
}


def omero_channels(dtype: np.dtype[np.generic], count: int, labels: Sequence[str], *, is_rgb: bool) -> list[Any]:
    """An entry for each channel; those without a label are numbered. Readers require as many as there are channels."""
    low, high = _limits(dtype)
    window = {"min": low, "max": high, "start": low, "end": high}
    channels = []
    for number in range(count):
        label = labels[number] if number < len(labels) else str(number)
        color = _RGB[number % len(_RGB)] if is_rgb else _color(label, number, count)
        channels.append({"label": label, "color": color, "active": True, "window": dict(window)})
    return channels


def _color(label: str, number: int, count: int) -> str:
    name = label.lower()
    found = next((color for part, color in _BY_NAME.items() if part in name), "")
    return found or ("FFFFFF" if count == 1 else _CYCLE[number % len(_CYCLE)])


def _limits(dtype: np.dtype[np.generic]) -> tuple[float, float]:
    """The range of an integer type; 0 to 1 for others, whose range is not known."""
    if dtype.kind not in "iu":
        return 0, 1
    limits = np.iinfo(dtype.name)
    return int(limits.min), int(limits.max)
