"""Reads acqstream.journal: the only reader, for resuming, recovery, verify and repair.

The file is read in pieces and reading ends after too much damage, so that a large file that is not a journal costs
neither memory nor time.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.log.journal import (
    FRAME,
    HEADER_BYTES,
    KNOWN_FLAGS,
    KNOWN_FLAGS_1,
    RECORD_BYTES,
    SKIP,
    JournalHeader,
    counts_of,
    decode_journal_header,
    unpack,
)
from acqstream.storage.files.read_file import ReadFile

_PIECE_BYTES = 2**14 * RECORD_BYTES
_CRC_AT = RECORD_BYTES - 4
_COLUMNS = ("records", "intact", "in_place", "known", "numbers", "counts")


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The records of a journal, with one item per record in every array.

    header is None where it is damaged, with the reason in header_error. records has dtype RECORD_DTYPE. intact: the CRC
    holds. in_place: the number is the one that follows the records before; after damage, except in version 1, it
    may be any larger one. known: the flags and the count of numbers are possible. numbers and counts are the frame
    numbers that a record stands for (a damaged record stands for the numbers up to the next one), end is the number
    after all of them. unread_bytes follow the last record that was read: a cut record, or all after too much damage.
    root_sha256 is the hash of all records.
    """

    path: Path
    header: JournalHeader | None
    header_error: CorruptDataset | None
    records: NDArray[np.void]
    intact: NDArray[np.bool_]
    in_place: NDArray[np.bool_]
    known: NDArray[np.bool_]
    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    end: int
    unread_bytes: int = 0
    root_sha256: str = ""

    def cut(self, rows: slice) -> JournalContent:
        """Some of the records, a view; the rest is that of the whole."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return replace(self, **columns)

    @property
    def dataset_id(self) -> str:
        """The dataset that the header names; empty where it is damaged."""
        return self.header.dataset_id if self.header is not None else ""

    @property
    def sound(self) -> NDArray[np.bool_]:
        """Records that can be trusted."""
        sound: NDArray[np.bool_] = self.intact & self.in_place & self.known
        return sound

    @property
    def prefix(self) -> NDArray[np.void]:
        """The records before the first one that cannot be trusted."""
        sound = self.sound
        return self.records[: len(sound) if sound.all() else int(np.argmin(sound))]

    @property
    def sound_frames(self) -> NDArray[np.void]:
        """The sound records with pixels, in order of their numbers."""
        frames: NDArray[np.void] = self.records[self.sound & (self.records["flags"] == FRAME)]
        return frames

    @property
    def is_frame(self) -> NDArray[np.bool_]:
        """Records with pixels; a damaged record counts as a frame if it has a length."""
        is_frame: NDArray[np.bool_] = self.records["flags"] == FRAME
        return is_frame | (~self.sound & (self.records["length"] > 0))

    @property
    def is_skip(self) -> NDArray[np.bool_]:
        """Records of numbers that were declared as missing."""
        is_skip: NDArray[np.bool_] = self.sound & (self.records["flags"] & SKIP > 0)
        return is_skip

    @property
    def skipped(self) -> int:
        """Frame numbers that were declared as missing."""
        return int(self.counts[self.is_skip].sum())

    def checked_header(self) -> JournalHeader:
        """The header. Raises CorruptDataset where it is damaged."""
        if self.header is None:
            assert self.header_error is not None
            raise self.header_error
        return self.header

    @property
    def problem(self) -> str:
        """The damage in one sentence; empty for an intact journal."""
        if self.header_error is not None:
            return str(self.header_error).removeprefix(f"{self.path}: ")
        bad = int(np.count_nonzero(~self.sound)) + (self.unread_bytes > 0)
        return f"{bad} of its records are damaged" if bad else ""


def read_journal(
    path: Path, *, max_damaged: int = 0, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> JournalContent:
    """Read header and records, up to the end of the piece with more than max_damaged damaged records.

    on_progress gets the bytes that were read and those there are. Memory is bounded by the sound records and
    max_damaged. Raises CorruptDataset for a pipe, folder or device, StorageError.
    """
    return joined(list(journal_pieces(path, max_damaged=max_damaged, on_progress=on_progress)))


def journal_pieces(
    path: Path, *, max_damaged: int = 0, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Iterator[JournalContent]:
    """As `read_journal`, in pieces of some records, at least one: end, unread_bytes and root are as of each piece."""
    with closing(ReadFile(path)) as file:
        header, header_error = None, None
        try:
            header = decode_journal_header(file.read(0, HEADER_BYTES), str(path))
        except CorruptDataset as error:
            header_error = error
        order = _NumberOrder(may_jump=header is None or header.version > 1)
        size, done, damaged = max(0, file.size() - HEADER_BYTES), 0, 0
        digest = hashlib.sha256()
        while True:
            piece = bytearray(file.read(HEADER_BYTES + done, min(_PIECE_BYTES, size - done)))
            del piece[len(piece) - len(piece) % RECORD_BYTES :]
            if not piece and done:
                return
            digest.update(piece)
            done += len(piece)
            content = order.judge(path, piece, header)
            damaged += int(np.count_nonzero(~content.sound))
            yield replace(content, header_error=header_error, unread_bytes=size - done, root_sha256=digest.hexdigest())
            on_progress(done, size)
            if not piece or damaged > max_damaged:
                return


def joined(pieces: Sequence[JournalContent]) -> JournalContent:
    """Pieces that follow one another as one, with the end of the last."""
    if len(pieces) == 1:
        return pieces[0]
    columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in pieces]) for name in _COLUMNS}
    # A damaged record stands for the numbers up to the next one, which may be of the next piece.
    columns["counts"] = np.diff(columns["numbers"], append=pieces[-1].end)
    return replace(pieces[-1], **columns)


class JournalWalk:
    """The records of a journal from its start on, as many frames at a time as are asked for."""

    def __init__(self, path: Path) -> None:
        self._pieces = journal_pieces(path)
        self._rest = next(self._pieces)

    def take(self, frames: int) -> JournalContent:
        """The records up to that of the last of the next `frames` frames; all that are left if there are fewer."""
        found = [self._rest]
        while sum(int(np.count_nonzero(one.is_frame)) for one in found) < frames:
            piece = next(self._pieces, None)
            if piece is None:
                break
            found.append(piece)
        content = joined(found)
        n_frames = np.cumsum(content.is_frame)  # up to each record
        stop = int(np.searchsorted(n_frames, frames)) + 1 if frames else 0
        self._rest = content.cut(slice(stop, None))
        return content.cut(slice(stop))


class _NumberOrder:
    """Follows the frame numbers from one piece of the journal to the next.

    may_jump: a record may stand for many numbers, so that the number after a damaged record is not known. next is the
    number after the pieces so far.
    """

    def __init__(self, *, may_jump: bool) -> None:
        self._may_jump = may_jump
        self._is_after_damage = False
        self.next = 0

    def judge(self, path: Path, piece: bytearray, header: JournalHeader | None) -> JournalContent:
        """Unpack and judge the records of the next piece."""
        view, crc32 = memoryview(piece), zlib.crc32
        sums = [crc32(view[at : at + _CRC_AT]) for at in range(0, len(piece), RECORD_BYTES)]
        records, is_possible = unpack(piece)
        intact = np.array(sums, np.uint32) == records["crc"]
        counts = counts_of(records).astype(np.int64)
        known = np.isin(records["flags"], KNOWN_FLAGS if self._may_jump else KNOWN_FLAGS_1) & (counts > 0) & is_possible
        numbers = self._follow(records["number"], intact & known, counts)
        in_place = records["number"] == numbers.astype(np.uint64)
        counts = np.diff(numbers, append=self.next)
        return JournalContent(path, header, None, records, intact, in_place, known, numbers, counts, self.next)

    def _follow(
        self, stored: NDArray[np.uint64], good: NDArray[np.bool_], counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The number that each record should have."""
        counts = np.where(good, counts, 1) if self._may_jump else np.ones(len(stored), np.int64)
        ends = self.next + np.cumsum(counts)
        if not len(ends):
            return ends
        numbers = ends - counts
        is_plain = good.all() and not self._is_after_damage and (stored == numbers.astype(np.uint64)).all()
        if is_plain or not self._may_jump:
            self.next = int(ends[-1])
            return numbers
        for row, (number, is_good, count) in enumerate(
            zip(stored.tolist(), good.tolist(), counts.tolist(), strict=True)
        ):
            if self._is_after_damage and is_good and number > self.next:
                self.next = number
            numbers[row] = self.next
            self._is_after_damage = not (is_good and number == self.next)
            self.next += 1 if self._is_after_damage else count
        return numbers
