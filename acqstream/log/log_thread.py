"""The life of one acquisition, in the thread that writes: files opened, frames written and published, receipt.

It makes the parts of a log and connects them. The committing thread and the one for checksums end before it does.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull, StorageError
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log.checksums import ChecksumWorker
from acqstream.log.committer import CommitEvents, Committer
from acqstream.log.dataset_files import DatasetFiles, DisplayFile
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.group import Gap, Group
from acqstream.log.group_builder import Placing
from acqstream.log.intake import Intake
from acqstream.log.memory import Ring
from acqstream.log.receipt_facts import LogNotes, ReceiptCounts
from acqstream.log.recent_frames import Followers
from acqstream.log.stacks import Stacks
from acqstream.log.state_file import DatasetState, now_text, writer_versions
from acqstream.log.threads import SpaceGate, make_thread
from acqstream.log.writer import Writer
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.receipt import END_STATES, MissingFrames, Receipt, Status
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.directory_lock import HeldFolder
from acqstream.storage.files.disk import Disk, WatchedDisk


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """The end that was requested. sent is the producer's own count of frame numbers, None if it never sent one.

    abandoned was requested later: status and reason if frames have to be left out because the disk is full.
    """

    status: Status = "completed"
    reason: str = ""
    sent: int | None = None
    abandoned: tuple[Status, str] | None = None

    def resolve(self, error: AcqStreamError | None, no_space: DiskFull | None) -> tuple[Status, str]:
        """Status and reason of the receipt.

        error is the first one of the acquisition. no_space is the error for which received frames were left out.
        """
        if error is not None:
            return "failed", str(error)
        if no_space is None:
            return self.status, self.reason
        status, reason = self.status, self.reason
        if status == "completed":
            status, reason = self.abandoned or ("error", "")
        return status, f"{reason}; {no_space}" if reason else str(no_space)


class LogState:
    """Thread-safe; its methods are the only writers of its attributes.

    `changed` is notified, and on_change called without any lock, whenever a cursor or the state of the log moved.
    no_space is the error for which received frames were left out, after waiting for space was abandoned.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.phase = AcquisitionState.OPENING
        self.error: AcqStreamError | None = None
        self.no_space: DiskFull | None = None
        self.request = CloseRequest()
        self.receipt: Receipt | None = None
        self._is_ending = False
        self._on_change = on_change

    def notify(self) -> None:
        """Wake all threads that wait for a change."""
        with self.changed:
            self.changed.notify_all()
        self._on_change()

    def set_open(self) -> None:
        """The files exist: frames are written, unless the end was requested meanwhile."""
        with self.changed:
            self.phase = AcquisitionState.CLOSING if self._is_ending else AcquisitionState.RUNNING
        self.notify()

    def request_close(self, request: CloseRequest) -> bool:
        """Note the end that is requested first; False if the acquisition is ending already."""
        with self.changed:
            if self._is_ending:
                return False
            self._is_ending = True
            self.request = replace(request, abandoned=self.request.abandoned)
            if self.phase is AcquisitionState.RUNNING:
                self.phase = AcquisitionState.CLOSING
            return True

    def abandon(self, status: Status, reason: str) -> None:
        """Note the status in which a full disk ends the acquisition; the first one counts."""
        with self.changed:
            if self.request.abandoned is None:
                self.request = replace(self.request, abandoned=(status, reason))

    def fail(self, error: BaseException, *, published: int, is_abandoned: bool) -> None:
        """Keep the first error. is_abandoned: a full disk then leaves frames out, as was requested.

        published is the first frame number that is not stored.
        """
        with self.changed:
            self._is_ending = True
            if isinstance(error, DiskFull) and is_abandoned:
                self.no_space = self.no_space or error
            elif self.error is None:
                if not isinstance(error, AcqStreamError):
                    wrapped = AcquisitionFailed(f"unexpected {type(error).__name__}: {error}", number=published)
                    wrapped.__cause__ = error
                    error = wrapped
                self.error = error

    def finish(self, receipt: Receipt, phase: AcquisitionState) -> None:
        """All files are closed."""
        self.phase = phase
        self.receipt = receipt
        self.notify()


