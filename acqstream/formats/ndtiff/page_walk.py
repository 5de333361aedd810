"""The pages of one stack file: one walk, by columns up to the first break of their chain, page by page after it.

`PageChain` reads the columns, which `check` compares with the index. `walk_stack` finds the frames without an index, in
damaged files, too. Where the chain breaks (a pointer into zeros or nowhere, a damaged directory), it resumes at the
next directory that is beyond doubt: one with the thirteen entries of all known writers, whose frame lies as these
writers lay it, and whose metadata are intact. Zeros after the last page are the reserved space of a writer that was
killed. A frame was written completely if its metadata were: all known writers write them after or before the pixels of
the same call. Pixels that are zeros are a legal image; where they lie in a hole of the file, or where the data ends
inside them, a black image cannot be told from one that was never written.

Source: NDTiff specification, and files of the known writers. Reads only.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.layout import BLOCK_BYTES, DIRECTORY_STEP, align_up
from acqstream.formats.ndtiff.pages import (
    DIRECTORY_BYTES,
    EARLY_3_0_SHIFT,
    STRIP_OFFSETS,
    TAGS,
    StackPage,
    axes_in,
    directory_dtype,
    hints_in,
    page_of,
    read_page,
)
from acqstream.formats.ndtiff.stack_header import ByteOrder, ReadAt, parse_json_object, parse_stack_header
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import MAX_SIDE
from acqstream.model.metadata import MAX_JSON_BYTES
from acqstream.storage.files.read_file import ReadFile, data_runs

_ROW_BYTES = 192  # a directory and what all known writers put right after it: RGB bits and resolutions
_WINDOW_BYTES = 64 * 1024  # small: where frames are large, each directory takes a read of its own
_BATCH_PAGES = 8192
_SHORT = 3  # the type of a TIFF value
_DIRECTORY_MARK: dict[ByteOrder, bytes] = {  # 13 entries, the first one ImageWidth, LONG, one value
    order: struct.pack(order + "HHHI", 13, 256, 4, 1) for order in ("<", ">")
}
DAMAGED_DIRECTORY = "the page's directory is damaged"
TORN_METADATA = "the frame's metadata were not written to their end"
_REFERENCE_GAP = {1: 178, 3: 184}  # from directory to pixels, by samples: both reference writers
_HEADER_BYTES = 28
_BIT_DEPTHS = {"10": 3, "11": 6, "12": 4, "14": 5}  # to the index's pixel types
_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class PageColumns:
    """Directories that follow one another in the chain, with an item per page in every array.

    at are their offsets; raw has their bytes, and those after them up to _ROW_BYTES; values has the value of every tag
    (pages, 13). rows are those of their frames in the index, -1 for now.
    """

    at: NDArray[np.int64]
    raw: NDArray[np.void]
    values: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, at: NDArray[np.int64], raw: NDArray[np.void]) -> PageColumns:
        """Directories at these offsets from their bytes."""
        tags = raw["tags"]
        values = tags["value"].astype(np.int64)
        short = (tags["type"] == _SHORT) & (tags["count"] <= 2)  # left-justified in the field
        values[short] = values[short] >> 16 if _byte_order(raw) == ">" else values[short] & 0xFFFF
        return cls(at, raw, values, np.full(len(at), -1))

    def take(self, chosen: NDArray[np.bool_] | slice) -> PageColumns:
        """Some of them."""
        return PageColumns(self.at[chosen], self.raw[chosen], self.values[chosen], self.rows[chosen])

    def pieces(self, read: ReadAt, column: int, length: int) -> NDArray[np.uint8]:
        """The bytes of the file that a tag points to, (pages, length); zeros beyond its end."""
        inside = self.values[:, column] - self.at
        near = (inside >= 0) & (inside <= _ROW_BYTES - length)
        rows = np.frombuffer(self.raw.tobytes(), np.uint8).reshape(-1, _ROW_BYTES)
        pieces = np.take_along_axis(rows, np.where(near, inside, 0)[:, None] + np.arange(length), axis=1)
        for i in np.flatnonzero(~near).tolist():
            piece = read(int(self.values[i, column]), length)
            pieces[i] = np.frombuffer(piece.ljust(length, b"\0"), np.uint8)
        return pieces

    def known_pages(self, read: ReadAt) -> Iterator[StackPage]:
        """As `read_page`, up to the first one whose entries are not TAGS."""
        tags = self.raw["tags"]
        is_known = (tags["tag"] == np.array(TAGS)).all(axis=1)
        count = len(is_known) if is_known.all() else int(np.argmin(is_known))
        columns = (self.at, self.values, tags["count"], self.raw["next"])
        for at, values, counts, following in zip(*(column[:count].tolist() for column in columns), strict=True):
            by_tag = dict(zip(TAGS, zip(counts, values, strict=True), strict=True))
            yield page_of(read, _byte_order(self.raw), at, by_tag, (following, at + DIRECTORY_BYTES - 4))


def _byte_order(raw: NDArray[np.void]) -> ByteOrder:
    return ">" if raw.dtype["next"].str[0] == ">" else "<"


class PageChain:
    """Reads the chain of one stack file by columns, for as long as directories have 13 entries.

    next is the directory after those that were read, next_at the byte of the pointer to it. is_shifted: the header's
    offset of the first one is 4 too small.
    """

    def __init__(self, file: ReadFile, first: int, byte_order: ByteOrder = "<") -> None:
        self._file = file
        self._order = byte_order
        self._size = file.size()
        self._dtype = directory_dtype(byte_order, ("behind", "u1", _ROW_BYTES - DIRECTORY_BYTES))
        assert self._dtype.itemsize == _ROW_BYTES
        shifted = first + EARLY_3_0_SHIFT
        starts = (at for at in (first, shifted) if read_page(file.read, self._size, at, byte_order) is not None)
        self.first = next(starts, first)
        self.is_shifted = self.first != first
        self.next, self.next_at = first, 4

    def pages(self) -> Iterator[StackPage]:
        """All pages as far as the chain is intact, also those with other entries: these are read one by one.

        Ends where an offset is 0, outside the file or not after the directory before (a loop), where the number of
        entries is not plausible, or where a required tag is missing.
        """
        page: StackPage | None = None
        for columns in self.batches():
            for page in columns.known_pages(self._file.read):
                yield page
            if page is None or page.directory != columns.at[-1]:
                break  # other entries
        following = self.first if page is None else page.next
        while page is None or following > page.directory:  # pages go forward in the file
            page = read_page(self._file.read, self._size, following, self._order)
            if page is None:
                return
            yield page
            following = page.next

    def batches(self, until: int | None = None) -> Iterator[PageColumns]:
        """The pages that follow, as far as the chain is intact, or up to the first with pixels after byte `until`."""
        for at, raw in self._read():
            columns = PageColumns.of(at, raw)
            pixels = columns.values[:, TAGS.index(STRIP_OFFSETS)]
            beyond = np.flatnonzero(pixels > until) if until is not None else at[:0]
            yield columns.take(slice(int(beyond[0]))) if len(beyond) else columns
            if len(beyond):
                self.next = int(at[beyond[0]])  # the next call begins there
                return

    def _read(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Directories (offset and bytes), at most _BATCH_PAGES at a time."""
        at: list[int] = []
        rows = bytearray()
        next_of = struct.Struct(self._order + "I").unpack_from
        mark = struct.pack(self._order + "H", len(TAGS))
        directory, base, data = self.first if self.next_at == 4 else self.next, 0, b""
        while 8 <= directory <= self._size - DIRECTORY_BYTES:
            start = directory - base
            if start < 0 or start + _ROW_BYTES > len(data):
                base, start, data = directory, 0, self._file.read(directory, _WINDOW_BYTES)
            if data[start : start + 2] != mark or len(data) < start + DIRECTORY_BYTES:
                break
            at.append(directory)
            rows += data[start : start + _ROW_BYTES].ljust(_ROW_BYTES, b"\0")
            self.next_at = directory + DIRECTORY_BYTES - 4
            self.next = next_of(data, start + DIRECTORY_BYTES - 4)[0]
            if len(at) == _BATCH_PAGES:
                yield np.array(at, np.int64), np.frombuffer(bytes(rows), self._dtype)
                at, rows = [], bytearray()
            if self.next <= directory:
                break
            directory = self.next
        if at:
            yield np.array(at, np.int64), np.frombuffer(bytes(rows), self._dtype)


