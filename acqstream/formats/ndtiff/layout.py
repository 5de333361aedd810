"""Bytes of an NDTiff 3.3 dataset as it is written: places of frames, stack header, pages, index entries. Pure.

Source: NDTiff specification 3.3 ("The individual TIFF files", "NDTiff.index"), TIFF 6.0 section 2.

Stack header, little endian:

    offset  size  value
    0       4     "II", 42
    4       4     offset of the first page directory: here the header's length, a whole number of blocks
    8       4     483729
    12      8     major 3, minor 3
    20      4     2355492
    24      4     L, length of the summary JSON
    28      L     summary JSON, ASCII

Page directory: 13 entries, next pointer at 158, [3 x u16 bits for RGB at 162], two resolutions. Directories lie
DIRECTORY_STEP bytes apart. A group of frames, from block boundary to block boundary:

    large frame (256 KiB and more)     [directory, metadata, gap][pixels, gap]
    packed frames of one kind          [directory 0][pixels 0 .. k][directories 1 .. k, metadata 0 .. k, gap]

so that a payload, or the payload of many frames, lands in one place, and pixels of large frames start on a block.
The last page's next pointer names the block boundary after the group, where the next group starts. A metadata text
is followed by a NUL that the TIFF tag counts and the index does not: libtiff warns without it.

Published when: its whole entry is in NDTiff.index.

"""

from __future__ import annotations

import functools
import itertools
import json
import struct
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.index_entries import NUMBERS
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import FrameHeader, FrameRun, PixelType
from acqstream.model.metadata import LARGEST, dump_ascii

BLOCK_BYTES = 4096
"""Commits and groups start and end on this boundary: the unit of direct I/O and of what survives a torn write."""

DISPLAY_SETTINGS_NAME = "display_settings.txt"
STACK_LIMIT_BYTES = 2**32  # offsets in TIFF are u32
STACK_MARGIN_BYTES = 5_000_000  # both references roll over this much before the limit
PAGE_OVERHEAD_BYTES = 176  # as both references count it: 13 * 12 + 4 + 16
LARGE_FRAME_BYTES = 256 * 2**10
PACKED_GROUP_BYTES = 4 * 2**20
DIRECTORY_STEP = 192
NEXT_POINTER = 158  # in a directory

_HEADER_BYTES = 28
_ENTRY_COUNT = 13
_RESOLUTIONS = 162
_PACKED_ALIGN = 16
_INDEX_PIXEL_TYPES = {8: 0, 16: 1, 10: 3, 12: 4, 14: 5, 11: 6}  # by significant bits; RGB is 2
_LENGTH = struct.Struct("<I")

# Byte offsets, in a directory, of the values that differ from frame to frame.
_STRIP_OFFSET = 2 + 5 * 12 + 8
_METADATA_COUNT = 2 + 12 * 12 + 4
_METADATA_OFFSET = 2 + 12 * 12 + 8
_X_RESOLUTION = 2 + 9 * 12 + 8
_Y_RESOLUTION = 2 + 10 * 12 + 8
_BITS_OFFSET = 2 + 2 * 12 + 8


