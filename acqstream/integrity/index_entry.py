"""An index entry made from a page of a stack file: for frames whose entry was lost."""

from __future__ import annotations

import json
import struct

from acqstream.errors import ProtocolError
from acqstream.formats.ndtiff.pages import StackPage
from acqstream.formats.ndtiff.stack_header import ReadAt
from acqstream.model.axes import axes_json, check_axes

_NOT_OURS = (ValueError, KeyError, TypeError, RecursionError, ProtocolError, struct.error)  # last: a damaged page
_LENGTH = struct.Struct("<I")
_NUMBERS = struct.Struct("<IiiiiIii")


def entry_of_page(read: ReadAt, page: StackPage, stack_name: str, pixel_type: int) -> bytes | None:
    """The entry, with axes from the page's metadata; None if they are not there, or the page is damaged.

    pixel_type as in the index.
    """
    length = page.metadata_bytes - 1  # our pages end their metadata with a NUL that the index does not count
    try:
        metadata = json.loads(read(page.metadata, length))
        axes = axes_json(check_axes(metadata["Axes"]))
        numbers = _NUMBERS.pack(page.pixels, page.width, page.height, pixel_type, 0, page.metadata, length, 0)
    except _NOT_OURS:
        return None
    name = stack_name.encode("ascii")
    return _LENGTH.pack(len(axes)) + axes + _LENGTH.pack(len(name)) + name + numbers
