"""Names, colours and contrast of channels: one rule for all faces. Pure.

Evidence, in this order: the display settings, the summary (`ChNames` and `ChColors` of Micro-Manager), the name; for
contrast the display settings, then the first frames. Each colour of a name can be read on black, and is told apart by
people without red, green or blue cones; it never changes because another channel comes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import AxisValue
from acqstream.model.metadata import finite_number

WHITE, MAGENTA = "ffffff", "f03cf4"
_NAMES = {
    "4393ff": "dapi, hoechst, bfp, pacific blue, bv421, sytox blue, uv, violet, blue",
    "50d0ff": "cfp, cerulean, turquoise, mtfp, cyan",
    "00ff00": "gfp, fitc, cy2, gcamp, fluo 4, calcein, neongreen, clover, green",
    "ffe27c": "yfp, venus, citrine, ypet, yellow",
    "ff8020": "cy3, tritc, tdtomato, morange, rhodamine, tmrm, orange",
    "ff3040": "rfp, mcherry, mscarlet, mkate, mruby, dsred, texas red, txred, rcamp, pi, red",
    MAGENTA: "cy5, cy7, sir, irfp, mirfp, draq5, deep red, far red, infrared, magenta",
    WHITE: "bright, bf, phase, ph, dic, transmitted, tl, trans, polarised, polarized, white, grey, gray",
}
_EXCITATION = ((424, "4393ff"), (459, "50d0ff"), (505, "00ff00"), (530, "ffe27c"), (559, "ff8020"), (619, "ff3040"))
_EMISSION = ((475, "4393ff"), (500, "50d0ff"), (535, "00ff00"), (560, "ffe27c"), (600, "ff8020"), (650, "ff3040"))
_BY_PLACE = (WHITE, MAGENTA, "00ff00", "4393ff", "ffe27c", "ff3040", "50d0ff", "ff8020")
_VISIBLE = range(340, 801)
_SHORT = 3  # letters of a key that counts as a whole word only, unless it ends in FP


def _pattern(key: str) -> re.Pattern[str]:
    text = re.escape(key).replace(r"\ ", "[ _-]?")
    is_word = len(key) <= _SHORT and not key.endswith("fp")
    return re.compile(rf"(?<![a-z]){text}(?![a-z])" if is_word else text)


_KEYS = [(key, color) for color, keys in _NAMES.items() for key in keys.split(", ")]
_PATTERNS = [(_pattern(key), color) for key, color in sorted(_KEYS, key=lambda entry: -len(entry[0]))]  # longest first


def channel_color(name: str, place: int) -> str:
    """`rrggbb` in small letters. place: that of the channel along its axis, declared or of first appearance."""
    lower = name.lower()
    for pattern, color in _PATTERNS:
        if pattern.search(lower):
            return color
    number = re.search(r"(?<!\d)(\d{3})(?!\d)(/\d+)?", lower)
    if number is not None and int(number[1]) in _VISIBLE:
        bands = _EXCITATION if number[2] is None else _EMISSION
        return next((color for end, color in bands if int(number[1]) <= end), MAGENTA)
    return _BY_PLACE[place % len(_BY_PLACE)]


CHANNEL = "channel"
"""The axis whose values are shown over each other, each in a colour of its own."""

Limits = tuple[float, float]
_PERCENTILES = (0.1, 99.9)  # a hot pixel does not set the contrast
_DEFAULT_GREY = -8355712  # of Micro-Manager, nobody's choice


@dataclass(frozen=True, slots=True)
class ChannelLook:
    """name is empty without channels; color is #rrggbb; limits are the values shown black and full, None: not known."""

    name: str
    color: str
    limits: Limits | None = None


def channel_looks(
    channels: Sequence[AxisValue | None],
    summary: Mapping[str, Any],
    settings: Mapping[str, Any],
    shown: Mapping[AxisValue | None, Limits] | None = None,
) -> list[ChannelLook]:
    """A look for each place of the channel axis (None: without a frame), or one for no channels.

    Names are the values, for integers those in `ChNames` of the summary; settings are the display settings, by name.
    shown: contrast that the frames show, by value; None for frames without channels.
    """
    looks = []
    for place, value in enumerate(channels or [None]):
        name = "" if value is None else channel_name(value, summary)
        own = settings.get(name)
        limits = _limits(own) or (shown or {}).get(value)
        looks.append(ChannelLook(name, _stated_color(own, name, summary) or f"#{channel_color(name, place)}", limits))
    return looks


def channel_name(value: AxisValue, summary: Mapping[str, Any]) -> str:
    """The value, or for an integer its name in the summary."""
    names = summary.get("ChNames")
    if isinstance(value, int) and isinstance(names, list) and 0 <= value < len(names):
        return str(names[value])
    return str(value)


@dataclass(frozen=True, slots=True)
class DisplayRange:
    """Values from low to high may occur; start is shown black, end full."""

    low: float
    high: float
    start: float
    end: float


def display_range(look: ChannelLook | None, dtype: np.dtype[np.generic], bits: int) -> DisplayRange:
    """The range of a channel: its limits, else all values of the significant bits (0: all); of floats 0 to 1.

    Readers refuse ranges that do not rise, so the end is above the start; for integers both are whole.
    """
    is_whole = dtype.kind in "iu"
    type_range = np.iinfo(dtype.name) if is_whole else None
    low, high = (0, 1) if type_range is None else (int(type_range.min), int(type_range.max))
    high = 2**bits - 1 if bits and is_whole else high
    if look is None or look.limits is None:
        return DisplayRange(low, high, low, high)
    start, end = look.limits
    if is_whole:
        start = max(math.floor(start), low)
        end = max(math.ceil(end), start + 1)
    return DisplayRange(min(low, start), max(high, end), start, end)


def settings_of(looks: Sequence[ChannelLook]) -> dict[str, Any]:
    """Display settings that say the same, in the words of Micro-Manager."""
    return {look.name: _setting(look) for look in looks}


def contrast_of(frame: NDArray[Any]) -> Limits:
    """Contrast limits by what is in a frame, or in samples of several."""
    low, high = (float(value) for value in np.percentile(frame, _PERCENTILES))
    return (low, high) if high > low else (low, low + 1)


def _setting(look: ChannelLook) -> dict[str, Any]:
    rgb = int(look.color[1:], 16)
    limits = {} if look.limits is None else {"Min": look.limits[0], "Max": look.limits[1]}
    return {"Color": rgb - 2**24, **limits}  # signed ARGB, opaque


def _stated_color(setting: object, name: str, summary: Mapping[str, Any]) -> str:
    """Of the display settings, else of the summary; colours there belong to names, since lists may differ in length."""
    color = setting.get("Color") if isinstance(setting, Mapping) else None
    if type(color) is not int:
        names, colors = summary.get("ChNames"), summary.get("ChColors")
        at = names.index(name) if isinstance(names, list) and name in names else -1
        color = colors[at] if isinstance(colors, list) and 0 <= at < len(colors) else None
        color = None if color == _DEFAULT_GREY else color
    return f"#{color & 0xFFFFFF:06x}" if type(color) is int else ""


def _limits(settings: object) -> Limits | None:
    low, high = (finite_number(settings.get(key)) if isinstance(settings, Mapping) else None for key in ("Min", "Max"))
    return (low, high) if low is not None and high is not None and low < high else None