def align_up(offset: int, step: int = BLOCK_BYTES) -> int:
    """The smallest multiple of `step` that is not below `offset`."""
    return -(-offset // step) * step


class Placement(NamedTuple):
    """The place of a frame, or of several back to back, in a stack file. Offsets are bytes from the start of the file.

    Frames are placed in groups: a group starts and ends on a block boundary and is written as one run of bytes. The
    offsets of directory and metadata of a packed frame are known when its group is closed (`NDTiffLayout.close`).
    """

    frames: FrameRun
    group_start: int
    position: int  # of the first frame in the group, from 0
    pixels: int  # of the first frame
    tail_bytes: int  # what directories and metadata after the pixels of the group take, these frames included
    group_end: int  # block boundary where the group ends if these frames are its last
    packed: bool  # more frames of the same kind may follow in the group

    @property
    def pixels_end(self) -> int:
        return self.pixels + self.frames.payload_bytes


@dataclass(frozen=True, slots=True)
class RollOver:
    """The frames do not fit into this stack file any more."""


class Page(NamedTuple):
    """One frame of a closed group: all offsets in the stack file, in bytes."""

    header: FrameHeader
    directory: int
    pixels: int
    metadata: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The frames of a closed group: an offset per frame, as in `Page`, which it gives as a sequence."""

    frames: FrameRun
    directories: NDArray[np.int64]
    pixels: NDArray[np.int64]
    metadata: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, position: int) -> Page:
        offsets = (self.directories[position], self.pixels[position], self.metadata[position])
        return Page(self.frames[position], *map(int, offsets))


class NDTiffLayout:
    """Places frames in the stack files of one NDTiff dataset and makes the bytes around their pixels. Pure: no I/O.

    prefix is the start of all stack file names, without folders; one that is not ASCII is left out, because Java
    readers take the names in their platform's charset. The summary's pixel size sets the TIFF resolution, default 1 um.
    overlap is (y, x) in pixels for the full resolution of a tiled dataset, None for a flat one. stack_limit_bytes is
    lowered in tests only.
    """

    def __init__(
        self,
        prefix: str,
        summary: Mapping[str, Any],
        *,
        overlap: tuple[int, int] | None = None,
        stack_limit_bytes: int = STACK_LIMIT_BYTES,
    ) -> None:
        prefix = prefix.rpartition("/")[2]
        self._prefix = prefix if prefix.isascii() else ""
        self._summary = summary
        self._overlap = overlap
        self._resolution = resolution(pixel_size_of(summary))
        self._limit = stack_limit_bytes
        self._templates: dict[tuple[PixelType, int, int], np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def stack_name(self, stack: int) -> str:
        """File name of stack number `stack`, from 0."""
        base = f"{self._prefix}_NDTiffStack" if self._prefix else "NDTiffStack"
        return f"{base}.tif" if stack == 0 else f"{base}_{stack}.tif"

    def stack_header(self, axis_order: Sequence[str]) -> bytes:
        """First bytes of every stack file, complete blocks. axis_order names the axes of the frames."""
        return stack_header_bytes(summary_for(self._summary, axis_order, self._overlap))

    def check(self, header: FrameHeader) -> None:
        """Raise FrameRefused if no stack file can hold this frame."""
        if self._overlap is not None:
            check_tiles(FrameRun.of([header]), self._overlap)
        needed = header.payload_bytes + len(header.metadata) + STACK_MARGIN_BYTES + 2 * 2**20
        if needed > self._limit:
            raise FrameRefused(
                f"frame {header.number} of {header.payload_bytes} bytes does not fit a stack of {self._limit} bytes",
                code="payload_size",
                number=header.number,
            )

    def fits(self, end: int) -> bool:
        """Return True if a stack file may have a group that ends at byte `end`."""
        return end + PAGE_OVERHEAD_BYTES + STACK_MARGIN_BYTES < self._limit

    def place(self, frames: FrameRun, end: int, previous: Placement | None) -> Placement | RollOver:
        """The place of a frame: after `previous` in its group, or in a new group at `end` (a block boundary)."""
        placement = None
        if previous is not None and previous.packed and previous.frames.kind == frames.kind:
            placement = self._behind(frames, previous)
        if placement is None:
            placement = self._new_group(frames, end if previous is None else previous.group_end)
        # The references' rule, with the end of our group (which counts gaps too) for the end of theirs.
        if not self.fits(placement.group_end):
            return RollOver()
        return placement

    def place_run(self, frames: FrameRun, end: int, previous: Placement | None) -> Placement | None:
        """As `place`, for frames side by side in one group; None where they cannot lie so. Raises as `check`."""
        if self._overlap is not None:
            check_tiles(frames, self._overlap)
        if frames.frame_bytes >= LARGE_FRAME_BYTES:
            return None
        placement = self.place(frames, end, previous)
        if isinstance(placement, RollOver) or placement.group_end - placement.group_start > PACKED_GROUP_BYTES:
            return None
        return placement

    def _behind(self, frames: FrameRun, previous: Placement) -> Placement | None:
        pixels = previous.pixels_end
        tail = previous.tail_bytes + DIRECTORY_STEP * len(frames) + _texts_bytes(frames)
        group_end = align_up(align_up(pixels + frames.payload_bytes, _PACKED_ALIGN) + tail)
        # Bounded, as a group takes one contiguous span of the ring.
        if group_end - previous.group_start > PACKED_GROUP_BYTES:
            return None
        position = previous.position + len(previous.frames)
        return Placement(frames, previous.group_start, position, pixels, tail, group_end, packed=True)

    def _new_group(self, frames: FrameRun, start: int) -> Placement:
        if frames.frame_bytes >= LARGE_FRAME_BYTES:
            pixels = align_up(start + DIRECTORY_STEP + _texts_bytes(frames))
            return Placement(frames, start, 0, pixels, 0, align_up(pixels + frames.payload_bytes), packed=False)
        pixels = start + DIRECTORY_STEP
        tail = DIRECTORY_STEP * (len(frames) - 1) + _texts_bytes(frames)
        group_end = align_up(align_up(pixels + frames.payload_bytes, _PACKED_ALIGN) + tail)
        return Placement(frames, start, 0, pixels, tail, group_end, packed=True)

    def close(self, group: Sequence[Placement]) -> Pages:
        """Offsets of directories and metadata of a closed group."""
        first, frames = group[0], FrameRun.joined([placement.frames for placement in group])
        # The first directory lies before the pixels, where the previous group's last pointer leads; others follow them.
        positions = np.arange(len(frames))
        pixels = first.pixels + frames.frame_bytes * positions
        directories = np.full(len(frames), first.group_start)
        metadata = first.group_start + DIRECTORY_STEP
        if first.packed:
            tail = align_up(group[-1].pixels_end, _PACKED_ALIGN)
            directories[1:] = tail + DIRECTORY_STEP * positions[:-1]
            metadata = tail + DIRECTORY_STEP * (len(frames) - 1)
        lengths = _text_lengths(frames) + 1
        return Pages(frames, directories, pixels, metadata + np.cumsum(lengths) - lengths)

    def fill(self, block: memoryview, group: Sequence[Placement], pages: Pages) -> None:
        """Write directories, metadata and gaps of a closed group into `block`, its bytes from group_start on.

        The block of a group that is one large frame may end where its pixels begin.
        """
        start, end = group[0].group_start, group[-1].group_end
        data = np.frombuffer(block, dtype=np.uint8)
        directories = self._directories(pages, end)
        data[:DIRECTORY_STEP] = directories[0]
        rest = directories[1:].reshape(-1)
        texts = b"\0".join(pages.frames.metadata) + b"\0"
        if group[0].packed:
            tail = align_up(group[-1].pixels_end, _PACKED_ALIGN) - start
            data[group[-1].pixels_end - start : tail] = 0
            data[tail : tail + rest.size] = rest
        metadata = int(pages.metadata[0]) - start
        data[metadata : metadata + len(texts)] = np.frombuffer(texts, dtype=np.uint8)
        gap_end = len(data) if group[0].packed else group[0].pixels - start
        data[metadata + len(texts) : gap_end] = 0
        if not group[0].packed:
            data[group[0].pixels_end - start :] = 0

    def _directories(self, pages: Pages, group_end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """All directories of a group, shape (pages, DIRECTORY_STEP), filled by columns."""
        frames, at = pages.frames, pages.directories
        template = self._templates.get(frames.kind)
        if template is None:
            template = self._templates[frames.kind] = _directory_template(*frames.kind, self._resolution)
        rows = np.repeat(template[None, :], len(pages), axis=0)
        rgb = 6 if frames.pixel_type.samples == 3 else 0
        _put(rows, _STRIP_OFFSET, pages.pixels)
        _put(rows, _METADATA_COUNT, _text_lengths(frames) + 1)
        _put(rows, _METADATA_OFFSET, pages.metadata)
        _put(rows, _X_RESOLUTION, at + _RESOLUTIONS + rgb)
        _put(rows, _Y_RESOLUTION, at + _RESOLUTIONS + rgb + 8)
        if rgb:
            _put(rows, _BITS_OFFSET, at + _RESOLUTIONS)
        _put(rows, NEXT_POINTER, np.append(at[1:], group_end))
        return rows

    def index_entries(self, pages: Pages, stack_name: str, refused: Container[int] = ()) -> bytes:
        """The index entries that publish these frames, without those at the refused positions."""
        frames, name = pages.frames, stack_name.encode("ascii")
        name_field = _LENGTH.pack(len(name)) + name
        ends = np.zeros(len(pages), [("name", f"V{len(name_field)}"), *NUMBERS.descr])
        ends["name"] = np.void(name_field)
        ends["pixel_offset"], ends["metadata_offset"] = pages.pixels, pages.metadata
        ends["width"], ends["height"] = frames.width, frames.height
        ends["pixel_type"] = index_pixel_type(frames.pixel_type)
        ends["metadata_length"] = _text_lengths(frames)
        lengths = map(_LENGTH.pack, map(len, frames.axes_texts))
        rows = zip(lengths, frames.axes_texts, ends.view(f"V{ends.itemsize}").tolist(), strict=True)
        if refused:
            rows = (row for position, row in enumerate(rows) if position not in refused)  # type: ignore[assignment]
        return b"".join(itertools.chain.from_iterable(rows))

    def finish(self, last: Page | None) -> tuple[Sequence[tuple[int, bytes]], int | None]:
        """The patches that finish a stack file, as (offset, bytes), and its exact length.

        last is the last published page; without one the length is None: only the header stays.
        """
        if last is None:
            return [(4, b"\0\0\0\0")], None  # a stack without a page: no first directory
        pixels_end = last.pixels + last.header.payload_bytes
        metadata_end = last.metadata + len(last.header.metadata) + 1
        return [(last.directory + NEXT_POINTER, b"\0\0\0\0")], max(pixels_end, metadata_end)


def stack_header_bytes(summary: Mapping[str, Any]) -> bytes:
    """First bytes of a stack file with this summary metadata, a whole number of blocks."""
    text = dump_ascii(summary)
    length = align_up(_HEADER_BYTES + len(text))
    fields = struct.pack("<2sHIIIIII", b"II", 42, length, 483729, 3, 3, 2355492, len(text))
    return (fields + text).ljust(length, b"\0")


@functools.lru_cache(maxsize=64)  # asked for with every frame
def index_pixel_type(pixel_type: PixelType) -> int:
    """The index's number for a pixel type (specification: 0 8 bit, 1 16 bit, 2 RGB, 3..6 10, 12, 14, 11 bit)."""
    return 2 if pixel_type.samples == 3 else _INDEX_PIXEL_TYPES[pixel_type.bits]


def resolution(pixel_size_um: float) -> tuple[int, int]:
    """TIFF resolution (numerator, denominator) in pixels per cm, rounded as the Java reference does."""
    if not pixel_size_um > 0:
        return 10000, 1
    pixel_size_cm = max(0.0001 * pixel_size_um, 1e-12)  # smaller ones have no 32-bit inverse
    if pixel_size_cm < 1:
        return int(min(1 / pixel_size_cm, 0xFFFFFFFF)), 1
    return 1, int(min(pixel_size_cm, 0xFFFFFFFF))


def summary_for(
    summary: Mapping[str, Any], axis_order: Sequence[str], overlap: tuple[int, int] | None = None
) -> dict[str, Any]:
    """The caller's summary with the keys that readers need: `AxisOrder`, `TiledImageStorage`, the tiles' overlap.

    Source: keys that ndstorage and the Java viewer read.
    """
    keys = {"AxisOrder": list(axis_order), **summary, "TiledImageStorage": overlap is not None}
    if overlap is not None:
        keys["GridPixelOverlapY"], keys["GridPixelOverlapX"] = overlap
    return keys


def check_tiles(frames: FrameRun, overlap: tuple[int, int]) -> None:
    """Check that frames can be tiles. Raises FrameRefused: tile_axes without integer `row` and `column`, tile_size.

    Source: tiles of the Java reference writer.
    """
    for name in ("row", "column"):
        values: Sequence[AxisValue | None] = frames.axes.get(name, (None,))
        for number, value in enumerate(values, frames.number):
            if type(value) is not int:
                text = f"frame {number}: axis {name!r} is {value!r:.60}; a tile needs an integer there"
                raise FrameRefused(text, code="tile_axes", number=number)
    if frames.height <= overlap[0] or frames.width <= overlap[1]:
        number, size = frames.number, f"{frames.height} x {frames.width}"
        text = f"frame {number} of {size} pixels is not larger than the overlap {overlap}"
        raise FrameRefused(text, code="tile_size", number=number)


def pixel_size_of(summary: Mapping[str, Any]) -> float:
    """Pixel size in um from the summary keys that viewers look at; 1 um where there is none."""
    for key in ("PixelSizeUm", "PixelSize_um"):
        value = summary.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(max(-LARGEST, min(value, LARGEST)))
    return 1.0


def display_settings_bytes(settings: Mapping[str, Any]) -> bytes:
    """Content of display_settings.txt: one JSON object of no fixed form."""
    return json.dumps(settings, ensure_ascii=True, indent=2, allow_nan=False).encode("ascii")


def _text_lengths(frames: FrameRun) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Lengths of the metadata of each frame, without the NUL."""
    return np.fromiter(map(len, frames.metadata), np.int64, len(frames))


def _texts_bytes(frames: FrameRun) -> int:
    """Bytes of the metadata of all frames, with their NULs."""
    return sum(map(len, frames.metadata)) + len(frames)


def _put(rows: np.ndarray[Any, np.dtype[np.uint8]], offset: int, values: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    rows[:, offset : offset + 4] = values.astype("<u4").view(np.uint8).reshape(-1, 4)


def _directory_template(
    pixel_type: PixelType, height: int, width: int, ratio: tuple[int, int]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rgb = pixel_type.samples == 3
    long_, short, rational, ascii_ = 4, 3, 5, 2
    entries = (
        (256, long_, 1, width),
        (257, long_, 1, height),
        (258, short, 3 if rgb else 1, 0 if rgb else 8 * pixel_type.sample_bytes),
        (259, short, 1, 1),
        (262, short, 1, 2 if rgb else 1),
        (273, long_, 1, 0),
        (277, short, 1, pixel_type.samples),
        (278, long_, 1, height),
        (279, long_, 1, height * width * pixel_type.pixel_bytes),
        (282, rational, 1, 0),
        (283, rational, 1, 0),
        (296, short, 1, 3),
        (51123, ascii_, 0, 0),
    )
    assert len(entries) == _ENTRY_COUNT
    directory = struct.pack("<H", _ENTRY_COUNT) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    directory += b"\0\0\0\0" + (struct.pack("<3H", 8, 8, 8) if rgb else b"") + struct.pack("<4I", *ratio, *ratio)
    return np.frombuffer(directory.ljust(DIRECTORY_STEP, b"\0"), dtype=np.uint8)


assert BLOCK_BYTES % _PACKED_ALIGN == 0
