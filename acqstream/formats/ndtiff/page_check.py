"""The page directories of one stack file against the index: batches of directories, checked by columns.

Source: NDTiff specification, "Image File Directories"; TIFF 6.0 section 2. What the known writers
do differently is legal: 16 bits claimed for uint8 (Python), 16 bits for the rows per strip (Java), a NUL after the
metadata that the tag counts and the index does not (ours).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.check_report import CheckReport
from acqstream.formats.ndtiff.folders import parse_stack_name
from acqstream.formats.ndtiff.pages import DIRECTORY_BYTES, TAGS, directory_dtype, read_page
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES
from acqstream.formats.ndtiff.stack_header import ByteOrder, StackHeader
from acqstream.storage.files.read_file import ReadFile

_ROW_BYTES = 192  # a directory and what all known writers put right after it: RGB bits and resolutions
_WINDOW_BYTES = 64 * 1024  # small: where frames are large, each directory takes a read of its own
_BATCH_PAGES = 8192
_EARLY_3_0_SHIFT = 4
_SHORT, _LONG, _RATIONAL, _ASCII = 3, 4, 5, 2
_SIZE = (_SHORT, _LONG)
_TYPES = (
    *(_SIZE, _SIZE, (_SHORT,), (_SHORT,), (_SHORT,), _SIZE, (_SHORT,)),
    *(_SIZE, _SIZE, (_RATIONAL,), (_RATIONAL,), (_SHORT,), (_ASCII,)),
)
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _STRIP, _SAMPLES = range(7)  # positions in TAGS
_ROWS, _STRIP_BYTES, _X, _Y, _UNIT, _METADATA = range(7, 13)
_RGB_CODE = 2
_SAMPLE_BITS = np.array([8 * PIXEL_TYPES[code].sample_bytes for code in sorted(PIXEL_TYPES)])

Columns = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StackEntries:
    """Values of the index for the frames of one stack file. rows are the frames' rows; numbers has dtype NUMBERS.

    has_nul: whether a NUL stands after the metadata. lengths: of raw pixels, bytes; -1 where they are compressed.
    """

    rows: NDArray[np.int64]
    numbers: NDArray[np.void]
    has_nul: NDArray[np.bool_]
    lengths: NDArray[np.int64]

    def take(self, found: NDArray[Any]) -> StackEntries:
        """Some of them, by position."""
        return StackEntries(self.rows[found], self.numbers[found], self.has_nul[found], self.lengths[found])


@dataclass(frozen=True, slots=True)
class StackPages:
    """Values of the page chain for every entry: its directory, the bytes of strip and metadata; -1 without a page."""

    directories: NDArray[np.int64]
    strip_bytes: NDArray[np.int64]
    metadata_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Directories that follow one another: offsets, bytes, the value of every tag (pages, 13), rows of the frames."""

    at: Columns
    raw: NDArray[np.void]
    values: Columns
    rows: Columns

    def take(self, chosen: NDArray[np.bool_]) -> _Batch:
        return _Batch(self.at[chosen], self.raw[chosen], self.values[chosen], self.rows[chosen])


