"""The feed: published frames of a dataset, in order; from memory if they are there, else from the stack."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.pipeline.views.disk_allowance import DiskAllowance
from acqstream.pipeline.views.recent_groups import RecentGroups, place_key
from acqstream.storage.block_file import BLOCK_BYTES, BlockFile, BlockMemory

MAX_GAP_BYTES = 64 * 1024  # between frames that are read in one piece: directories and metadata of a group
MAX_FRAMES = 4096  # in one take
AHEAD_BYTES = 256 * 2**20  # of frames, whose digests are kept until they are published
_STACK_NUMBER = re.compile(r"NDTiffStack(?:_([0-9]+))?\.tif")
_NO_PIXELS: NDArray[Any] = np.empty((0, 0), np.uint8)


@dataclass(frozen=True, slots=True)
class Lease:
    """One frame, until the next `take`. row is its position in the index.

    pixels has shape (Y, X), or (Y, X, 3) for RGB, uint8 or little-endian uint16, and must not be written to. It may be
    overwritten while it is used: ask `is_intact` after, and forget what was made of it if not. digest: what the view
    has made of the pixels before the frame was published, if it has; there are no pixels then.
    """

    row: int
    pixels: NDArray[Any]
    _recent: RecentGroups | None = None
    _token: int = 0
    digest: Any = None

    @property
    def is_from_memory(self) -> bool:
        return self._recent is not None or self.digest is not None

    def is_intact(self) -> bool:
        """True if everything read from `pixels` so far was the frame."""
        return self._recent is None or self._recent.is_intact(self._token)


class _Piece(NamedTuple):
    """Frames that lie near one another in a stack file, from byte `start` to `end`; the first one is in row `row`."""

    path: Path
    row: int
    start: int
    end: int
    frames: tuple[StoredFrame, ...]


class FrameFeed:
    """All that a view sees of a dataset. Used by one thread; a second one reads ahead in the stack.

    allowance tells whether the disk may be read now. is_held: the last `take` gave nothing because it may not be.
    """

    def __init__(
        self, reader: NDTiffReader, recent: RecentGroups | None = None, *, allowance: DiskAllowance | None = None
    ) -> None:
        self.reader = reader
        self.is_held = False
        self._recent = recent
        self._allowance = allowance or DiskAllowance()
        self._numbers: dict[str, int] = {}
        self._digests: dict[int, Any] = {}  # by key of the frame's place
        self._digested = -1  # key of the last frame that was digested, or could not be
        self._file: tuple[Path, BlockFile] | None = None
        self._memory: BlockMemory | None = None
        self._ahead: tuple[_Piece, Future[NDArray[np.uint8]]] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")

    def close(self) -> None:
        self._threads.shutdown()
        self.reader.close()

    def look_ahead(self, digest: Callable[[NDArray[Any]], Any], limit_bytes: int) -> bool:
        """Digest frames that are in memory and not published yet, as far as is known; False if there were none.

        They are taken to be like the last one that is. A digest of None ends it. No disk is used.
        """
        recent = self._recent
        if recent is None or not len(self.reader):
            return False
        name, frame = self.reader.stored_frame(len(self.reader) - 1)
        if not frame.is_plain:
            return False
        size, done = frame.payload_bytes, 0
        for key, pixels, token in recent.after(max(self._digested, self._key(name, frame)), size):
            if done >= limit_bytes or len(self._digests) * size >= AHEAD_BYTES:
                break
            made = digest(_array(np.frombuffer(pixels, np.uint8), frame))
            if made is None:
                break
            self._digested = key
            if recent.is_intact(token):
                self._digests[key] = made
            done += size
        return done > 0

    def take(self, cursor: int, limit_bytes: int) -> Sequence[Lease]:
        """The frames from row `cursor` on, about limit_bytes of pixels; empty if there are none or the disk is busy.

        Never waits for frames. Raises DatasetError where the dataset is damaged, StorageError where it cannot be read.
        """
        if cursor >= len(self.reader):
            self.reader.refresh()
        self.is_held = False
        end = min(len(self.reader), cursor + MAX_FRAMES)
        leases = self._from_memory(self._recent, cursor, end, limit_bytes) if self._recent is not None else []
        if leases or cursor >= end:
            return leases
        if not self._allowance.has_some():
            self.is_held = True
            return []
        with self._allowance.using():
            return self._from_stack(cursor, end, limit_bytes)

    def _from_memory(self, recent: RecentGroups, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        self._forget_before(self._key(*self.reader.stored_frame(cursor)) if cursor < end else -1, recent)
        leases: list[Lease] = []
        total = 0
        for row in range(cursor, end):
            name, frame = self.reader.stored_frame(row)
            if not frame.is_plain:
                break
            if (digest := self._digests.get(self._key(name, frame))) is not None:
                leases.append(Lease(row, _NO_PIXELS, digest=digest))
            elif (found := recent.find(self._number(name), frame.pixels, frame.payload_bytes)) is not None:
                pixels, token = found
                leases.append(Lease(row, _array(np.frombuffer(pixels, np.uint8), frame), recent, token))
            else:
                break
            total += frame.payload_bytes
            if total >= limit_bytes:
                break
        return leases

    def _forget_before(self, key: int, recent: RecentGroups) -> None:
        """Digests of frames that were taken; all of them, if frames lie elsewhere than was said."""
        for known in list(self._digests):
            if known < key or recent.is_moved:
                del self._digests[known]

    def _from_stack(self, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        """Frames that lie near one another, in one read; the next ones are read beside, while these are used."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            wait([ahead[1]])
        if ahead is not None and ahead[0].row == cursor:
            piece, data = ahead[0], ahead[1].result()
        else:
            wanted = self._piece(cursor, end, limit_bytes)
            if wanted is None:  # the reader says what is wrong
                return [Lease(cursor, self.reader.read_pixels(cursor))]
            piece, data = wanted, self._read(wanted)
        following = cursor + len(piece.frames)
        if following < end and self._allowance.is_free():
            after = self._piece(following, end, limit_bytes)
            self._ahead = (after, self._threads.submit(self._read, after)) if after is not None else None
        skipped = piece.start % BLOCK_BYTES - piece.start
        return [
            Lease(cursor + n, _array(data[skipped + frame.pixels :][: frame.payload_bytes], frame))
            for n, frame in enumerate(piece.frames)
        ]

    def _piece(self, row: int, end: int, limit_bytes: int) -> _Piece | None:
        """As many frames from this row on as are read at once; None where that cannot be done."""
        name, first = self.reader.stored_frame(row)
        file, byte_order = self.reader.stack_file(name)
        size = file.size()
        if not first.is_plain or byte_order == ">" or _end(first) > size:
            return None
        frames = [first]
        for number in range(row + 1, end):
            next_name, frame = self.reader.stored_frame(number)
            is_near = 0 <= frame.pixels - _end(frames[-1]) <= MAX_GAP_BYTES
            is_inside = _end(frame) - first.pixels <= limit_bytes and _end(frame) <= size
            if next_name != name or not frame.is_plain or not is_near or not is_inside:
                break
            frames.append(frame)
        return _Piece(file.path, row, first.pixels, _end(frames[-1]), tuple(frames))

    def _read(self, piece: _Piece) -> NDArray[np.uint8]:
        """Whole blocks, from that with the first pixel on. One call at a time."""
        if self._file is None or self._file[0] != piece.path:
            self._file = piece.path, BlockFile(piece.path)
        start = piece.start - piece.start % BLOCK_BYTES
        length = -(-(piece.end - start) // BLOCK_BYTES) * BLOCK_BYTES
        if self._memory is None:
            self._memory = BlockMemory(length, 3)
        data = self._memory.take(length)[:length]
        if self._file[1].read_blocks(start, data.data) < piece.end - start:
            raise CorruptDataset("the file became shorter while it was read", path=str(piece.path))
        return data

    def _key(self, name: str, frame: StoredFrame) -> int:
        return place_key(self._number(name), frame.pixels)

    def _number(self, name: str) -> int:
        """Number of a stack file, -1 for names of other writers."""
        number = self._numbers.get(name)
        if number is None:
            found = _STACK_NUMBER.search(name)
            number = self._numbers[name] = int(found[1] or 0) if found else -1
        return number


def _end(frame: StoredFrame) -> int:
    return frame.pixels + frame.payload_bytes


def _array(data: NDArray[np.uint8], frame: StoredFrame) -> NDArray[Any]:
    array: NDArray[Any] = data.view(frame.pixel_type.numpy_dtype).reshape(frame.shape)
    array.flags.writeable = False
    return array
