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
from acqstream.formats.ndtiff.mirror_records import read_records, record_path
from acqstream.formats.registry import find_frame_format
from acqstream.integrity.facts.stacks import KEPT_SUFFIX
from acqstream.integrity.verification.journal_check import check_journal, compare_with_index
from acqstream.integrity.verification.pixel_check import PixelCheck, ProvedPixels
from acqstream.integrity.verification.receipt_check import (
    MissingNumbers,
    ReceiptCheck,
    missing_in,
    read_receipt,
)
from acqstream.log.journal import HOLE, JOURNAL_NAME
from acqstream.log.journal_file import JournalContent
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.folder_tree import walk
from acqstream.storage.lock import is_locked
from acqstream.storage.stack_file import PRIVATE_SUFFIX

OnProgress = Callable[[str, int, int], None]
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
    report = CheckReport() if on_progress is None else CheckReport(on_progress)
    check = _Check(frame_format.folder(path), report)
    check.read_side_files()
    before = report.problem_count
    columns = frame_format.check(check.folder, report, check.growing)
    if report.problem_count == before:
        check.proved.append(_structure_text(frame_format.name, columns, growing=check.growing))
    return check.join(columns, frame_format.name)


class _Check:
    """The files of our writer in a dataset's folder."""

    def __init__(self, folder: Path, report: CheckReport) -> None:
        self.folder = folder
        self._report = report
        self.writing = False  # a living writer holds it
        self.growing = False  # its end may be unfinished: being written, or its writer died
        self.proved: list[str] = []
        self._not_proved: list[str] = []
        self._state: DatasetState | None = None
        self._receipt: Receipt | None = None
        self._journal: JournalContent | None = None
        self._journal_is_good = False
        self._present = {name for name in _OUR_FILES if os.path.lexists(folder / name)}
        report.own_files.update(folder / name for name in _OUR_FILES)

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
                self._journal = check_journal(path, self._report, writing=self.growing)
        if self._journal is not None:
            self._report.frame_numbers = self._journal.numbers[self._journal.is_frame].astype(np.uint64)
            refused = self._journal.records[self._journal.sound & (self._journal.records["flags"] == HOLE)]
            self._report.refused_places.update(zip(refused["stack"].tolist(), refused["offset"].tolist(), strict=True))
            if self._state is not None and self._state.dataset_id != self._journal.dataset_id:
                text = f"is of dataset {self._journal.dataset_id!r:.80}, the state of {self._state.dataset_id!r:.80}"
                self._report.add_problem(self._journal.path, text)
        self._journal_is_good = self._report.problem_count == before
        self._tell_absent()

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

    def join(self, columns: FrameColumns, format_name: str) -> Verification:
        """Journal against index, pixels against checksums, receipt against both."""
        journal, pixels = self._journal, ProvedPixels()
        if journal is not None:
            pixels = self._prove_frames(journal, columns)
        else:
            why = "there is no journal" if JOURNAL_NAME not in self._present else "the journal cannot be read"
            self._not_proved.append(f"pixels: {why}, so there are no checksums; only that all their bytes exist")
        missing = self._prove_receipt()
        whole = "only that it is complete JSON"
        if journal is None:
            self._not_proved.append(f"metadata: there are no checksums; {whole} and names the axes of the frame")
        self._not_proved.append(f"summary: no checksum of it is recorded; {whole}, the same in all stack files")
        if self.writing:
            self._not_proved.append(f"what came after the first {len(columns)} frames: it is being written now")
        self._note_other_files()
        return Verification(
            path=str(self.folder),
            format=format_name,
            state=str(self._state.state) if self._state is not None else "",
            writing=self.writing,
            levels=columns.levels,
            frames=len(columns),
            skipped=journal.skipped if journal is not None else 0,
            payload_bytes=int(columns.length[columns.length > 0].sum()),
            hashed_frames=pixels.frames,
            hashed_bytes=pixels.payload_bytes,
            own_checksums=pixels.own_checksums,
            root_sha256=journal.root_sha256 if journal is not None else "",
            missing_count=missing.count,
            missing=missing.ranges,
            proved=self.proved,
            not_proved=self._not_proved,
            notes=self._report.notes,
            note_count=self._report.note_count,
            problem_count=self._report.problem_count,
            problems=self._report.problems,
        )

    def _prove_frames(self, journal: JournalContent, columns: FrameColumns) -> ProvedPixels:
        before = self._report.problem_count
        compare_with_index(journal, columns, self._report, growing=self.growing)
        if self._journal_is_good and self._report.problem_count == before:
            text = f"journal: all {len(journal.records):,} records are intact, and agree with the index for every frame"
            self.proved += [text, _metadata_text(journal)]
        limit = len(columns) if self.growing else None
        pixels = PixelCheck(journal, self._report, limit).run(columns)
        frames = int(np.count_nonzero(journal.is_frame)) if limit is None else min(limit, len(columns))
        self.proved.append(_pixels_text(pixels, frames))
        return pixels

    def _prove_receipt(self) -> MissingNumbers:
        receipt, journal = self._receipt, self._journal
        if receipt is None:
            self._not_proved.append("number of frames sent: no readable receipt")
            return missing_in(journal) if journal is not None else MissingNumbers()
        before = self._report.problem_count
        missing = ReceiptCheck(self.folder / RECEIPT_NAME, receipt, self._report).run(journal, self._state)
        if journal is not None and self._report.problem_count == before:
            self.proved.append("receipt: counts, bytes and missing frame numbers are those of the journal")
            if receipt.root_sha256:
                self.proved.append(f"root: the receipt holds the SHA-256 of all records, {receipt.root_sha256}")
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


def _structure_text(name: str, columns: FrameColumns, *, growing: bool) -> str:
    levels = f" in {columns.levels} levels" if columns.levels > 1 else ""
    end = "" if growing else ", nothing is cut or left over"
    return f"files: index, pages and metadata of {len(columns):,} frames{levels} agree and keep to {name}{end}"


def _metadata_text(journal: JournalContent) -> str:
    records = journal.sound_frames
    sent, timed = (int(np.count_nonzero(records[name])) for name in ("metadata_sent", "timed"))
    return (
        f"metadata: those of {len(records):,} frames, {timed:,} with a capture time, have the recorded XXH3-64; "
        f"{sent:,} of these checksums were taken in the producer, {len(records) - sent:,} only in the daemon"
    )


def _pixels_text(pixels: ProvedPixels, frames: int) -> str:
    producer = pixels.frames - pixels.own_checksums
    return (
        f"pixels: {pixels.frames:,} of {frames:,} frames, {pixels.payload_bytes:,} bytes, have the recorded XXH3-64; "
        f"{producer:,} of these checksums were taken in the producer, {pixels.own_checksums:,} only in the daemon"
    )
