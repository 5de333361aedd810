"""The colour of a channel by its name: one table for all faces. Pure.

Each colour can be read on black, and is told apart by people without red, green or blue cones. A colour is a function
of name and place alone: it never changes because another channel comes.
"""

from __future__ import annotations

import re

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
