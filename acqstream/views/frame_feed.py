"""Published frames of a dataset, in order, from memory if they are still there, else from the stack."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.read_ahead import piece_memory
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.log.recent_frames import RecentGroups, place_key


class Waiting(Enum):
    """What a view waits for before it can go on. None in its place: it goes on, or has done all."""

    FRAMES = "frames"
    LOG = "the log: it has a backlog, so the disk must not be used"
    READING = "frames that are being read from the stack"
    SLABS = "chunks that are being stored, for their memory"
    PICTURE = "the size of the picture"
    PROCESSES = "the processes that make it"
    READERS = "readers that may still use what was announced before"
    END = "the end of the run: then it is made again"


SHARE = 0.05  # of the time, while there is a backlog
BURST_S = 0.5  # at once, after it was not used for BURST_S / SHARE seconds; a read takes twice its time beside the log


class DiskAllowance:
    """is_busy returns whether a log has a backlog; with burst_s of 0 nothing may be used then.

    At its start a view may open its files at once, and read the frames that came before its process. Otherwise all
    later frames would pass by in memory and be read from the disk later. Threads share it without a lock: a lost update
    does no harm.
    """

    def __init__(self, is_busy: Callable[[], bool] = lambda: False, burst_s: float = BURST_S) -> None:
        self._is_busy = is_busy
        self._burst_s = self._left_s = burst_s
        self._as_of_s = time.monotonic()

    def is_free(self) -> bool:
        """Return whether the disk may be used without limit."""
        return not self._is_busy()

    def has_some(self) -> bool:
        """Return whether the disk may be used for a moment, inside of `using`."""
        if self.is_free():
            return True
        now_s = time.monotonic()
        self._left_s = min(self._burst_s, self._left_s + SHARE * (now_s - self._as_of_s))
        self._as_of_s = now_s
        return self._left_s > 0

    @contextmanager
    def using(self) -> Iterator[None]:
        """Count the time in this context, if a log has a backlog."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            if not self.is_free():
                self._left_s -= time.monotonic() - started_s


MAX_FRAMES = 4096  # in one take
_STACK_NUMBER = re.compile(r"NDTiffStack(?:_([0-9]+))?\.tif")
_NO_PIXELS: NDArray[Any] = np.empty((0, 0), np.uint8)