class Finalizer:
    """Finishes a dataset. Failures in parts that it can miss are warnings; all others fail the acquisition.

    note_forced is called when journal and index were forced: only then is all that was published durable.
    """

    def __init__(
        self,
        gate: SpaceGate,
        notes: LogNotes,
        fail: Callable[[BaseException], None],
        note_forced: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._notes = notes
        self._fail = fail
        self._note_forced = note_forced

    def finish_stacks(self, stacks: Stacks, header_alone: bytes) -> None:
        """Cut all stack files to their length; header_alone is of the one that a dataset without frames keeps.

        Readers take the summary from it. The frames are published: an uncut end loses nothing.
        """
        for stack in stacks.unfinished():
            self.attempt(partial(stacks.finish, stack))
        if header_alone:
            self.attempt(lambda: stacks.finish(stacks.begin(header_alone)))
        self.attempt(stacks.discard_prepared)

    def write(
        self, files: DatasetFiles | None, make_receipt: Callable[[], Receipt], gaps: tuple[MissingFrames, ...]
    ) -> Receipt:
        """Force journal and index, then write receipt and state. The receipt lists the failures."""
        if files is None:
            return make_receipt()
        try:
            return self._write(files, make_receipt, gaps)
        finally:
            self._warn_of(files.close)

    def _write(
        self, files: DatasetFiles, make_receipt: Callable[[], Receipt], gaps: tuple[MissingFrames, ...]
    ) -> Receipt:
        if self._guard(files.force):
            self._note_forced()
        self._guard(files.check)
        receipt = make_receipt()
        if not self._guard(lambda: self._twice(lambda: files.write_end(receipt, END_STATES[receipt.status], gaps))):
            receipt = make_receipt()
            self.attempt(lambda: files.write_end(receipt, END_STATES[receipt.status], gaps))
        return receipt

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it, twice if need be; trouble is a warning."""
        self._warn_of(lambda: self._twice(action))

    def _warn_of(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, AcqStreamError) as error:
            self._notes.warn("io_error", str(error))

    def _guard(self, action: Callable[[], None]) -> bool:
        """Do what the promise rests on; False, and a failed acquisition, if it could not be done."""
        try:
            action()
        except (OSError, AcqStreamError) as error:
            self._fail(error)
            return False
        return True

    def _twice(self, action: Callable[[], None]) -> None:
        """Do it, once more if it fails; on a full disk as soon as there is space, see `SpaceGate.run`."""
        try:
            self._gate.run(action)
        except DiskFull:
            raise
        except StorageError as error:
            self._notes.warn("io_error", f"{error}; trying once more")
            action()


class LogThread:
    """One acquisition while it is written. Arguments: see `Log`. The threads start with `start`.

    `Log` uses the parts that are public here; each part is the only writer of its own state.
    """

    def __init__(
        self,
        folder: str,
        spec: AcquisitionSpec,
        *,
        memory: memoryview,
        disk: Disk,
        on_change: Callable[[], None],
        stack_limit_bytes: int,
        dataset: DatasetState,
        free_reserve: Callable[[], None],
        followers: Followers,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._dataset = dataset
        self._followers = followers
        self.state = LogState(on_change)
        self.counts = ReceiptCounts()
        self.notes = LogNotes(self.state.notify)
        self.disk = WatchedDisk(disk, self.notes.stall, self.notes.unforced, HeldFolder(folder))
        self.gate = SpaceGate(self._note_space, free_reserve)
        self._checksums = ChecksumWorker(spec.name, self._fail)
        tiles = dataset.tiles
        placing = Placing(
            spec.name,
            spec.summary,
            overlap=tiles.overlap if tiles is not None else None,
            axis_order=tuple(axis.name for axis in spec.axes),
            stack_limit_bytes=stack_limit_bytes,
        )
        table = followers.table
        self._keys = None if spec.replace_duplicates else FrameKeys()
        self.intake = Intake(
            placing,
            Ring(memory, table.claim if table is not None else None),
            keys=self._keys,
            on_closed=self._checksums.submit,
            table=table,
        )
        self.stacks = Stacks(
            self.disk, dataset.stack_folder(folder), lambda: placing.layout, limit_bytes=stack_limit_bytes
        )
        self._finalizer = Finalizer(self.gate, self.notes, self._fail, self._note_durable)
        self._display = DisplayFile(self.disk, folder, self._finalizer.attempt)
        self._committer: Committer | None = None
        self._writer: Writer | None = None
        if tiles is not None and tiles.is_one_way:
            overlap = "{} x {}".format(*tiles.overlap)
            text = f"tiles overlap by {overlap} pixels: where only one of the two is 0, ndstorage stitches them wrongly"
            self.notes.warn("overlap_one_way", text)
        self.thread = make_thread("write", spec.name, self._run)

    @property
    def index_path(self) -> str:
        return os.path.join(self._dataset.stack_folder(self.disk.folder.place), INDEX_NAME)

    def set_display(self, settings: Mapping[str, Any]) -> None:
        """Write the display settings soon, in the committing thread."""
        self._display.set(settings)
        if self._committer is not None:
            self._committer.run_later(self._display.write)

    # The writing thread.

    def _run(self) -> None:
        files: DatasetFiles | None = None
        try:
            files, old_records = self._open_files()
            with contextlib.suppress(DiskFull):  # the first frame waits for space
                self.stacks.prepare()
            self._write(files, old_records)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: it reaches the producer
            self._fail(error)
        self.gate.passed()  # this thread does not wait any longer
        self._checksums.stop()
        if self._committer is not None:
            self._committer.stop()
        self.intake.release_outside()
        try:
            receipt = self._close(files)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: every run ends with a receipt
            self._fail(error)
            receipt = self._make_receipt()
        self.disk.folder.close()
        self.state.finish(receipt, END_STATES[receipt.status])

    def _open_files(self) -> tuple[DatasetFiles, bytes]:
        """The files of the dataset, and the journal records of an earlier run."""
        if self._dataset.state is not AcquisitionState.INTERRUPTED:
            files = DatasetFiles.create(self.disk, self._folder, self._dataset)
            self.disk.folder.hold()
            return files, b""
        self.disk.folder.hold()
        layout = self.intake.placing.layout
        files, continuation = DatasetFiles.open(self.disk, self._folder, self._dataset, layout, self._keys)
        self.counts.resume(continuation.counts)
        self.intake.resume(continuation)
        self.stacks.resume_at(continuation.next_stack)
        return files, continuation.records

    def _write(self, files: DatasetFiles, old_records: bytes) -> None:
        """Write and publish until the end is requested and all that was received is published."""
        placing, table = self.intake.placing, self._followers.table
        committer = self._committer = Committer(
            self._spec.name,
            files=(files.journal, files.index),
            stacks=self.stacks,
            layout=lambda: placing.layout,
            durability=self._spec.durability,
            stack_limit_bytes=placing.stack_limit_bytes,
            gate=self.gate,
            events=CommitEvents(
                begin=self._note_place,
                published=self._note_published,
                durable=self._note_durable,
                idle=self.intake.wake,
                warning=self.notes.warn,
                error=self._fail,
            ),
        )
        committer.resume(self.counts.published, old_records)
        committer.run_later(self._display.write)  # settings that came before the files
        self._writer = Writer(
            self.intake,
            self.stacks,
            committer,
            self.gate,
            batch_bytes=self.intake.ring.size_bytes // 2,
            on_warning=self.notes.warn,
            check_late=self._checksums.submit,
            table=table,
        )
        self._followers.begin(Path(self._folder))
        self.state.set_open()
        self._writer.run()

    # Events, from any thread.

    def _fail(self, error: BaseException) -> None:
        """Keep the first error and stop the writer; nothing after it is published."""
        if isinstance(error, StorageError) and error.number is None:
            error.number = self.counts.forced.published
        self.state.fail(error, published=self.counts.published, is_abandoned=self.gate.is_abandoned)
        if self._writer is not None:
            self._writer.stopped.set()
        self.gate.abandon()
        self.intake.begin_close()
        self.state.notify()

    def _note_place(self) -> None:
        if self.disk.folder.was_moved():
            text = f"{self._folder} was renamed or moved; the run goes on in {self.disk.folder.place}"
            self.notes.warn("folder_moved", text)

    def _note_space(self) -> None:
        """The disk has become full, or has space again: the window follows."""
        why, was_held = self.intake.hold(lambda: self.gate.reason)
        if why and not was_held:
            self.notes.warn("disk_full", f"{why}; waiting for space")
        elif was_held and not why:
            self.notes.warn("disk_space", "the disk has space again; resuming")
        self.state.notify()

    def _note_published(self, entries: Sequence[Group | Gap], next_number: int) -> None:
        for group in entries:
            if isinstance(group, Group):
                self._note_refused(group)
        self.intake.release(entries, next_number)
        self.counts.add(entries)
        self.state.notify()

    def _note_refused(self, group: Group) -> None:
        for position, refused in group.refused.items():
            if self._keys is not None:
                with self.intake.condition:  # before it is told: the producer may send them again at once
                    self._keys.discard(group.frame(refused.number).axes)
            group.refused[position] = self.notes.refuse(refused)

    def _note_durable(self) -> None:
        # The same thread publishes, and it forces all that it has published.
        self.counts.note_forced()
        self.state.notify()

    # The end.

    def _close(self, files: DatasetFiles | None) -> Receipt:
        self._finalizer.attempt(self._note_place)  # the receipt names it
        header = self.intake.placing.header_without_frames() if files is not None else b""
        self._finalizer.finish_stacks(self.stacks, header)
        return self._finalizer.write(files, self._make_receipt, tuple(self.counts.gaps))

    def _make_receipt(self) -> Receipt:
        counts, forced, sent = self.counts, self.counts.forced, self.state.request.sent
        root = ""
        if self._committer is not None:
            is_forced = forced.published == counts.published
            root = self._committer.records_hash.hexdigest() if is_forced else self._committer.forced_root
        status, reason = self.state.request.resolve(self.state.error, self.state.no_space)
        settings = {
            **self._dataset.settings,
            "durability": self._spec.durability,
            "io": self.stacks.io,
            "memory_bytes": self.intake.ring.size_bytes,
            "names_forced": not self.disk.has_unforced_names,
            "stack_limit_bytes": self.intake.placing.stack_limit_bytes,
        }
        return Receipt(
            dataset_id=self._spec.dataset_id,
            path=os.path.abspath(self.disk.folder.place),
            status=status,
            reason=reason,
            sent=sent,
            stored=forced.stored,
            skipped=forced.skipped,
            refused=forced.refused,
            missing=counts.missing(max(self.intake.received, sent or 0), reason),
            payload_bytes=forced.payload_bytes,
            without_checksum=forced.without_checksum,
            started_at=self._dataset.started_at,
            finished_at=now_text(),
            root_sha256=root,
            stalls=tuple(self.notes.stalls),
            settings=settings,
            versions=writer_versions(),
            mirrors=self._followers.texts(counts.stored),
        )
