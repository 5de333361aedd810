"""Compares the receipt with the journal and the state: counts, bytes, missing numbers, the root hash."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.check_report import CheckReport
from acqstream.integrity.verification.journal_facts import JournalFacts, MissingNumbers
from acqstream.log.state_file import MAX_GAPS_NOTED, DatasetState
from acqstream.model.fields import Fields
from acqstream.model.receipt import END_STATES, MissingFrames, Receipt
from acqstream.model.units import count_text
from acqstream.storage.files.small_file import parsed, read_json_object

_NEEDED = ("sent", "missing", "stored", "skipped", "payload_bytes", "without_checksum")
"""Fields that a receipt in a file has, although a receipt without them can be read."""


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file. Raises CorruptDataset where a field is missing or wrong, StorageError."""
    return parsed(read_json_object(path, is_ours=True), path, _complete_receipt)


def _complete_receipt(fields: Fields) -> Receipt:
    for name in _NEEDED:
        if name not in fields:
            raise fields.wrong(name, "given")
    return Receipt.of(fields)


class ReceiptCheck:
    """One receipt: `run` reports what is wrong with it."""

    def __init__(self, path: Path, receipt: Receipt, report: CheckReport) -> None:
        self._path = path
        self._receipt = receipt
        self._report = report

    def run(self, journal: JournalFacts | None, state: DatasetState | None) -> MissingNumbers:
        """Compare with what there is; the numbers that are missing without having been declared."""
        receipt = self._receipt
        if receipt.status not in END_STATES:
            self._tell(f"unknown status {receipt.status!r:.60}")
        elif state is not None and END_STATES[receipt.status] is not state.state:
            self._tell(f"status is {receipt.status!r}, but the state is {state.state}")
        if state is not None and receipt.dataset_id != state.dataset_id:
            self._tell(f"is of dataset {receipt.dataset_id!r:.80}, this one is {state.dataset_id!r:.80}")
        if os.path.abspath(receipt.path) != os.path.abspath(self._path.parent):
            self._report.add_note(f"was written as {receipt.path!r:.300}: moved, renamed or copied since")
        if journal is None:
            undeclared = sum(gap.count for gap in receipt.missing) - receipt.skipped
            return MissingNumbers(max(0, undeclared), receipt.missing if undeclared > 0 else ())
        self._compare_counts(journal)
        return self._compare_missing(journal)

    def _tell(self, text: str) -> None:
        self._report.add_problem(self._path, text)

    def _compare_counts(self, journal: JournalFacts) -> None:
        receipt = self._receipt
        if receipt.dataset_id != journal.dataset_id:
            self._tell(f"is of dataset {receipt.dataset_id!r:.80}, the journal of {journal.dataset_id!r:.80}")
        if receipt.root_sha256 and receipt.root_sha256 != journal.root_sha256:
            self._tell(f"root hash {receipt.root_sha256:.64}, that of the journal is {journal.root_sha256}")
        found = {
            "stored": len(journal.numbers),
            "skipped": journal.skipped,
            "payload_bytes": journal.payload_bytes,
            "without_checksum": journal.own_checksums,
        }
        for name, count in found.items():
            if getattr(receipt, name) != count:
                self._tell(f"{name} is {getattr(receipt, name)}, by the journal {count}")

    def _compare_missing(self, journal: JournalFacts) -> MissingNumbers:
        """Declared missing is what has no pixels, and nothing else; numbers after the journal count too."""
        receipt, count = self._receipt, journal.end
        behind = [
            MissingFrames(max(gap.first, count), gap.first + gap.count - max(gap.first, count), gap.reason)
            for gap in receipt.missing
            if gap.first + gap.count > count
        ]
        declared = self._declared(count)
        frames = journal.numbers
        low, high = np.searchsorted(frames, declared[:, 0]), np.searchsorted(frames, declared[:, 1])
        if wrong := int((high - low).sum()):
            first = frames[low[high > low][0]]
            self._tell(f"{count_text(wrong, 'frame', 'are')} listed as missing that exist, the first is {first}")
        self._compare_silent(frames, declared, count)
        self._compare_end(count, behind)
        holes = journal.missing
        return MissingNumbers(holes.count + sum(gap.count for gap in behind), (*holes.ranges, *behind))

    def _declared(self, count: int) -> NDArray[np.int64]:
        """The numbers below `count` that are listed as missing: rows of first and end, in order, each number once."""
        ranges: list[tuple[int, int]] = []
        end = 0
        for gap in sorted(self._receipt.missing, key=lambda one: one.first):
            first, stop = gap.first, min(gap.first + gap.count, count)
            if first < min(end, stop):
                self._tell(f"numbers from {gap.first} on are listed twice as missing")
            if stop > max(first, end):
                ranges.append((max(first, end), stop))
                end = stop
        return np.array(ranges, np.int64).reshape(-1, 2)

    def _compare_silent(self, frames: NDArray[np.int64], declared: NDArray[np.int64], count: int) -> None:
        """Numbers that are neither stored nor listed as missing."""
        starts = np.concatenate([np.zeros(1, np.int64), declared[:, 1]])
        ends = np.concatenate([declared[:, 0], np.array([count], np.int64)])
        low, high = np.searchsorted(frames, starts), np.searchsorted(frames, ends)
        lacking = ends - starts - (high - low)
        if not lacking.any():
            return
        text = f"{count_text(int(lacking.sum()), 'number', 'have')} no pixels and no place in the list of missing ones"
        if len(self._receipt.missing) >= MAX_GAPS_NOTED:
            self._report.add_note(f"{text}: at most {MAX_GAPS_NOTED} ranges are listed")
            return
        place = int(np.flatnonzero(lacking)[0])
        inside = frames[low[place] : high[place]]
        first = starts[place] + np.count_nonzero(inside == starts[place] + np.arange(len(inside)))
        self._tell(f"{text}, the first is {first}")

    def _compare_end(self, count: int, behind: Sequence[MissingFrames]) -> None:
        """Numbers received, or sent by the producer's count, end where journal and missing ranges do."""
        end = count
        for gap in sorted(behind, key=lambda one: one.first):
            if gap.first != end:
                self._tell(f"what became of numbers {end} to {gap.first - 1} is not recorded")
            end = max(end, gap.first + gap.count)
        sent = self._receipt.sent
        if sent is not None and (sent > end or (sent < end and self._receipt.status == "completed")):
            self._tell(f"the producer sent {sent}, stored and missing are {end}")
