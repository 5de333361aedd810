"""Lists of checksums of a container: pages of records, one record for each stored chunk or document. Pure.

Lists, and a note on the array that they are about, are in the folder `acqstream-checksums` of the view's folder, beside
the container: other software takes what lies in a container for a member of it. Mirrors of earlier versions have the
folder inside. A list is `NUMBER-NAME.sums`: later numbers supersede earlier ones; names keep processes apart that
store at a time. The format is our own.

All numbers are little-endian. A page begins with 32 bytes: the magic "ACQSUMPG"; u32 records; u32 axes; u32 bytes of
text; u32 flags (bit 0: the list is closed); u64 check, the XXH3-64 of the 24 bytes before it and of all that follows.
The records follow, then the text. A record has u64 checksum (XXH3-64 of the stored bytes), u64 offset and u64 length in
the object (bytes), u32 offset and u32 length of the object's key (UTF-8) in the text, u32 level (`DOCUMENT` for a
document), and u32 for each axis: the position in the grid of chunks. A later record of the same thing supersedes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.storage.files.small_file import parse_fields

DOCUMENT = 0xFFFFFFFF
MAX_RECORDS = 65_536  # of a page
MAX_AXES = 32
MAX_TEXT = 1 << 24  # bytes of a page

_MAGIC = b"ACQSUMPG"
_FIELDS = struct.Struct("<8sIIII")
_CHECK = struct.Struct("<Q")
_HEAD = _FIELDS.size + _CHECK.size
_CLOSED = 1


class Entry(NamedTuple):
    """One stored chunk or document: where its bytes lie in which object, and their checksum. Bytes."""

    level: int
    position: tuple[int, ...]
    key: str
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ChecksumPage:
    """Records of one page as columns, and the text with their keys. is_closed: nothing comes after it."""

    records: NDArray[Any]
    text: bytes
    is_closed: bool

    def entry(self, row: int) -> Entry:
        """The record of a row."""
        one = self.records[row]
        first = int(one["key_offset"])
        key = self.text[first : first + int(one["key_length"])].decode(errors="replace")  # no such key is stored
        position = tuple(one["position"].tolist())
        return Entry(int(one["level"]), position, key, int(one["offset"]), int(one["length"]), int(one["checksum"]))


class ListEnd(NamedTuple):
    """How a list ends. end: bytes of sound pages before it; torn: its writer stopped; damaged: more pages follow."""

    state: Literal["closed", "open", "torn", "damaged"]
    end: int


def record_type(axes: int) -> np.dtype[Any]:
    """Type of a record of an array with so many axes."""
    numbers = [(name, "<u8") for name in ("checksum", "offset", "length")]
    numbers += [(name, "<u4") for name in ("key_offset", "key_length", "level")]
    return np.dtype([*numbers, ("position", "<u4", (axes,))])


def page_bytes(entries: Sequence[Entry], axes: int, *, is_closed: bool = False) -> bytes:
    """One page. A key that several entries have is kept once. Raises ValueError if they do not fit into a page."""
    # Keys lie apart from the records: chunks of one shard share theirs, and records of one size are read as columns.
    records = np.zeros(len(entries), record_type(axes))
    text, places = bytearray(), dict[str, tuple[int, int]]()
    for row, entry in enumerate(entries):
        if entry.key not in places:
            encoded = entry.key.encode()
            places[entry.key] = len(text), len(encoded)
            text += encoded
        numbers = (entry.checksum, entry.offset, entry.length)
        records[row] = (*numbers, *places[entry.key], entry.level, entry.position)
    if len(entries) > MAX_RECORDS or axes > MAX_AXES or len(text) > MAX_TEXT:
        raise ValueError(f"{len(entries)} entries with {axes} axes and {len(text)} bytes of keys are more than a page")
    fields = _FIELDS.pack(_MAGIC, len(entries), axes, len(text), _CLOSED if is_closed else 0)
    body = records.tobytes() + bytes(text)
    return fields + _CHECK.pack(xxhash.xxh3_64_intdigest(fields + body)) + body


def read_pages(content: bytes) -> Iterator[ChecksumPage | ListEnd]:
    """The sound pages of a list from its begin, then how it ends.

    Whatever the list claims, no more memory is taken than a page has.
    """
    at, is_closed = 0, False
    while at < len(content):
        found = _page_at(content, at)
        if found is None:
            yield ListEnd("damaged" if _has_page_after(content, at) else "torn", at)
            return
        page, at = found
        is_closed = page.is_closed
        yield page
    yield ListEnd("closed" if is_closed else "open", at)


def _page_at(content: bytes, at: int) -> tuple[ChecksumPage, int] | None:
    """The page that begins there and where it ends; None if there is no sound one."""
    if len(content) - at < _HEAD:
        return None
    magic, count, axes, text_length, flags = _FIELDS.unpack_from(content, at)
    if magic != _MAGIC or count > MAX_RECORDS or axes > MAX_AXES or text_length > MAX_TEXT:
        return None
    # The counts are within their bounds now; they are believed only once the check agrees.
    kind = record_type(axes)
    body = at + _HEAD
    text_at = body + count * kind.itemsize
    end = text_at + text_length
    if end > len(content):
        return None
    # The check itself, which lies between fields and records, is left out.
    digest = xxhash.xxh3_64(content[at : at + _FIELDS.size])
    digest.update(memoryview(content)[body:end])
    if digest.intdigest() != _CHECK.unpack_from(content, at + _FIELDS.size)[0]:
        return None
    records = np.frombuffer(content, kind, count, body)
    # u64: the sum of two numbers of 32 bits may wrap.
    key_ends = records["key_offset"].astype(np.uint64) + records["key_length"]
    if (key_ends > text_length).any():
        return None
    return ChecksumPage(records, content[text_at:end], bool(flags & _CLOSED)), end


def _has_page_after(content: bytes, at: int) -> bool:
    # The magic may stand in a record by chance: only a page with a right check counts.
    following = content.find(_MAGIC, at + 1)
    while following >= 0:
        if _page_at(content, following) is not None:
            return True
        following = content.find(_MAGIC, following + 1)
    return False


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
