"""Hashes every frame's pixels again: XXH3-64, as the journal has it. The files are read in large pieces, in order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetError, StorageError
from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.formats.ndtiff.layout import align_up
from acqstream.log.journal_file import JournalContent
from acqstream.model.units import count_text
from acqstream.storage.files.read_file import ReadFile, read_spans
from acqstream.storage.page_memory import PageMemory

READ_BYTES = 16 * 2**20
_MAX_GAP_BYTES = 256 * 1024


@dataclass(slots=True)
class ProvedPixels:
    """Number of frames whose pixels have the hash of the journal, and of hashes taken only in the daemon."""

    frames: int = 0
    payload_bytes: int = 0
    own_checksums: int = 0


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes [offset, offset + length) of the file: frames low .. high - 1, or a part of one large frame."""

    low: int
    high: int
    offset: int
    length: int


class PixelCheck:
    """Reads with one thread and hashes with another; both release the interpreter while they run."""

    def __init__(
        self, journal: JournalContent, report: CheckReport, proved: ProvedPixels, limit: int | None = None
    ) -> None:
        """proved counts the frames that are right. limit: maximum of frames to hash, in order of arrival."""
        self._journal = journal
        self._report = report
        numbers = np.flatnonzero(journal.is_frame)[:limit]
        self._numbers = numbers[journal.sound[numbers]]
        # Problems name rows, as the index has no entries for skipped numbers.
        self._rows = np.cumsum(journal.is_frame) - 1  # by frame number: order of arrival
        self._total = int(journal.records["length"][self._numbers].sum())
        self._done = 0
        self._piece_bytes = min(READ_BYTES, align_up(max(self._total, 1)))
        self._proved = proved

    def run(self, columns: FrameColumns) -> None:
        """Hash all frames whose record is sound, stack by stack; report what differs or cannot be read."""
        paths = dict(zip(reversed(columns.file_numbers), reversed(columns.files), strict=True))
        stacks = self._journal.records["stack"][self._numbers]
        memory = PageMemory(2 * self._piece_bytes).view  # one half is read while the other is hashed
        buffers = (memory[: self._piece_bytes], memory[self._piece_bytes :])
        with ThreadPoolExecutor(1, "verify-read") as reader:
            for stack in np.unique(stacks).tolist():
                numbers = self._numbers[stacks == stack]
                path = paths.get(stack)
                try:
                    file = ReadFile(path) if path is not None else None
                except (StorageError, DatasetError) as error:
                    self._report.add_problem(path or "", f"cannot be opened: {error}")
                    continue
                if file is None:
                    text = f"stack file number {stack} is missing: {count_text(len(numbers), 'frame')}"
                    self._report.add_problem(self._journal.path.parent, text)
                    continue
                self._check_file(file, self._inside(file, numbers), buffers, reader)

    def _inside(self, file: ReadFile, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those that lie in the file and share no bytes, in order of their place; the others are reported."""
        offsets, lengths = self._places(numbers)
        size = file.size()
        beyond = offsets + lengths > size  # of 32 bits each in a journal, so the sums do not wrap
        self._tell(file.path, numbers, beyond, f"pixels end beyond the end of the file at {size}")
        numbers = numbers[~beyond]
        numbers = numbers[np.argsort(self._journal.records["offset"][numbers], kind="stable")]
        starts, lengths = self._places(numbers)
        shared = np.zeros(len(numbers), np.bool_)
        # Against the largest end so far: a long frame may reach over several that follow.
        shared[1:] = starts[1:] < np.maximum.accumulate(starts + lengths)[:-1]
        self._tell(file.path, numbers, shared, "pixels share bytes with those of another frame")
        return numbers[~shared]

    def _places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets and lengths of the pixels of frames that lie in their file."""
        records = self._journal.records  # field by field: a record has 64 bytes
        return records["offset"][numbers].astype(np.int64), records["length"][numbers].astype(np.int64)

    def _tell(self, path: Path, numbers: NDArray[np.int64], wrong: NDArray[np.bool_], text: str) -> None:
        offsets = self._journal.records["offset"]
        rows = self._rows[numbers]
        self._report.add_problems(path, wrong, rows, lambda i: (text, int(offsets[numbers[i]])))

    def _check_file(
        self,
        file: ReadFile,
        numbers: NDArray[np.int64],
        buffers: tuple[memoryview, memoryview],
        reader: ThreadPoolExecutor,
    ) -> None:
        starts, lengths = self._places(numbers)
        recorded = self._journal.records["checksum"][numbers]
        digests = np.zeros(len(numbers), np.uint64)
        read = np.zeros(len(numbers), np.bool_)
        hasher, position = xxhash.xxh3_64(), -1
        for window, data in self._read_ahead(
            file, _windows(starts, starts + lengths, self._piece_bytes), buffers, reader
        ):
            # Small frames share a window and are hashed each at once; a large one is hashed piece by piece.
            if window.high - window.low > 1:
                _hash_frames(window, data, (starts, lengths), digests)
                read[window.low : window.high] = True
            else:
                if window.offset == starts[window.low]:
                    hasher.reset()
                    position = window.offset
                if window.offset == position:  # else a piece of the frame could not be read
                    hasher.update(data)
                    position += window.length
                digests[window.low] = hasher.intdigest()
                read[window.low] = position == starts[window.low] + lengths[window.low]
            self._done += window.length
            self._report.on_progress("pixels", min(self._done, self._total), self._total)
        same = read & (digests == recorded)
        rows = self._rows[numbers]
        text = "pixels hash to {:016x}, recorded was {:016x}"
        self._report.add_problems(
            file.path,
            read & ~same,
            rows,
            lambda i: (text.format(int(digests[i]), int(recorded[i])), int(starts[i])),
        )
        self._proved.frames += int(np.count_nonzero(same))
        self._proved.payload_bytes += int(lengths[same].sum())
        self._proved.own_checksums += int(np.count_nonzero(self._journal.records["own_checksum"][numbers[same]]))

    def _read_ahead(
        self,
        file: ReadFile,
        windows: Iterator[_Window],
        buffers: tuple[memoryview, memoryview],
        reader: ThreadPoolExecutor,
    ) -> Iterator[tuple[_Window, memoryview]]:
        """The windows with their bytes; the next one is read meanwhile. One that cannot be read is reported."""

        def begin(turn: int) -> tuple[_Window, memoryview, Future[int]] | None:
            window = next(windows, None)
            if window is None:
                return None
            view = buffers[turn % 2][: window.length]
            return window, view, reader.submit(file.read_into, window.offset, view)

        turn = 0
        waiting = begin(turn)
        while waiting is not None:
            window, view, result = waiting
            turn += 1
            waiting = begin(turn)
            try:
                count = result.result()
            except StorageError as error:
                text = f"{count_text(window.high - window.low, 'frame')} cannot be read: {error.strerror}"
                self._report.add_problem(file.path, text, offset=window.offset)
                continue
            if count != window.length:  # the size was checked before, so another process cuts it now
                raise CorruptDataset("became shorter while it was read", path=str(file.path), offset=window.offset)
            yield window, view


def _windows(starts: NDArray[np.int64], ends: NDArray[np.int64], piece_bytes: int) -> Iterator[_Window]:
    for low, high in read_spans(starts, ends, piece_bytes, _MAX_GAP_BYTES):
        end = int(ends[high - 1])
        for offset in range(int(starts[low]), end, piece_bytes):
            yield _Window(low, high, offset, min(piece_bytes, end - offset))


def _hash_frames(
    window: _Window,
    data: memoryview,
    frames: tuple[NDArray[np.int64], NDArray[np.int64]],
    digests: NDArray[np.uint64],
) -> None:
    starts = (frames[0][window.low : window.high] - window.offset).tolist()
    lengths = frames[1][window.low : window.high].tolist()
    digest = xxhash.xxh3_64_intdigest
    digests[window.low : window.high] = [
        digest(data[start : start + length]) for start, length in zip(starts, lengths, strict=True)
    ]
