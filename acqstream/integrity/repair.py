"""Repair: a whole dataset gets a new index, made from its stack files, its journal and what is good of the old index.

A dataset of ours whose writer died is recovered (recover.py); of all others only the index is written anew, and of
ours stack files that lack their end are finished. Order: stacks, backup of the old index, new index, state. Each file
is replaced whole, so that a crash leaves the old index or the new one; the next repair does the rest.

"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from acqstream.errors import CorruptDataset, DatasetLocked, StorageError, UnknownFormat
from acqstream.formats.ndtiff.completion import levels_folder
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION, is_level, level_of, stack_paths
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.integrity.changes import Change, Replace, apply_changes, finish_stack
from acqstream.integrity.index_frames import RepairReport
from acqstream.integrity.index_rebuild import Rebuilt, rebuild_index
from acqstream.integrity.record_check import read_receipt
from acqstream.integrity.recover import MAX_DAMAGED_RECORDS, RecoveryReport, recover
from acqstream.log import journal
from acqstream.log.journal_file import JournalContent, read_journal
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state, write_state
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.atomic_file import has_content
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import Disk, DryDisk, LocalDisk

BACKUP_NAME = f"{INDEX_NAME}.before-repair"
QUIET_S = 10.0
"""A dataset of another program counts as being written while its files are younger than this."""


def repair(path: Path, *, dry_run: bool = False, force: bool = False, disk: Disk | None = None) -> RepairReport:
    """Repair the dataset at `path` (container, level folder, or a file in one).

    dry_run does everything but write. force takes a dataset of another program even if its files changed just now.
    Raises DatasetLocked if it is being written, UnknownFormat, UnsupportedFeature for versions 0 and 1, StorageError.
    """
    return _Repair(path, disk=DryDisk() if dry_run else disk or LocalDisk(), dry_run=dry_run, force=force).run()


class _Repair:
    """One repair, step by step."""

    def __init__(self, path: Path, *, disk: Disk, dry_run: bool, force: bool) -> None:
        self._disk = disk
        self._force = force
        self._container, self._levels = _find_levels(path)
        self.report = RepairReport(str(self._container), dry_run)
        self._journal_path = self._container / journal.JOURNAL_NAME
        self._state = self._read_state()

    def run(self) -> RepairReport:
        is_writing = self._state is not None and self._state.state.writing
        cut = self._recover() if is_writing and self._journal_path.exists() else None
        with contextlib.ExitStack() as held:
            surviving = self._lock_journal(held)
            self._lock_levels(held)
            signatures = self._signatures()
            if surviving is None and not self._force:
                _require_quiet(signatures)
            rebuilds = [self._rebuild(level, surviving) for level in self._levels]
            if self._signatures() != signatures and not self._force:
                raise DatasetLocked(f"{self._container} changed while it was looked at: some program writes to it")
            changes = [change for rebuilt in rebuilds for change in self._changes(rebuilt, surviving)]
            apply_changes(changes, self._disk)
        if cut is not None:
            self._add_recovery(*cut)
        elif is_writing:
            self._end_writing()
        return self.report

    def _read_state(self) -> DatasetState | None:
        """State file of our writer; None in a dataset of another writer, or if it cannot be read."""
        try:
            return read_state(str(self._container))
        except FileNotFoundError:
            if self._journal_path.exists():
                self.report.notes.append(f"{STATE_NAME} is missing")
        except CorruptDataset as error:
            self.report.notes.append(f"{STATE_NAME} cannot be read: {error}")
        return None

    def _recover(self) -> tuple[RecoveryReport, JournalContent] | None:
        """Recover a dataset of ours that was being written; with its journal as it was before.

        None if index or journal are too damaged for that. Raises DatasetLocked if it is being written.
        """
        before = self._read_journal()
        try:
            done = recover(self._container, self._disk)
        except CorruptDataset as error:
            self.report.notes.append(f"cannot be recovered as after a crash: {error}")
            return None
        if done is None:
            raise DatasetLocked(f"{self._container} is being written by another process")
        return done, before

    def _add_recovery(self, done: RecoveryReport, before: JournalContent) -> None:
        """Report the actions of recovery with the problems after it. A dry run finds everything as it was before."""
        self.report.state_changed = True
        self.report.notes.append("its writer died: recovered, it can be resumed")
        level = self.report.levels[0]
        level.notes += [f"{name} had no published frame: put aside" for name in done.put_aside]
        if done.records_added:
            text = f"{count_text(done.records_added, 'frame')} had no journal record: their checksums were computed"
            level.notes.append(text)
        if self.report.dry_run:
            return
        level.kept -= done.rolled_forward
        level.recovered += done.rolled_forward
        level.changed |= done.rolled_forward > 0
        level.finished_stacks = [*done.finished_stacks, *level.finished_stacks]
        frames = before.sound_frames
        for record in frames[(frames["number"] >= done.published) | np.isin(frames["number"], done.lost)]:
            level.lost.add(f"stack file {record['stack']}", int(record["offset"]), "the frame is incomplete")

    def _read_journal(self) -> JournalContent:
        return read_journal(self._journal_path, max_damaged=MAX_DAMAGED_RECORDS)

    def _lock_journal(self, held: contextlib.ExitStack) -> JournalContent | None:
        """The journal, held against writers; None in a dataset without."""
        if not self._journal_path.exists():
            if self._state is not None:
                text = "the journal is lost, and with it the checksums of all frames; no new one is made"
                self.report.notes.append(text)
            return None
        file = AppendFile(self._disk, str(self._journal_path), create=False)
        held.callback(file.close)
        file.lock()
        surviving = self._read_journal()
        if surviving.problem:
            self.report.notes.append(f"{journal.JOURNAL_NAME}: {surviving.problem}; it is left as it is")
        return surviving

    def _lock_levels(self, held: contextlib.ExitStack) -> None:
        """Lock out the view that makes the lower levels. Raises DatasetLocked while it runs."""
        folder = levels_folder(self._container)
        if any(map(level_of, self._levels)) and folder.is_dir():
            held.enter_context(DirectoryLock(str(folder)))

    def _signatures(self) -> dict[Path, tuple[int, int]]:
        """Size and time of change of every index and stack file."""
        found = {}
        for level in self._levels:
            for path in (level / INDEX_NAME, *stack_paths(level)):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found[path] = (status.st_size, status.st_mtime_ns)
        return found

    def _rebuild(self, folder: Path, surviving: JournalContent | None) -> Rebuilt:
        known = None if level_of(folder) else surviving  # it tells of the full resolution, in files of the same names
        stem = NDTiffLayout(self._state.name, {}).stack_name(0).removesuffix(".tif") if self._state is not None else ""
        rebuild = partial(
            rebuild_index, folder, level=level_of(folder), journal=known, stored=self._count_stored(), stem=stem
        )
        rebuilt = rebuild()
        if known is not None and rebuilt.report.changed:  # only then is all read
            rebuilt = rebuild(check_pixels=True)
        if not rebuilt.stacks:
            raise CorruptDataset("there is no stack file to rebuild the index from", path=str(folder))
        self.report.levels.append(rebuilt.report)
        return rebuilt

    def _count_stored(self) -> int:
        """Frames by the receipt; 0 without one."""
        with contextlib.suppress(CorruptDataset, StorageError, FileNotFoundError):
            return read_receipt(self._container / RECEIPT_NAME).stored
        return 0

    def _changes(self, rebuilt: Rebuilt, surviving: JournalContent | None) -> Iterator[Change]:
        report = rebuilt.report
        if surviving is not None or self._state is not None:
            yield from self._finish_stacks(rebuilt, surviving)
        if not report.changed:
            return
        if rebuilt.old is not None:
            backup = _backup_path(report.folder, rebuilt.old)
            report.backup = os.path.basename(backup)
            yield Replace(backup, rebuilt.old)
        yield Replace(os.path.join(report.folder, INDEX_NAME), rebuilt.new)

    def _finish_stacks(self, rebuilt: Rebuilt, surviving: JournalContent | None) -> Iterator[Change]:
        """End the page chain of our stack files, and cut them, where they have all their frames and nothing else."""
        for name, stack in rebuilt.stacks.items():
            last = stack.last
            if last is None or stack.has_losses:
                continue
            is_known = surviving is not None and not surviving.problem
            if not is_known and stack.data_end > last.end:
                continue
            if change := finish_stack(os.path.join(rebuilt.report.folder, name), last.page, last.end):
                rebuilt.report.finished_stacks.append(name)
                yield change

    def _end_writing(self) -> None:
        """The state of a dataset of ours that could not be recovered at first: its index is in order now."""
        assert self._state is not None
        self.report.state_changed = True
        try:
            if self._journal_path.exists() and recover(self._container, self._disk) is not None:
                return
        except CorruptDataset as error:
            if self.report.dry_run:  # the index that it needs is missing
                return
            self.report.notes.append(f"cannot be resumed: {error}")
        reason = "the writer died and its journal was lost; the index was rebuilt"
        failed = dataclasses.replace(self._state, state=AcquisitionState.FAILED, reason=reason)
        write_state(self._disk, str(self._container), failed)


def _find_levels(path: Path) -> tuple[Path, list[Path]]:
    """The container and the folders that have, or should have, an index: the full resolution first."""
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise UnknownFormat(f"{path}: there is nothing")
    if is_level(folder):
        return folder.absolute().parent, [folder]
    if not (folder / FULL_RESOLUTION).is_dir():
        return folder, [folder]
    return folder, sorted((child for child in folder.iterdir() if is_level(child) and child.is_dir()), key=level_of)


def _require_quiet(signatures: dict[Path, tuple[int, int]]) -> None:
    for path, (_, changed_ns) in signatures.items():
        age_s = time.time() - changed_ns / 1e9
        if abs(age_s) < QUIET_S:
            raise DatasetLocked(
                f"{path} changed {abs(age_s):.0f} s ago: some program may be writing to it; repair it when that has "
                f"ended and {QUIET_S:.0f} s have passed, or at once with --force"
            )


def _backup_path(folder: str, old: bytes) -> str:
    """Path for the old index: a free name, or its present one."""
    number, path = 1, os.path.join(folder, BACKUP_NAME)
    while os.path.exists(path):
        if has_content(path, old):
            return path
        number += 1
        path = os.path.join(folder, f"{BACKUP_NAME}-{number}")
    return path