@dataclass(frozen=True, slots=True)
class Loss:
    """Something of a stack file that cannot be had back. offset is where it began, in bytes."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class IntactPage:
    """A page with an intact frame.

    pixel_type is the index's, None if the byte count fits none (compressed). metadata are the bytes as the index counts
    them, without a closing NUL. axes are those that the metadata tell, hints what Micro-Manager's keys tell. doubt says
    why the frame is not certain, empty if it is. is_regular: it lies as known writers lay it.
    """

    page: StackPage
    pixel_type: int | None
    metadata_bytes: int
    axes: dict[str, AxisValue] | None
    hints: dict[str, AxisValue]
    doubt: str
    is_regular: bool

    @property
    def end(self) -> int:
        """The byte after its pixels and metadata."""
        return max(self.page.pixels + self.page.pixel_bytes, self.page.metadata + self.page.metadata_bytes)


@dataclass(slots=True)
class StackFacts:
    """Content of a stack file. data_end is the byte after the last one that is not zero.

    is_finished: the chain ends with a page that has no next one, and the file with it. header_problem is empty where
    the header could be read.
    """

    size: int
    data_end: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    header_problem: str = ""
    pages: list[IntactPage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    is_finished: bool = False

    @property
    def is_regular(self) -> bool:
        """Return True if a known writer laid it: then a page that lies otherwise has a damaged directory."""
        return any(page.is_regular for page in self.pages)


def walk_stack(file: ReadFile) -> StackFacts:
    """All intact frames of a stack file, and the lost ones.

    Raises UnsupportedFeature for versions other than 2 and 3, StorageError if the disk fails.
    """
    return _StackWalk(file).run()


def find_data_end(file: ReadFile, runs: list[tuple[int, int]]) -> int:
    """The byte after the last one that is not zero; runs are the ranges of the file that hold data."""
    for start, end in reversed(runs):
        at = end
        while at > start:
            count = min(_READ_BYTES, at - start)
            content = file.read(at - count, count).rstrip(b"\0")
            if content:
                return at - count + len(content)
            at -= count
    return 0


class _StackWalk:
    """One walk through one file."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._read = file.read
        self._runs = data_runs(file.path)
        self._starts = [start for start, _ in self._runs]
        self._found = StackFacts(file.size(), find_data_end(file, self._runs))
        self._order: ByteOrder = "<"
        self._end = 0  # after everything that is accounted for
        self._unsupported: UnsupportedFeature | None = None

    def run(self) -> StackFacts:
        found = self._found
        first = self._read_header()
        previous: StackPage | None = None
        last: StackPage | None = None
        for page in self._walk(first):
            last = page
            judged = self._judge(page, previous)
            self._account_for(page, judged)
            if isinstance(judged, Loss):
                found.losses.append(judged)
                continue
            found.pages.append(judged)
            previous = page
        if self._unsupported is not None and found.data_end > _HEADER_BYTES and not found.is_regular:
            raise self._unsupported  # not just a damaged number
        ends = last is not None and last.next == 0 and found.pages and found.pages[-1].page is last
        found.is_finished = bool(ends) and found.size <= align_up(self._end)
        return found

    def _read_header(self) -> int:
        """Offset of the first directory, as the header has it."""
        found, path = self._found, str(self._file.path)
        try:
            header = parse_stack_header(self._read, found.size, path)
        except (CorruptDataset, UnsupportedFeature) as error:
            self._unsupported = error if isinstance(error, UnsupportedFeature) else None
            found.header_problem = "is empty" if found.data_end == 0 else str(error).removeprefix(f"{path}: ")
            head = self._read(0, 8)
            self._order = ">" if head[:2] == b"MM" else "<"
            return int(struct.unpack(self._order + "I", head[4:])[0]) if len(head) == 8 else 0
        found.summary = header.summary_metadata
        self._order = header.byte_order
        self._end = header.end
        return header.first_directory

    def _walk(self, first: int) -> Iterator[StackPage]:
        """The pages in file order: along the chain, and after its breaks."""
        page: StackPage | None = None
        while True:
            for page in PageChain(self._file, first, self._order).pages():
                yield page
            if self._found.data_end <= self._end:
                return
            found = self._search(page.next_at + 4 if page is not None else 8)
            self._note_break(page, found)
            if found is None:
                return
            first = found.directory

    def _page(self, directory: int) -> StackPage | None:
        return read_page(self._read, self._found.size, directory, self._order)

    def _search(self, start: int) -> StackPage | None:
        """The next page beyond doubt whose directory begins at or after `start`; directories begin at even offsets."""
        mark = _DIRECTORY_MARK[self._order]
        start += start % 2
        while start < self._found.data_end:
            content = self._read(start, _READ_BYTES + len(mark) - 1)
            at = content.find(mark)
            while 0 <= at < _READ_BYTES:
                page = self._page(start + at) if at % 2 == 0 else None
                if page is not None and self._is_beyond_doubt(page):
                    return page
                at = content.find(mark, at + 1)
            start += _READ_BYTES
        return None

    def _is_beyond_doubt(self, page: StackPage) -> bool:
        judged = self._judge(page, None)
        return isinstance(judged, IntactPage) and (judged.is_regular or judged.axes is not None) and not judged.doubt

    def _note_break(self, before: StackPage | None, page: StackPage | None) -> None:
        """Report the bytes between the last page and the first one after a break of the chain."""
        start = self._end
        if page is None:
            # Only once: the loss of the last page may cover these bytes.
            if not self._found.losses or self._found.losses[-1].offset < start:
                text = f"{self._found.data_end - start} bytes from here on are not a complete page"
                self._found.losses.append(Loss(start, text))
            return
        if page.directory >= start:
            is_lost = bool(self._read(start, page.directory - start).strip(b"\0"))
        else:  # inside a group of packed frames, whose directories lie after all their pixels
            is_lost = before is not None and page.pixels != before.pixels + before.pixel_bytes
        if is_lost:
            offset = min(start, page.directory)
            text = f"the chain of pages breaks here and continues at byte {page.directory}: the bytes between are lost"
            self._found.losses.append(Loss(offset, text))

    def _judge(self, page: StackPage, previous: StackPage | None) -> IntactPage | Loss:
        """Judge whether the frame of a page is intact, and report problems."""
        size, data_end = self._found.size, self._found.data_end
        sides_fit = 1 <= page.width <= MAX_SIDE and 1 <= page.height <= MAX_SIDE and page.samples in (1, 3)
        pixels_end, metadata_end = page.pixels + page.pixel_bytes, page.metadata + page.metadata_bytes
        overlaps = page.pixels < page.next_at + 4 and pixels_end > page.directory
        overlaps |= page.pixels < metadata_end and pixels_end > page.metadata
        if not sides_fit or page.pixels < 8 or page.pixel_bytes == 0 or overlaps:
            return Loss(page.directory, DAMAGED_DIRECTORY)
        end = max(pixels_end, metadata_end)
        if end > size:
            return Loss(page.directory, f"the page ends at byte {end}, after the end of the file at {size}")
        if page.metadata_bytes > MAX_JSON_BYTES:  # a damaged count must not make us allocate gigabytes
            return Loss(page.directory, f"metadata of {page.metadata_bytes} bytes; at most {MAX_JSON_BYTES} are read")
        content = self._read(page.metadata, page.metadata_bytes)
        text = content.removesuffix(b"\0")
        if b"\0" in text or (page.metadata_bytes and not text):
            return Loss(page.directory, TORN_METADATA)
        # Metadata after the pixels prove them; without, zeros up to the end of a reserved file do not.
        if (pixels_end > align_up(data_end) and size > align_up(end)) or (
            page.metadata_bytes == 0 and pixels_end > data_end and size > end
        ):
            return Loss(page.directory, "the frame's pixels were not written to their end")
        values, doubt = self._values(text, page)
        if doubt and content != text:  # it was no closing NUL, but the last byte that is missing
            return Loss(page.directory, TORN_METADATA)
        return IntactPage(
            page=page,
            pixel_type=_pixel_type(page, values),
            metadata_bytes=len(text),
            axes=axes_in(values),
            hints=hints_in(values),
            doubt=doubt or self._hole_doubt(page.pixels, pixels_end),
            is_regular=_is_regular(page, previous),
        )

    def _values(self, text: bytes, page: StackPage) -> tuple[dict[str, Any], str]:
        try:
            return parse_json_object(text, str(self._file.path), page.metadata), ""
        except CorruptDataset:
            return {}, "its metadata are not a JSON object"

    def _hole_doubt(self, start: int, end: int) -> str:
        """Holes are blocks that were never written, or zeros that a copying program left out."""
        run = bisect.bisect_right(self._starts, start) - 1
        if run < 0 or self._runs[run][1] < end:
            return "pixels lie in a hole of the file: black there, or never written"
        if end > align_up(self._found.data_end):
            return "the file's data ends inside its pixels: black from there on, or never written"
        return ""

    def _account_for(self, page: StackPage, judged: IntactPage | Loss) -> None:
        end = page.next_at + 4
        if isinstance(judged, IntactPage) or judged.reason != DAMAGED_DIRECTORY:
            end = max(end, page.pixels + page.pixel_bytes, page.metadata + page.metadata_bytes)
        self._end = max(self._end, min(end, self._found.size))


