"""A frame of a rebuilt index, and its entry as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acqstream.formats.ndtiff.index_entries import encode_entry
from acqstream.formats.ndtiff.page_walk import IntactPage
from acqstream.formats.ndtiff.pages import axes_text
from acqstream.formats.ndtiff.stack_header import decode_text
from acqstream.model.axes import Axes

_LENGTH = struct.Struct("<I")


@dataclass(slots=True)
class RebuiltFrame:
    """offset is that of the pixels in the stack file. row is that of its old entry, -1 without one.

    entry is empty until the axes are known; found is its page as long as they are not settled.
    """

    stack: str
    offset: int
    entry: bytes
    row: int = -1
    found: IntactPage | None = None

    def axes(self) -> dict[str, Any]:
        """The axes of the entry."""
        length = _LENGTH.unpack_from(self.entry)[0]
        axes: dict[str, Any] = json.loads(decode_text(self.entry[4 : 4 + length]))
        return axes


def entry_of(found: IntactPage, axes: Axes, stack: str, pixel_type: int, *, spaced: bool) -> bytes:
    """An index entry made from a page. spaced: its JSON has blanks, as that of its writer."""
    return encode_entry(axes_text(axes, spaced=spaced), stack, found.page, pixel_type, found.metadata_bytes)


def key_of(axes: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Equal for equal axes, whatever their order."""
    return frozenset((name, repr(value)) for name, value in axes.items())


def show_axes(axes: Mapping[str, Any]) -> str:
    """Axes as a person reads them."""
    return ", ".join(f"{name}={value!r:.60}" for name, value in axes.items()) or "no axes"