@dataclass(frozen=True, slots=True)
class Lease:
    """One frame, until the next `take`. row is its position in the index.

    pixels has shape (Y, X), or (Y, X, 3) for RGB, uint8 or little-endian uint16, and must not be written to. It may be
    overwritten while it is used: ask `is_intact` afterwards, and drop the outcome if it is not. digest: the view's
    outcome from before the frame was published, if it has one; pixels is empty then.
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
        """Return whether everything read from `pixels` so far was the frame."""
        return self._recent is None or self._recent.is_intact(self._token)


@dataclass(slots=True)
class _Stream:
    """Frames of the remaining rows, read ahead. kept: those of the last `take`, as its caller may not have used all."""

    left: range
    frames: Generator[tuple[int, NDArray[Any]]]
    kept: list[Lease] = field(default_factory=list)

    def goes_on_at(self, row: int) -> bool:
        """Forget frames before this row. Return whether this row is the next one."""
        self.kept = [lease for lease in self.kept if lease.row >= row]
        return row == self.kept[0].row if self.kept else row in self.left[:1]

    def next(self) -> tuple[int, NDArray[Any]]:
        self.left = self.left[1:]
        return next(self.frames)


class FrameFeed:
    """The frames of one dataset for one view. Used by one thread; others read ahead in the stack.

    allowance limits disk reads.
    """

    def __init__(
        self, reader: NDTiffReader, recent: RecentGroups | None = None, *, allowance: DiskAllowance | None = None
    ) -> None:
        self.reader = reader
        self._recent = recent
        self._allowance = allowance or DiskAllowance()
        self._numbers: dict[str, int] = {}
        self._digests: dict[int, Any] = {}  # by key of the frame's place
        self._digested = -1  # key of the last frame that was digested, or could not be
        self._memory = piece_memory()  # a view that is a little behind reads a few frames many times
        self._stream: _Stream | None = None
        self._beside: Future[list[tuple[int, NDArray[Any]]]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-beside")

    def close(self) -> None:
        self._stop_stream()
        self._thread.shutdown()
        self.reader.close()

    def has(self, row: int) -> bool:
        """Return whether this row is published. Raises DatasetError, StorageError."""
        if row >= len(self.reader):
            self.reader.refresh()
        return row < len(self.reader)

    @property
    def has_news(self) -> bool:
        """Return whether memory has frames since the last look at it."""
        return self._recent is not None and self._recent.has_news

    def look_ahead(self, digest: Callable[[NDArray[Any]], Any], max_digests: int, limit_bytes: int) -> bool:
        """Digest frames that are in memory and not published yet; False if there were none. Uses no disk.

        They are expected to be like the last published one. At most max_digests are kept, until their frames are taken.
        A digest of None ends the call.
        """
        recent = self._recent
        if recent is None or not len(self.reader):
            return False
        name, frame = self.reader.stored_frame(len(self.reader) - 1)
        if not frame.is_plain:
            return False
        size, digested_bytes = frame.payload_bytes, 0
        for key, pixels, token in recent.after(max(self._digested, self._key(name, frame)), size):
            if digested_bytes >= limit_bytes or len(self._digests) >= max_digests:
                break
            outcome = digest(_array(np.frombuffer(pixels, np.uint8), frame))
            if outcome is None:
                break
            self._digested = key
            if recent.is_intact(token):
                self._digests[key] = outcome
            digested_bytes += size
        return digested_bytes > 0

    def take(self, cursor: int, limit_bytes: int) -> Sequence[Lease] | Waiting:
        """Return the frames from row `cursor` on, about limit_bytes of pixels; or why none can be had now.

        Never waits for frames. Raises DatasetError where the dataset is damaged, StorageError where it cannot be read.
        """
        end = min(len(self.reader), cursor + MAX_FRAMES) if self.has(cursor) else cursor
        self._forget_before(cursor)
        leases = self._from_memory(self._recent, cursor, end, limit_bytes) if self._recent is not None else []
        if leases or cursor >= end:
            return leases or Waiting.FRAMES
        if self._beside is not None or not self._allowance.is_free():
            return self._beside_memory(cursor, end, limit_bytes)
        return self._from_stack(cursor, end, limit_bytes)

    def _from_memory(self, recent: RecentGroups, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        leases: list[Lease] = []
        total = 0
        for row in range(cursor, end):
            name, frame = self.reader.stored_frame(row)
            if not frame.is_plain:
                break
            if (digest := self._digests.get(self._key(name, frame))) is not None:
                leases.append(Lease(row, _NO_PIXELS, digest=digest))
            elif (place := recent.find(self._number(name), frame.pixels, frame.payload_bytes)) is not None:
                pixels, token = place
                leases.append(Lease(row, _array(np.frombuffer(pixels, np.uint8), frame), recent, token))
            else:
                break
            total += frame.payload_bytes
            if total >= limit_bytes:
                break
        return leases

    def _forget_before(self, cursor: int) -> None:
        """Drop digests of frames that were taken; drop all if the log placed frames elsewhere than announced."""
        if not self._digests or self._recent is None:
            return
        taken = self._key(*self.reader.stored_frame(cursor - 1)) if cursor else -1
        for key in list(self._digests):
            if key <= taken or self._recent.is_moved:
                del self._digests[key]

    def _from_stack(self, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        """Read past the page cache. Frames after these are read ahead while these are used."""
        stream = self._stream
        if stream is None or not stream.goes_on_at(cursor):
            self._stop_stream()
            rows = range(cursor, self._next_in_memory(cursor + 1, end))
            frames = self.reader.read_frames(np.arange(rows.start, rows.stop), self._memory)
            self._stream = stream = _Stream(rows, frames)
        leases = stream.kept
        total = sum(lease.pixels.nbytes for lease in leases)
        while self._stream is not None and stream.left and total < limit_bytes:
            try:
                row, pixels = stream.next()
            except (DatasetError, StorageError):
                self._stop_stream()
                if not leases:  # else it is raised again when it is that frame's turn
                    raise
            else:
                leases.append(Lease(row, _fixed(pixels)))
                total += pixels.nbytes
        return leases

    def _beside_memory(self, cursor: int, end: int, limit_bytes: int) -> list[Lease] | Waiting:
        """Read in another thread; no frame until it is done: frames in memory do not wait for a slow disk."""
        if self._beside is None:
            if not self._allowance.has_some():
                return Waiting.LOG
            self._stop_stream()
            max_frames = max(1, limit_bytes // self.reader.stored_frame(cursor)[1].payload_bytes)
            rows = np.arange(cursor, min(self._next_in_memory(cursor + 1, end), cursor + max_frames))
            self._beside = self._thread.submit(self._read, rows)
        if not (self._beside.done() or self._allowance.is_free()):
            return Waiting.READING
        beside, self._beside = self._beside, None
        read = [Lease(row, _fixed(pixels)) for row, pixels in beside.result() if row >= cursor]
        # Memory may have had frames after all while they were read: the rest goes on at this row, or is read again.
        return read if read and read[0].row == cursor else Waiting.READING

    def _read(self, rows: NDArray[np.int64]) -> list[tuple[int, NDArray[Any]]]:
        with self._allowance.using():
            return list(self.reader.read_frames(rows, self._memory))

    def _stop_stream(self) -> None:
        if self._stream is not None:
            self._stream.frames.close()
            self._stream = None

    def _next_in_memory(self, row: int, end: int) -> int:
        """Return the first row from this one on that is in memory, or `end`."""
        if self._recent is None:
            return end
        return next((at for at in range(row, end) if self._from_memory(self._recent, at, at + 1, 1)), end)

    def _key(self, name: str, frame: StoredFrame) -> int:
        return place_key(self._number(name), frame.pixels)

    def _number(self, name: str) -> int:
        """Return the number of a stack file, -1 for names of other programs."""
        number = self._numbers.get(name)
        if number is None:
            match = _STACK_NUMBER.search(name)
            number = self._numbers[name] = int(match[1] or 0) if match else -1
        return number


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _array(data: NDArray[np.uint8], frame: StoredFrame) -> NDArray[Any]:
    return _fixed(data.view(frame.pixel_type.numpy_dtype).reshape(frame.shape))