class PageCheck:
    """Walks the page chain of one stack file and compares every page with its index entry."""

    def __init__(self, file: ReadFile, header: StackHeader, report: CheckReport) -> None:
        self._file = file
        self._order: ByteOrder = header.byte_order
        self._first = header.first_directory
        self._size = file.size()
        self._report = report
        self._next = header.first_directory
        self._next_at = 4  # where that pointer stands
        self._is_begun = False
        self.unnamed_end = 0  # where the last page ends that no entry names
        self._dtype = directory_dtype(self._order, ("behind", "u1", _ROW_BYTES - DIRECTORY_BYTES))
        assert self._dtype.itemsize == _ROW_BYTES

    def check(self, entries: StackEntries, *, growing: bool, has_index: bool, until: int | None = None) -> StackPages:
        """Check the pages that follow those checked before: all, or up to the first with pixels after byte `until`.

        While the file grows, pages without an entry and an unfinished chain are not problems.
        """
        pages = StackPages(*(np.full(len(entries.rows), -1) for _ in range(3)))
        offsets = entries.numbers["pixel_offset"].astype(np.int64)
        order = np.append(np.argsort(offsets, kind="stable"), -1)  # so that there is always something to point at
        sorted_offsets = np.append(offsets[order[:-1]], -1)
        for at, raw, values in self._read_pages(until):
            position = np.searchsorted(sorted_offsets[:-1], values[:, _STRIP])
            named = sorted_offsets[position] == values[:, _STRIP]
            found = order[position][named]
            rows = np.full(len(at), -1)
            rows[named] = entries.rows[found]
            batch = _Batch(at, raw, values, rows)
            self._check_tags(batch)
            self._check_behind(batch)
            self._check_entries(batch.take(named), entries.take(found))
            self._tell(batch.take(named), pages.directories[found] >= 0, lambda _: "two pages have the same pixels")
            if not growing and has_index:
                known = named | self._are_refused(values[:, _STRIP])
                self._tell(batch, ~known, lambda _: "a page that no index entry names")
                unnamed = batch.take(~named)
                pixels_end = unnamed.values[:, _STRIP] + unnamed.values[:, _STRIP_BYTES]
                metadata_end = unnamed.values[:, _METADATA] + unnamed.raw["tags"]["count"][:, _METADATA]
                self.unnamed_end = max(self.unnamed_end, pixels_end.max(initial=0), metadata_end.max(initial=0))
            pages.directories[found] = at[named]
            pages.strip_bytes[found] = values[named, _STRIP_BYTES]
            pages.metadata_bytes[found] = raw["tags"]["count"][named, _METADATA]
            self._report.on_progress(f"pages of {self._file.path.name}", int(at.max(initial=0)), self._size)
        if not growing and until is None:
            self._check_end()
        lost = "no page in the stack's chain has these pixels"
        self._report.add_problems(
            self._file.path, pages.directories < 0, entries.rows, lambda i: (lost, int(offsets[i]))
        )
        return pages

    def _are_refused(self, offsets: Columns) -> NDArray[np.bool_]:
        stack = (parse_stack_name(self._file.path.name) or ("", -1))[1]
        places = [offset for number, offset in self._report.refused_places if number == stack]
        return np.isin(offsets, places)

    def _tell(self, batch: _Batch, wrong: NDArray[np.bool_], text: Callable[[int], str]) -> None:
        self._report.add_problems(self._file.path, wrong, batch.rows, lambda i: (text(i), int(batch.at[i])))

    # The chain.

    def _read_pages(self, until: int | None) -> Iterator[tuple[Columns, NDArray[np.void], Columns]]:
        """As `_read_chain` with the values of all tags, up to the first page with pixels after byte `until`."""
        for at, raw in self._read_chain():
            values = self._values(raw)
            beyond = np.flatnonzero(values[:, _STRIP] > until) if until is not None else at[:0]
            stop = int(beyond[0]) if len(beyond) else len(at)
            yield at[:stop], raw[:stop], values[:stop]
            if len(beyond):
                self._next = int(at[stop])  # the next call begins there
                return

    def _read_chain(self) -> Iterator[tuple[Columns, NDArray[np.void]]]:
        """Directories (offset and bytes) as far as the chain is intact, at most _BATCH_PAGES at a time."""
        at: list[int] = []
        rows = bytearray()
        next_of = struct.Struct(self._order + "I").unpack_from
        mark = struct.pack(self._order + "H", len(TAGS))
        directory, base, data = self._next if self._is_begun else self._start(), 0, b""
        self._is_begun = True
        while 8 <= directory <= self._size - DIRECTORY_BYTES:
            start = directory - base
            if start < 0 or start + _ROW_BYTES > len(data):
                base, start, data = directory, 0, self._file.read(directory, _WINDOW_BYTES)
            if data[start : start + 2] != mark or len(data) < start + DIRECTORY_BYTES:
                break
            at.append(directory)
            rows += data[start : start + _ROW_BYTES].ljust(_ROW_BYTES, b"\0")
            self._next_at = directory + DIRECTORY_BYTES - 4
            self._next = next_of(data, start + DIRECTORY_BYTES - 4)[0]
            if len(at) == _BATCH_PAGES:
                yield np.array(at, np.int64), np.frombuffer(bytes(rows), self._dtype)
                at, rows = [], bytearray()
            if self._next <= directory:
                break
            directory = self._next
        if at:
            yield np.array(at, np.int64), np.frombuffer(bytes(rows), self._dtype)

    def _start(self) -> int:
        """The first directory; one Java build of August 2022 wrote an offset that is 4 too small."""
        shifted = self._first + _EARLY_3_0_SHIFT
        for first in (self._first, shifted):
            if read_page(self._file.read, self._size, first, self._order) is not None:
                if first == shifted:
                    self._report.add_note(f"{self._file.path.name}: the first directory's offset is 4 too small")
                return first
        return self._first

    def _check_end(self) -> None:
        if self._next == 0 or (self._next_at == 4 and self._next >= self._size):
            return  # the second: a file without any page, as the reference writers leave it
        text = f"the chain of pages continues at byte {self._next}, where no page of 13 tags is"
        self._report.add_problem(self._file.path, text, offset=self._next_at)

    def _values(self, raw: NDArray[np.void]) -> Columns:
        tags = raw["tags"]
        values: Columns = tags["value"].astype(np.int64)
        short = (tags["type"] == _SHORT) & (tags["count"] <= 2)  # left-justified in the field
        values[short] = values[short] >> 16 if self._order == ">" else values[short] & 0xFFFF
        return values

    # Pages by themselves.

    def _check_tags(self, batch: _Batch) -> None:
        tags, values = batch.raw["tags"], batch.values
        tell = partial(self._tell, batch)
        known = (tags["tag"] == np.array(TAGS)).all(axis=1)
        tell(~known, lambda i: f"the page has the tags {tags['tag'][i].tolist()}, NDTiff has {list(TAGS)}")
        samples = values[:, _SAMPLES]
        for column, (tag, types) in enumerate(zip(TAGS, _TYPES, strict=True)):
            kinds, counts = tags["type"][:, column], tags["count"][:, column]
            self._tell_tag(batch, known & ~np.isin(kinds, types), f"tag {tag} has type", kinds)
            if column != _METADATA:
                expected = np.where(samples == 3, 3, 1) if column == _BITS else 1
                self._tell_tag(batch, known & (counts != expected), f"tag {tag} has a number of values of", counts)
        height, strip_rows = values[:, _HEIGHT], values[:, _ROWS]
        wraps = (tags["type"][:, _ROWS] == _SHORT) & (strip_rows == (height & 0xFFFF))
        self._tell_tag(batch, (strip_rows != height) & ~wraps, "rows per strip are not the height, but", strip_rows)
        photometric, unit = values[:, _PHOTOMETRIC], values[:, _UNIT]
        self._tell_tag(batch, photometric != np.where(samples == 3, 2, 1), "photometric interpretation", photometric)
        self._tell_tag(batch, unit != 3, "resolution unit is not 3 (cm), but", unit)

    def _tell_tag(self, batch: _Batch, wrong: NDArray[np.bool_], text: str, found: NDArray[Any]) -> None:
        self._tell(batch, wrong, lambda i: f"{text} {found[i]}")

    def _check_behind(self, batch: _Batch) -> None:
        """Values that directories refer to, besides pixels and metadata: two equal resolutions, and 8, 8, 8 for RGB."""
        x, y = self._pieces(batch, _X, 8), self._pieces(batch, _Y, 8)
        wrong = (x != y).any(axis=1) | (x[:, 4:] == 0).all(axis=1)
        wrong |= np.abs(batch.values[:, _X] - batch.values[:, _Y]) < 8
        self._tell(batch, wrong, lambda _: "X and Y resolution are not two equal numbers")
        rgb = batch.take(batch.values[:, _SAMPLES] == 3)
        eights = np.frombuffer(struct.pack(self._order + "3H", 8, 8, 8), np.uint8)
        wrong = (self._pieces(rgb, _BITS, 6) != eights).any(axis=1)
        self._tell(rgb, wrong, lambda _: "RGB samples are not 8, 8 and 8 bits")

    def _pieces(self, batch: _Batch, column: int, length: int) -> NDArray[np.uint8]:
        """The bytes of the file that a tag points to, (pages, length); zeros beyond its end."""
        inside = batch.values[:, column] - batch.at
        near = (inside >= 0) & (inside <= _ROW_BYTES - length)
        rows = np.frombuffer(batch.raw.tobytes(), np.uint8).reshape(-1, _ROW_BYTES)
        pieces = np.take_along_axis(rows, np.where(near, inside, 0)[:, None] + np.arange(length), axis=1)
        for i in np.flatnonzero(~near).tolist():
            piece = self._file.read(int(batch.values[i, column]), length)
            pieces[i] = np.frombuffer(piece.ljust(length, b"\0"), np.uint8)
        return pieces

    # Pages against entries.

    def _check_entries(self, batch: _Batch, entries: StackEntries) -> None:
        numbers, values = entries.numbers, batch.values
        for name, column in (("width", _WIDTH), ("height", _HEIGHT), ("metadata_offset", _METADATA)):
            self._compare(batch, name.replace("_", " "), values[:, column], numbers[name].astype(np.int64))
        told = numbers["metadata_length"].astype(np.int64)
        in_page = batch.raw["tags"]["count"][:, _METADATA].astype(np.int64)
        in_page -= (in_page == told + 1) & entries.has_nul
        self._compare(batch, "metadata length", in_page, told)
        self._compare(batch, "length of the pixels", values[:, _STRIP_BYTES], entries.lengths, entries.lengths >= 0)
        compression = values[:, _COMPRESSION]
        wrong = (compression == 1) != (entries.lengths >= 0)
        self._tell_tag(batch, wrong, "the index states another compression, the page has TIFF compression", compression)
        code = numbers["pixel_type"].astype(np.int64)
        known = (code >= 0) & (code < len(_SAMPLE_BITS))
        sample_bits = _SAMPLE_BITS[np.where(known, code, 0)]
        bits, samples, rgb = values[:, _BITS], values[:, _SAMPLES], code == _RGB_CODE
        right = rgb | (bits == sample_bits) | ((code == 0) & (bits == 16))  # ndstorage claims 16 for uint8
        right &= samples == np.where(rgb, 3, 1)
        text = "{} samples of {} bits in the page, pixel type {} in the index"
        self._tell(batch, known & ~right, lambda i: text.format(samples[i], bits[i], code[i]))

    def _compare(
        self, batch: _Batch, what: str, page: Columns, told: Columns, where: NDArray[np.bool_] | bool = True
    ) -> None:
        self._tell(batch, (page != told) & where, lambda i: f"{what}: {page[i]} in the page, {told[i]} in the index")
