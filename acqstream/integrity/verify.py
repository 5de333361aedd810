"""Proves a dataset: the format's own check, joined with what our writer left beside it.

Order of trust: the receipt's root hash stands for the journal, the journal's checksums for the pixels, the journal's
places for the index. Missing files prove less, and the report names them.

"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from acqstream.errors import CorruptDataset, DatasetError, StorageError
from acqstream.formats.check_report import CheckReport, FrameColumns, Problem
from acqstream.formats.ndtiff.folders import read_records, record_path
from acqstream.formats.registry import find_frame_format
from acqstream.integrity.changes import KEPT_SUFFIX
from acqstream.integrity.pixel_check import PixelCheck, ProvedPixels
from acqstream.integrity.record_check import (
    JournalFacts,
    MissingNumbers,
    ReceiptCheck,
    check_journal,
    compare_with_index,
    plain_facts,
    read_receipt,
)
from acqstream.log.journal import JOURNAL_NAME, RECORD_BYTES
from acqstream.log.journal_file import JournalContent, JournalWalk
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.units import count_text
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.directory_lock import is_locked
from acqstream.storage.files.folder_tree import walk
from acqstream.storage.files.stack_file import PRIVATE_SUFFIX

OnProgress = Callable[[str, int, int], None]
PART_ROWS = 2**17  # frames that are checked at a time: bounds the memory, some 300 bytes each
_OUR_FILES = (JOURNAL_NAME, STATE_NAME, RECEIPT_NAME)
_LEFTOVERS = {
    PRIVATE_SUFFIX: "a stack file in preparation, left by a writer that died",
    KEPT_SUFFIX: "put aside by recovery: no frame in it was published",
    TEMPORARY_SUFFIX: "half of a replaced file, left by a writer that died",
}
_TEMPORARY = (PRIVATE_SUFFIX, TEMPORARY_SUFFIX)
_MAX_LISTED = 100_000  # files looked at for leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Proofs of a dataset, what could not be proved, and problems. Counts are of frames.

    state is "" for other writers; writing: it was being written meanwhile. hashed frames and bytes are those whose
    pixels agree with the recorded checksum; own_checksums of them had theirs taken in the daemon, the rest in the
    producer. missing are numbers that were not declared as skipped. problems are the first ones of problem_count.
    """

    path: str
    format: str
    state: str = ""
    writing: bool = False
    levels: int = 0
    frames: int = 0
    skipped: int = 0
    payload_bytes: int = 0
    hashed_frames: int = 0
    hashed_bytes: int = 0
    own_checksums: int = 0
    root_sha256: str = ""
    missing_count: int = 0
    missing: tuple[MissingFrames, ...] = ()
    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    note_count: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong with what there is, and no frame is missing."""
        return not self.problem_count and not self.missing_count


def verify(path: Path, on_progress: OnProgress | None = None) -> Verification:
    """Check every frame and every invariant of the dataset at `path`: a container, a level, or a file in it.

    Raises DatasetError if it cannot be opened at all (UnknownFormat, UnsupportedFeature), StorageError.
    """
    frame_format = find_frame_format(path)
    folder = frame_format.folder(path)
    # Large sets in parts, in little memory; where anything is wrong, all at once, which can say what.
    for most_rows in (PART_ROWS, None):
        report = CheckReport() if on_progress is None else CheckReport(on_progress)
        check = _Check(folder, report, in_parts=most_rows is not None)
        check.read_side_files()
        if most_rows is not None and not check.has_parts:
            continue
        before = report.problem_count
        parts = frame_format.check(folder, report, check.growing, most_rows)
        if most_rows is None:
            parts = iter(list(parts))
        keeps_to_format = report.problem_count == before
        found = check.join(parts, frame_format.name, keeps_to_format=keeps_to_format)
        if most_rows is None or found.ok:
            break
    return found


class _Check:
    """The files of our writer in a dataset's folder."""

    def __init__(self, folder: Path, report: CheckReport, *, in_parts: bool) -> None:
        self.folder = folder
        self._report = report
        self._in_parts = in_parts
        self.writing = False  # a living writer holds it
        self.growing = False  # its end may be unfinished: being written, or its writer died
        self._proved: list[str] = []
        self._not_proved: list[str] = []
        self._state: DatasetState | None = None
        self._receipt: Receipt | None = None
        self._facts: JournalFacts | None = None
        self._records: JournalContent | JournalWalk | None = None
        self._journal_is_good = False
        self._index_agrees = True
        self._present = {name for name in _OUR_FILES if os.path.lexists(folder / name)}
        report.own_files.update(folder / name for name in _OUR_FILES)

    @property
    def has_parts(self) -> bool:
        """It is large, has ended, and its journal is not damaged."""
        return self._facts is not None and not self.growing

    def read_side_files(self) -> None:
        """State, receipt and journal; whether the dataset is being written."""
        if STATE_NAME in self._present:
            with self._reporting(STATE_NAME):
                self._state = read_state(str(self.folder))
        if self._state is not None and self._state.state.writing:
            self._look_for_writer()
        if RECEIPT_NAME in self._present and not self.growing:
            with self._reporting(RECEIPT_NAME) as path:
                self._receipt = read_receipt(path)
        if self._receipt is not None and not self._receipt.is_forced:
            self.growing, self._receipt = True, None  # more may have survived than it counts
            text = "the disk failed before the last frames were forced to it: resume the run, which puts it in order"
            self._report.add_problem(self.folder / RECEIPT_NAME, text)
        before = self._report.problem_count
        if JOURNAL_NAME in self._present:
            with self._reporting(JOURNAL_NAME) as path:
                self._read_journal(path)
        if self._facts is not None:
            self._report.refused_places.update(self._facts.refused)
            if self._state is not None and self._state.dataset_id != self._facts.dataset_id:
                text = f"is of dataset {self._facts.dataset_id!r:.80}, the state of {self._state.dataset_id!r:.80}"
                self._report.add_problem(self._facts.path, text)
        self._journal_is_good = self._report.problem_count == before
        self._tell_absent()

    def _read_journal(self, path: Path) -> None:
        if not self._in_parts:
            self._records = check_journal(path, self._report, writing=self.growing)
            if self._records is not None:
                self._facts = JournalFacts.of(path, [self._records])
                self._report.frame_numbers = self._facts.numbers.astype(np.uint64)
        elif path.stat().st_size >= PART_ROWS * RECORD_BYTES:
            self._facts = plain_facts(path)
            self._records = JournalWalk(path)

    @contextlib.contextmanager
    def _reporting(self, name: str) -> Iterator[Path]:
        """A damaged file is a problem, not the end of the check."""
        path = self.folder / name
        try:
            yield path
        except CorruptDataset as error:
            self._report.add_error(error)
        except (DatasetError, FileNotFoundError) as error:
            self._report.add_problem(path, f"cannot be read: {error!s:.300}")

    def _look_for_writer(self) -> None:
        self.growing = True
        try:
            self.writing = is_locked(str(self.folder / JOURNAL_NAME))
        except FileNotFoundError:
            self.writing = False
        except OSError as error:
            self.writing = True
            self._report.add_note(f"cannot determine whether it is still being written: {error}")
        if not self.writing:
            text = "no process writes it, but it was never closed: start the daemon on it, or run `acqstream repair`"
            self._report.add_problem(self.folder / STATE_NAME, text)

    def _tell_absent(self) -> None:
        """All three files exist, or none; the receipt comes at the end only."""
        needed = {JOURNAL_NAME, STATE_NAME} if self._present else set()
        if self._state is not None and self._state.state.final:
            needed.add(RECEIPT_NAME)
        for name in sorted(needed - self._present):
            self._report.add_problem(self.folder / name, "is missing")

    def join(self, parts: Iterator[FrameColumns], format_name: str, *, keeps_to_format: bool) -> Verification:
        """Journal against index, pixels against checksums, receipt against both."""
        facts, pixels = self._facts, ProvedPixels()
        frames, levels, payload_bytes = 0, 0, 0
        for columns in parts:
            levels = columns.levels
            payload_bytes += int(columns.length[columns.length > 0].sum())
            if self._records is not None:
                self._compare_frames(self._records, columns, pixels)
            frames += len(columns)
            if self._in_parts:
                self._report.on_progress("frames", frames, len(facts.numbers) if facts is not None else 0)
        if keeps_to_format:
            self._proved.insert(0, _structure_text(format_name, frames, levels, growing=self.growing))
        self._tell_frames(frames, pixels)
        missing = self._prove_receipt()
        whole = "only that it is complete JSON"
        if facts is None:
            self._not_proved.append(f"metadata: there are no checksums; {whole} and names the axes of the frame")
        self._not_proved.append(f"summary: no checksum of it is recorded; {whole}, the same in all stack files")
        if self.writing:
            self._not_proved.append(f"what came after the first {count_text(frames, 'frame')}: it is being written now")
        self._note_other_files()
        return Verification(
            path=str(self.folder),
            format=format_name,
            state=str(self._state.state) if self._state is not None else "",
            writing=self.writing,
            levels=levels,
            frames=frames,
            skipped=facts.skipped if facts is not None else 0,
            payload_bytes=payload_bytes,
            hashed_frames=pixels.frames,
            hashed_bytes=pixels.payload_bytes,
            own_checksums=pixels.own_checksums,
            root_sha256=facts.root_sha256 if facts is not None else "",
            missing_count=missing.count,
            missing=missing.ranges,
            proved=self._proved,
            not_proved=self._not_proved,
            notes=self._report.notes,
            note_count=self._report.note_count,
            problem_count=self._report.problem_count,
            problems=self._report.problems,
        )

    def _compare_frames(
        self, records: JournalContent | JournalWalk, columns: FrameColumns, pixels: ProvedPixels
    ) -> None:
        """The next frames of the index, all that there are unless they come in parts."""
        journal = records if isinstance(records, JournalContent) else records.take(len(columns))
        before = self._report.problem_count
        compare_with_index(journal, columns, self._report, growing=self.growing)
        self._index_agrees &= self._report.problem_count == before
        PixelCheck(journal, self._report, pixels, len(columns) if self.growing else None).run(columns)

    def _tell_frames(self, frames: int, pixels: ProvedPixels) -> None:
        facts = self._facts
        if facts is None:
            why = "there is no journal" if JOURNAL_NAME not in self._present else "the journal cannot be read"
            self._not_proved.append(f"pixels: {why}, so there are no checksums; only that all their bytes exist")
            return
        if self._journal_is_good and self._index_agrees:
            records = count_text(facts.records, "record", "are")
            text = f"journal: all {records} intact, and the index agrees for every frame"
            self._proved += [text, _metadata_text(facts)]
        stored = len(facts.numbers)
        self._proved.append(_pixels_text(pixels, min(stored, frames) if self.growing else stored))

    def _prove_receipt(self) -> MissingNumbers:
        receipt, journal = self._receipt, self._facts
        if receipt is None:
            self._not_proved.append("number of frames sent: no readable receipt")
            return journal.missing if journal is not None else MissingNumbers()
        before = self._report.problem_count
        missing = ReceiptCheck(self.folder / RECEIPT_NAME, receipt, self._report).run(journal, self._state)
        if journal is not None and self._report.problem_count == before:
            self._proved.append("receipt: counts, bytes and missing frame numbers are those of the journal")
            if receipt.root_sha256:
                self._proved.append(f"root: the receipt holds the SHA-256 of all records, {receipt.root_sha256}")
        if journal is not None and not receipt.root_sha256:
            self._not_proved.append("root: the receipt has no root hash, so nothing proves the journal as a whole")
        if receipt.sent is None:
            self._not_proved.append("number of frames sent: the producer did not report it")
        return missing

    def _note_other_files(self) -> None:
        """Note links and files that are not part of the dataset."""
        with contextlib.suppress(StorageError):  # the caller, who asks for the mirrors' results, reports it
            self._report.own_files.update(record_path(self.folder, key) for key in read_records(self.folder))
        seen = 0
        for root, names in walk(str(self.folder)):
            for name in sorted(names):
                seen += 1
                path = Path(root, name)
                place = path.relative_to(self.folder)
                if path.is_symlink():
                    self._report.add_note(f"{place}: is a link to {os.readlink(path)!r:.300}")
                if path not in self._report.own_files and not (self.writing and path.suffix in _TEMPORARY):
                    self._report.add_note(f"{place}: {_LEFTOVERS.get(path.suffix, 'is not part of the dataset')}")
            if seen > _MAX_LISTED:
                self._report.add_note(f"more than {_MAX_LISTED} files: not all were looked at")
                break


def _structure_text(name: str, frames: int, count: int, *, growing: bool) -> str:
    levels = f" in {count} levels" if count > 1 else ""
    end = "" if growing else ", nothing is cut or left over"
    return f"files: index, pages and metadata of {count_text(frames, 'frame')}{levels} agree and keep to {name}{end}"


def _metadata_text(facts: JournalFacts) -> str:
    frames, sent = facts.sound_frames, facts.metadata_sent
    return (
        f"metadata: those of {count_text(frames, 'frame')}, "
        f"{facts.timed:,} with a capture time, have the recorded XXH3-64; "
        f"{sent:,} of these checksums were taken in the producer, {frames - sent:,} only in the daemon"
    )


def _pixels_text(pixels: ProvedPixels, frames: int) -> str:
    producer = pixels.frames - pixels.own_checksums
    return (
        f"pixels: {pixels.frames:,} of {count_text(frames, 'frame')}, "
        f"{pixels.payload_bytes:,} bytes, have the recorded XXH3-64; "
        f"{producer:,} of these checksums were taken in the producer, {pixels.own_checksums:,} only in the daemon"
    )
