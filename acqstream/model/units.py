"""Numbers as people read them."""

from __future__ import annotations

import html
import re
import shlex

_SINGULAR = {"are": "is", "were": "was", "have": "has", "do": "does", "need": "needs"}
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")


def size_text(size_bytes: float) -> str:
    """Bytes in decimal units, as disks are sold: 8388608 is "8.39 MB"."""
    value, unit = float(size_bytes), 0
    while abs(value) >= 999.5 and unit < len(_DECIMAL) - 1:
        value /= 1000
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.3g} {_DECIMAL[unit]}"


def rate_text(bytes_per_s: float) -> str:
    return f"{size_text(bytes_per_s)}/s"


def duration_text(seconds: float) -> str:
    """Two largest units: "4 h 6 min", "35 s", "0.25 s"."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"


def count_text(count: int, noun: str, verb: str = "") -> str:
    """A count with its noun, and perhaps a verb: "1 frame", "1,200 frames", "1 frame is", "2 frames are"."""
    one = f"{count:,} {noun} {_SINGULAR.get(verb, verb)}" if count == 1 else f"{count:,} {noun}s {verb}"
    return one.rstrip()


def numbers_text(first: int, count: int) -> str:
    """Numbers in a row: "12", "40 to 44"."""
    return f"{first:,}" if count == 1 else f"{first:,} to {first + count - 1:,}"


def html_text(text: str, note: str = "", picture: str = "") -> str:
    """Text for a notebook, escaped, with a note below it. picture: a URI that loads nothing."""
    image = f'<img alt="newest frame" src="{picture}">' if picture else ""
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div>{image}<pre>{html.escape(text)}</pre>{below}</div>"


_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def shell_word(path: str) -> str:
    """The path quoted for a POSIX shell, so that nothing in it is run; with double quotes for a path of Windows."""
    if _WINDOWS.match(path) is not None:
        return f'"{path}"'  # no name there has a double quote
    return shlex.quote(path)
