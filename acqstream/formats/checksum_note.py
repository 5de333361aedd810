"""What lies beside the lists of checksums in a container: the array that they are about. Pure.

Lists and note are in the folder `acqstream-checksums` of the view's folder, beside the container: other software takes
what lies in a container for a member of it. Mirrors of earlier versions have the folder inside.
A list is `NUMBER-NAME.sums`: later numbers supersede earlier ones; names keep processes apart that store at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from acqstream.errors import CorruptDataset
from acqstream.formats.checksum_list import MAX_AXES
from acqstream.storage.files.small_file import parse_fields

FOLDER = "acqstream-checksums"
NOTE_KEY = f"{FOLDER}/lists.json"
_FORMAT = "acqstream-checksums"
_VERSION = 1
_LIST = re.compile(r"([0-9]{6})-[0-9a-f]{1,32}\.sums")


@dataclass(frozen=True, slots=True)
class ChecksumNote:
    """axes are those of the array, chunks their extents in a chunk of each level. has_fixed_places: a chunk that is
    stored again goes to the same bytes. covers_all: the container was made with lists from its first chunk on.
    """

    axes: tuple[str, ...]
    chunks: tuple[tuple[int, ...], ...]
    has_fixed_places: bool
    covers_all: bool

    def encode(self) -> bytes:
        value = {
            "format": _FORMAT,
            "version": _VERSION,
            "axes": self.axes,
            "chunks": self.chunks,
            "fixed_places": self.has_fixed_places,
            "covers_all": self.covers_all,
        }
        return json.dumps(value, indent=1).encode()

    def frames_text(self, level: int, position: Sequence[int]) -> str:
        """The frames that a chunk belongs to, for people: `time 3, z 16 to 31`."""
        if level >= len(self.chunks) or len(position) != len(self.axes):
            return ""
        parts = []
        for axis, at, size in zip(self.axes, position, self.chunks[level], strict=True):
            if axis not in ("y", "x"):
                first, last = at * size, (at + 1) * size - 1
                parts.append(f"{axis} {first}" if first == last else f"{axis} {first} to {last}")
        return ", ".join(parts)


def parse_note(content: bytes, path: str) -> ChecksumNote:
    """The note in the file `path`. Raises CorruptDataset with the field and what was expected."""
    fields = parse_fields(content, path)
    if (fields.text("format"), fields.integer("version")) != (_FORMAT, _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format {_FORMAT}")
    axes, chunks = fields.texts("axes"), []
    if not 0 < len(axes) <= MAX_AXES:
        raise fields.wrong("axes", f"1 to {MAX_AXES} names")
    for given in fields.items("chunks"):
        is_list = isinstance(given, list) and len(given) == len(axes)
        if not is_list or not all(type(size) is int and size > 0 for size in given):
            raise CorruptDataset(f"chunks are {given!r:.80}, expected a positive integer for each axis", path=path)
        chunks.append(tuple(given))
    return ChecksumNote(axes, tuple(chunks), fields.flag("fixed_places"), fields.flag("covers_all"))


def list_key(number: int, name: str) -> str:
    """The key of a list."""
    return f"{FOLDER}/{number:06}-{name}.sums"


def list_number(file_name: str) -> int | None:
    """The number of a list by its name in the folder; None if it is none."""
    found = _LIST.fullmatch(file_name)
    return None if found is None else int(found[1])
