"""Names, colours and contrast of channels, as the acquisition program showed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import AxisValue
from acqstream.model.finite_number import finite_number

CHANNEL = "channel"
"""The axis whose values are shown over each other, each in a colour of its own."""

_PERCENTILES = (0.1, 99.9)  # a hot pixel does not set the contrast
_COLORS = ("#00ffff", "#ff00ff", "#ffff00", "#ff0000", "#00ff00", "#0000ff")


@dataclass(frozen=True, slots=True)
class ChannelLook:
    """name is empty without channels; color is #rrggbb; limits are the values shown black and full, None: not known."""

    name: str
    color: str
    limits: tuple[float, float] | None


def channel_looks(
    channels: Sequence[AxisValue], summary: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[ChannelLook]:
    """A look for each value of the channel axis, or one for no channels.

    Names are the values, for integers those in `ChNames` of the summary; settings are the display settings, by name.
    """
    names = [_name(value, summary.get("ChNames")) for value in channels] or [""]
    return [
        ChannelLook(name, _color(settings.get(name), position, len(names)), _limits(settings.get(name)))
        for position, name in enumerate(names)
    ]


def contrast_of(frame: NDArray[Any]) -> tuple[float, float]:
    """Contrast limits by what is in a frame."""
    low, high = (float(value) for value in np.percentile(frame, _PERCENTILES))
    return (low, high) if high > low else (low, low + 1)


def _name(value: AxisValue, names: object) -> str:
    if isinstance(value, int) and isinstance(names, list) and 0 <= value < len(names):
        return str(names[value])
    return str(value)


def _color(settings: object, position: int, count: int) -> str:
    color = settings.get("Color") if isinstance(settings, dict) else None
    if isinstance(color, int):  # signed ARGB
        return f"#{color & 0xFFFFFF:06x}"
    return "#ffffff" if count == 1 else _COLORS[position % len(_COLORS)]


def _limits(settings: object) -> tuple[float, float] | None:
    low, high = (finite_number(settings.get(key)) if isinstance(settings, dict) else None for key in ("Min", "Max"))
    return (low, high) if low is not None and high is not None and low < high else None
