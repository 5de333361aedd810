"""The feed: published frames of a dataset, in order; from the log's memory if they are there, else from the stack."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.pipeline.views.recent_groups import RecentGroups

MAX_GAP_BYTES = 64 * 1024  # between frames that are read in one piece: directories and metadata of a group
MAX_FRAMES = 4096  # in one take
_STACK_NUMBER = re.compile(r"NDTiffStack(?:_([0-9]+))?\.tif")


@dataclass(frozen=True, slots=True)
class Lease:
    """One frame, until the next `take`. row is its position in the index.

    pixels has shape (Y, X), or (Y, X, 3) for RGB, uint8 or little-endian uint16, and must not be written to. It may be
    overwritten while it is used: ask `is_intact` after, and forget what was made of it if not.
    """

    row: int
    pixels: NDArray[Any]
    _recent: RecentGroups | None = None
    _position: int = 0

    @property
    def is_from_memory(self) -> bool:
        return self._recent is not None

    def is_intact(self) -> bool:
        """True if everything read from `pixels` so far was the frame."""
        return self._recent is None or self._recent.is_intact(self._position)


class FrameFeed:
    """All that a view sees of a dataset. Used by one thread.

    may_read tells whether the disk may be read now. is_held: the last `take` gave nothing because it may not be.
    """

    def __init__(
        self, reader: NDTiffReader, recent: RecentGroups | None = None, *, may_read: Callable[[], bool] = lambda: True
    ) -> None:
        self.reader = reader
        self.is_held = False
        self._recent = recent
        self._may_read = may_read
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._numbers: dict[str, int] = {}

    def take(self, cursor: int, limit_bytes: int) -> Sequence[Lease]:
        """The frames from row `cursor` on, about limit_bytes of pixels; empty if there are none or the disk is busy.

        Never waits. Raises DatasetError where the dataset is damaged, StorageError where it cannot be read.
        """
        if cursor >= len(self.reader):
            self.reader.refresh()
        self.is_held = False
        end = min(len(self.reader), cursor + MAX_FRAMES)
        leases = self._from_memory(self._recent, cursor, end, limit_bytes) if self._recent is not None else []
        if leases or cursor >= end:
            return leases
        if not self._may_read():
            self.is_held = True
            return []
        return self._from_stack(cursor, end, limit_bytes)

    def _from_memory(self, recent: RecentGroups, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        leases: list[Lease] = []
        total = 0
        for row in range(cursor, end):
            name, frame = self.reader.stored_frame(row)
            found = recent.find(self._number(name), frame.pixels, frame.payload_bytes) if frame.is_plain else None
            if found is None:
                break
            pixels, position = found
            leases.append(Lease(row, _array(np.frombuffer(pixels, np.uint8), frame), recent, position))
            total += frame.payload_bytes
            if total >= limit_bytes:
                break
        return leases

    def _from_stack(self, cursor: int, end: int, limit_bytes: int) -> list[Lease]:
        """Frames that lie near one another, in one read."""
        name, first = self.reader.stored_frame(cursor)
        file, byte_order = self.reader.stack_file(name)
        size = file.size()
        if not first.is_plain or byte_order == ">" or _end(first) > size:  # the reader says what is wrong
            return [Lease(cursor, self.reader.read_pixels(cursor))]
        frames = [first]
        read_end = _end(first)
        for row in range(cursor + 1, end):
            next_name, frame = self.reader.stored_frame(row)
            is_near = 0 <= frame.pixels - read_end <= MAX_GAP_BYTES and _end(frame) - first.pixels <= limit_bytes
            if next_name != name or not frame.is_plain or not is_near or _end(frame) > size:
                break
            frames.append(frame)
            read_end = _end(frame)
        length = read_end - first.pixels
        if len(self._buffer) < length:
            self._buffer = np.empty(max(length, limit_bytes), np.uint8)
        if file.read_into(first.pixels, self._buffer[:length].data) != length:
            raise CorruptDataset("the file became shorter while it was read", path=str(file.path))
        starts = [frame.pixels - first.pixels for frame in frames]
        return [
            Lease(cursor + n, _array(self._buffer[start : start + frame.payload_bytes], frame))
            for n, (start, frame) in enumerate(zip(starts, frames, strict=True))
        ]

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