def _pixel_type(page: StackPage, metadata: dict[str, Any]) -> int | None:
    """By byte counts: one writer claims 16 bits for pages of 8."""
    pixels = page.width * page.height
    if page.samples == 3:
        return 2 if page.pixel_bytes == 3 * pixels else None
    if page.pixel_bytes == pixels:
        return 0
    if page.pixel_bytes != 2 * pixels:
        return None
    return _BIT_DEPTHS.get(str(metadata.get("BitDepth")), 1)


def _is_regular(page: StackPage, previous: StackPage | None) -> bool:
    """Return True if directory, pixels and metadata lie as the reference writers or our own lay them (layout.py)."""
    pixels_end = page.pixels + page.pixel_bytes
    if page.pixels == page.directory + _REFERENCE_GAP[page.samples]:
        return page.metadata == pixels_end
    if page.metadata == page.directory + DIRECTORY_STEP:  # ours, large
        return page.pixels == align_up(page.metadata + page.metadata_bytes)
    if page.pixels == page.directory + DIRECTORY_STEP:  # ours, the first of a packed group
        return page.metadata >= pixels_end and page.directory % BLOCK_BYTES == 0
    if previous is None or page.pixel_bytes != previous.pixel_bytes:
        return False
    distance = page.pixels - previous.pixels  # ours, packed: more than one frame on where a page between is damaged
    if page.directory == previous.directory + DIRECTORY_STEP:
        return distance == page.pixel_bytes and page.metadata == previous.metadata + previous.metadata_bytes
    return distance > 0 and distance % page.pixel_bytes == 0 and page.metadata > previous.metadata


assert all(len(mark) == 10 for mark in _DIRECTORY_MARK.values())
