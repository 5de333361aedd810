"""Frames in large pieces: one after the other, read while the frames before are used, or many into one array."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES, StoredFrame, is_raw, payload_bytes
from acqstream.formats.ndtiff.stack_header import ByteOrder
from acqstream.storage.files.read_file import BLOCK_BYTES, BlockFile, BlockMemory, ReadFile, read_spans
from acqstream.storage.files.url_path import is_remote

# With the blocks at both ends five huge pages: a frame of 8 MiB, or four of 2 MiB, with what lies between them. A busy
# disk serves requests of 8 MiB a quarter faster than those of 2 MiB.
PIECE_BYTES = 10 * 2**20 - 2 * BLOCK_BYTES
_MAX_GAP_BYTES = 64 * 1024  # directories and metadata between frames: read rather than skipped
_THREADS = 2  # reads in flight
_PIECES_AHEAD = 4  # with the one in use, five times PIECE_BYTES (or of a larger frame) are taken
_SHARED_FRAMES = 80  # at most, that share one memory: a user who keeps one frame keeps them all
_COPY_BYTES = 2**18  # copied at once: still in the processor's cache when the frames are used
_ROWS = 2**16  # planned at once

Frames = list[tuple[list[int], NDArray[Any] | None]]
"""Rows with their frames (frames, Y, X[, 3]); None where each has to be read by itself."""


class _RowSpan(NamedTuple):
    """Rows whose frames lie near one another in a file, in this order, with their numbers; no file: read each alone."""

    file: BlockFile | None
    rows: NDArray[np.int64]
    numbers: NDArray[np.void]


class FrameSource(Protocol):
    """Source of frames: `NDTiffReader`."""

    def stored_frame(self, row: int) -> tuple[str, StoredFrame]: ...
    def stack_file(self, name: str) -> tuple[ReadFile, ByteOrder]: ...
    def read_pixels(self, row: int) -> NDArray[Any]: ...


def piece_memory(count: int = _PIECES_AHEAD + 2) -> BlockMemory:
    """Memory for one `read_ahead` after the other: new pages cost as much as the reads themselves.

    It keeps six pieces (`read_together` needs two), of 10 MiB or of the largest frames read with it, until it is
    dropped.
    """
    return BlockMemory(PIECE_BYTES + 2 * BLOCK_BYTES, count)


def read_ahead(
    source: FrameSource,
    rows: NDArray[np.int64],
    numbers: NDArray[np.void],
    stacks: NDArray[np.int32],
    memory: BlockMemory | None = None,
) -> Generator[tuple[int, NDArray[Any]]]:
    """These rows and their frames; numbers (dtype NUMBERS) and stacks are those of all rows. memory: its own, or that
    of reads before.

    Errors are raised when it is the frame's turn, as `read_pixels` raises them.
    """
    memory = piece_memory() if memory is None else memory
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="read-ahead")
    ahead: deque[Future[Frames]] = deque()
    try:
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            for piece in _pieces(source, some, numbers[some], stacks[some]):
                ahead.append(pool.submit(_read_piece, piece, memory))
                if len(ahead) > _PIECES_AHEAD:
                    yield from _taken(source, ahead.popleft())
        while ahead:
            yield from _taken(source, ahead.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def read_together(
    source: FrameSource,
    rows: NDArray[np.int64],
    entries: tuple[NDArray[np.void], NDArray[np.int32]],
    target: NDArray[Any],
    memory: BlockMemory,
    *,
    is_cached: bool,
) -> None:
    """Read the frames of these rows, all of one shape and dtype, to target (N, Y, X[, 3]), which is C-contiguous.

    entries are the numbers (dtype NUMBERS) and stacks of these rows. The files are read in the order in which the
    frames lie, once each.
    is_cached: through the page cache of the system.
    Raises as `read_pixels`; the target is undefined then.
    """
    numbers, stacks = entries
    order = np.lexsort((numbers["pixel_offset"], stacks))
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="read-together")
    under_way: deque[Future[None]] = deque()
    at = 0
    try:
        for piece in _pieces(source, rows[order], numbers[order], stacks[order], is_cached=is_cached):
            under_way.append(pool.submit(_store, source, piece, memory, (target, order[at : at + len(piece.rows)])))
            at += len(piece.rows)
            if len(under_way) > _PIECES_AHEAD:
                under_way.popleft().result()
        while under_way:
            under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _store(
    source: FrameSource, piece: _RowSpan, memory: BlockMemory, target: tuple[NDArray[Any], NDArray[np.intp]]
) -> None:
    """Read a piece; its frames go to these places of an array."""
    frames, places = target
    starts, sizes, content = _load(piece, memory)
    size, count = math.prod(frames.shape[1:]) * frames.itemsize, len(starts)
    is_break = (np.diff(starts) != sizes[: max(0, count - 1)]) | (np.diff(places[:count]) != 1)
    for low, high in pairwise([0, *(np.flatnonzero(is_break) + 1).tolist(), count] if count else []):
        pixels = content[starts[low] : starts[low] + (high - low) * size]
        frames[places[low] : places[low] + high - low] = pixels.view(frames.dtype).reshape(-1, *frames.shape[1:])
    for row, place in zip(piece.rows[count:].tolist(), places[count:].tolist(), strict=True):
        frames[place] = source.read_pixels(row)


def _taken(source: FrameSource, piece: Future[Frames]) -> Iterator[tuple[int, NDArray[Any]]]:
    for rows, frames in piece.result():
        if frames is None:
            for row in rows:
                yield row, source.read_pixels(row)
        else:
            yield from zip(rows, frames, strict=True)


def _pieces(
    source: FrameSource,
    rows: NDArray[np.int64],
    numbers: NDArray[np.void],
    stacks: NDArray[np.int32],
    *,
    is_cached: bool = False,
) -> Iterator[_RowSpan]:
    """Runs of frames that lie near one another, for all rows in turn."""
    sizes = payload_bytes(numbers)
    is_plain = (sizes >= 0) & is_raw(numbers["pixel_compression"])
    starts = numbers["pixel_offset"].astype(np.int64)
    ends = starts + sizes
    breaks = (stacks[1:] != stacks[:-1]) | (starts[1:] < ends[:-1]) | ~is_plain[1:] | ~is_plain[:-1]
    edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]
    for low, high in pairwise(edges):
        if not is_plain[low]:
            yield _RowSpan(None, rows[low:high], numbers[low:high])
            continue
        file = _block_file(source, int(rows[low]), is_cached=is_cached)
        for first, last in read_spans(starts[low:high], ends[low:high], PIECE_BYTES, _MAX_GAP_BYTES):
            span = slice(low + first, low + last)
            yield _RowSpan(file, rows[span], numbers[span])


def _block_file(source: FrameSource, row: int, *, is_cached: bool) -> BlockFile | None:
    """The stack file of this row, None if its pixels are not as they are in memory, or it cannot be opened."""
    name, _ = source.stored_frame(row)
    try:
        file, byte_order = source.stack_file(name)
        return BlockFile(file, is_cached=is_cached) if byte_order == "<" and not is_remote(file.path) else None
    except (DatasetError, StorageError):  # raised again when it is the frame's turn
        return None


def _load(piece: _RowSpan, memory: BlockMemory) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Where the frames start in the bytes that were read, their sizes, and these bytes.

    They may be fewer than the rows: the file was cut while we read, or cannot be read. The error is raised again by the
    frame that lies there, when it is its turn.
    """
    starts, sizes = piece.numbers["pixel_offset"].astype(np.int64), payload_bytes(piece.numbers)
    nothing = starts[:0], sizes[:0], np.empty(0, np.uint8)
    if piece.file is None:
        return nothing
    start = int(starts[0]) // BLOCK_BYTES * BLOCK_BYTES
    starts -= start
    end = int(starts[-1] + sizes[-1])
    if start + end > piece.file.size():
        return nothing
    length = -(-end // BLOCK_BYTES) * BLOCK_BYTES
    content = memory.take(length)
    try:
        count = piece.file.read_blocks(start, content[:length].data)
    except StorageError:
        return nothing
    stop = int(np.searchsorted(starts + sizes, count, "right"))
    return starts[:stop], sizes[:stop], content


def _read_piece(piece: _RowSpan, memory: BlockMemory) -> Frames:
    starts, _, content = _load(piece, memory)
    rows, stop = piece.rows.tolist(), len(starts)
    frames: Frames = []
    kinds = piece.numbers[["width", "height", "pixel_type"]][:stop]
    for low, high in pairwise([0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), stop] if stop else []):
        frames += _frames_of_one_kind(content, rows[low:high], starts[low:high], piece.numbers[low])
    if stop < len(rows):
        frames.append((rows[stop:], None))
    return frames


def _frames_of_one_kind(
    piece: NDArray[np.uint8], rows: list[int], starts: NDArray[np.int64], numbers: np.void
) -> Frames:
    """Frames of one shape and pixel type: views of the piece, small ones copies."""
    pixel_type = PIXEL_TYPES[int(numbers["pixel_type"])]
    shape = pixel_type.shape(int(numbers["height"]), int(numbers["width"]))
    size = math.prod(shape) * pixel_type.sample_bytes
    # An item at each byte: taking some of them copies the frames wherever they lie, without a step per frame.
    items: NDArray[Any] = np.ndarray((len(piece) - size + 1,), f"V{size}", piece, strides=(1,))
    is_copied = size * _SHARED_FRAMES < len(piece)
    at_once = max(1, min(_SHARED_FRAMES, _COPY_BYTES // size)) if is_copied else 1
    frames: Frames = []
    for low in range(0, len(rows), at_once):
        some = slice(low, low + at_once)
        taken = items[starts[some]] if is_copied else items[starts[low] : starts[low] + 1]
        frames.append((rows[some], taken.view(pixel_type.numpy_dtype).reshape(-1, *shape)))
    return frames
