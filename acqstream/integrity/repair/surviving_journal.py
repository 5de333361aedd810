"""What is left of a journal that may be damaged anywhere: every record has its own checksum."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.log import journal


@dataclass(frozen=True, slots=True)
class SurvivingJournal:
    """frames are the sound records of frames, in order of their numbers (dtype RECORD_DTYPE).

    problem says what is wrong with the journal, empty if nothing is.
    """

    frames: NDArray[np.void]
    problem: str

    def of_stack(self, stack: int) -> dict[int, np.void]:
        """The records of one stack file, by pixel offset."""
        return {int(record["offset"]): record for record in self.frames[self.frames["stack"] == stack]}

    def stacks(self) -> list[int]:
        """The numbers of all stack files with frames."""
        return [int(stack) for stack in np.unique(self.frames["stack"])]


def read_surviving_journal(content: bytes, path: str) -> SurvivingJournal:
    """All sound records of a journal's content."""
    problem, version = "", 2
    try:
        version = journal.decode_journal_header(content, path).version
    except CorruptDataset as error:
        problem = str(error).removeprefix(f"{path}: ")
    body = content[journal.HEADER_BYTES :]
    count = len(body) // journal.RECORD_BYTES
    records = np.frombuffer(body, journal.RECORD_DTYPE, count)
    sound = records["number"] == np.arange(count, dtype=np.uint64)
    if version > 1:  # behind a damaged record numbers may go on anywhere
        sound = journal.counts_of(records) > 0
    view, crc_at = memoryview(body), journal.RECORD_BYTES - 4
    for position in np.flatnonzero(sound).tolist():
        start = position * journal.RECORD_BYTES
        sound[position] = zlib.crc32(view[start : start + crc_at]) == records["crc"][position]
    if not problem and (not sound.all() or len(body) % journal.RECORD_BYTES):
        bad = int(np.count_nonzero(~sound)) + bool(len(body) % journal.RECORD_BYTES)
        problem = f"{bad} of its records are damaged"
    return SurvivingJournal(records[sound & (records["flags"] == journal.FRAME)], problem)
