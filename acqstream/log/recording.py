"""The log's own threads: from the dataset's first files to its receipt.

Besides the caller's, who reserves and commits: one that writes, one that publishes, one for checksums. The first error
of any of them ends the acquisition; what was published stays.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull
from acqstream.formats.ndtiff import layout as ndtiff
from acqstream.log.checksums import ChecksumWorker
from acqstream.log.close_outcome import Ending
from acqstream.log.committer import CommitEvents, Committer
from acqstream.log.continuation import Continuation
from acqstream.log.dataset_files import DatasetFiles
from acqstream.log.display_file import DisplayFile
from acqstream.log.finalize import Closing
from acqstream.log.frame_keys import KeySet
from acqstream.log.group import Gap, Group
from acqstream.log.intake import Intake
from acqstream.log.log_views import LogViews
from acqstream.log.notes import Notes
from acqstream.log.receipt_counts import Tally
from acqstream.log.ring import Ring
from acqstream.log.space_gate import SpaceGate
from acqstream.log.stacks import Stacks
from acqstream.log.state_file import END_STATES, DatasetState, now_text
from acqstream.log.versions import writer_versions
from acqstream.log.writer import Writer
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.storage.disk import Disk
from acqstream.storage.watched_disk import WatchedDisk


class Recording:
    """One acquisition while it is written. Its attributes are read by `Log`; they are written by these threads only.

    Arguments: see `Log`. The threads start with `start`.
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
        state: DatasetState,
        free_reserve: Callable[[], None],
        views: LogViews,
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.error: AcqStreamError | None = None
        self.no_space: DiskFull | None = None  # why received frames were left out, waiting having been given up
        self.receipt: Receipt | None = None
        self.phase = AcquisitionState.OPENING
        self.changed = threading.Condition()
        self.published = 0
        self.durable = 0
        self.tally = Tally()
        self.ending = Ending()
        self.summary: dict[str, Any] = dict(spec.summary)
        self.notes = Notes(self.notify)
        self.disk = WatchedDisk(disk, self.notes.stall)
        self.gate = SpaceGate(self.note_space, free_reserve)
        self.held_why = ""
        self._on_change = on_change
        self._stack_limit_bytes = stack_limit_bytes
        self._state = state
        self._tiles = state.tiles
        self._views = views
        self.ring = Ring(memory, views.table.claim if views.table is not None else None)
        self._keys = None if spec.replace_duplicates else KeySet()
        self._checksums = ChecksumWorker(spec.name, self.fail)
        self.intake = Intake(
            self.layout(), self.ring, keys=self._keys, on_closed=self._checksums.submit, table=views.table
        )
        self.intake.axis_order = tuple(axis.name for axis in spec.axes)
        self.stacks = Stacks(
            self.disk, state.stack_folder(folder), lambda: self.intake.layout, limit_bytes=stack_limit_bytes
        )
        self.committer: Committer | None = None
        self._closing = Closing(self.gate, self.notes, self.fail)
        self.display = DisplayFile(self.disk, folder, self._closing.attempt)
        self._writer: Writer | None = None
        self._first_io = ""  # of the first stack file, before it is begun
        if self._tiles is not None and self._tiles.is_one_way:
            overlap = "{} x {}".format(*self._tiles.overlap)
            text = f"tiles overlap by {overlap} pixels: where only one of the two is 0, ndstorage stitches them wrongly"
            self.notes.warn("overlap_one_way", text)
        self.thread = threading.Thread(target=self._run, name=f"write-{spec.name}", daemon=True)

    @property
    def io(self) -> str:
        """ "direct" or "buffered"; "" while the acquisition is opening."""
        stack = self._writer.stack if self._writer is not None else None
        return stack.file.io if stack is not None else self._first_io

    @property
    def index_path(self) -> str:
        return os.path.join(self._state.stack_folder(self.folder), ndtiff.INDEX_NAME)

    @property
    def paused_why(self) -> str:
        """Why no frames are taken for want of space; empty while they are."""
        error = self.gate.error
        return str(error) if error is not None else self.held_why

    def layout(self) -> ndtiff.NDTiffLayout:
        """The dataset's layout, with the summary as it is now."""
        overlap = self._tiles.overlap if self._tiles is not None else None
        return ndtiff.NDTiffLayout(
            self.spec.name, self.summary, overlap=overlap, stack_limit_bytes=self._stack_limit_bytes
        )

    def notify(self) -> None:
        """Wake whoever waits for a change."""
        with self.changed:
            self.changed.notify_all()
        self._on_change()

    def fail(self, error: BaseException) -> None:
        """Keep the first error and stop the writer; nothing after it is published."""
        with self.changed:
            if isinstance(error, DiskFull) and self.gate.is_given_up:
                self.no_space = self.no_space or error  # the end that was asked for, with fewer frames
            elif self.error is None:
                if not isinstance(error, AcqStreamError):
                    text = f"unexpected {type(error).__name__}: {error}"
                    wrapped = AcquisitionFailed(text, number=self.published)
                    wrapped.__cause__ = error
                    error = wrapped
                self.error = error
        if self._writer is not None:
            self._writer.stopped.set()
        self.gate.give_up()
        with self.intake.condition:
            self.intake.closing = True
            self.intake.condition.notify_all()
        self.notify()

    def note_space(self) -> None:
        """The disk has become full, or there is space again: the window follows."""
        with self.intake.condition:
            why = self.paused_why
            was_held, self.intake.is_held = self.intake.is_held, bool(why)
            self.intake.condition.notify_all()  # gaps waited
        if why and not was_held:
            self.notes.warn("disk_full", f"{why}; waiting for space")
        elif was_held and not why:
            self.notes.warn("disk_space", "there is space again; going on")
        self.notify()

    def _run(self) -> None:
        files: DatasetFiles | None = None
        stacks = self.stacks
        try:
            files, continuation = self._open_files()
            if continuation is not None:
                stacks.go_on_at(continuation.next_stack)
            with contextlib.suppress(DiskFull):  # the first frame waits for space
                stacks.prepare()
            self._first_io = stacks.prepared_io
            committer = self.committer = self._make_committer(files)
            committer.go_on_at(self.published, continuation.records if continuation is not None else b"")
            committer.run_later(self.display.write)  # settings that came before the files
            self._writer = Writer(
                self.intake,
                stacks,
                committer,
                self.gate,
                batch_bytes=self.ring.size_bytes // 2,
                on_warning=self.notes.warn,
                check_late=self._checksums.submit,
                table=self._views.table,
            )
            self._views.begin(Path(self.folder))
            self._set_phase(AcquisitionState.RUNNING)
            self._writer.run()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: it reaches the producer
            self.fail(error)
        self.gate.passed()  # this thread waits no longer
        self._checksums.stop()
        if self.committer is not None:
            self.committer.stop()
        self.intake.release_outside()
        try:
            receipt = self._close(files)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: whatever it is, there must be a receipt
            self.fail(error)
            receipt = self._make_receipt()
        self.phase = END_STATES[receipt.status]
        self.receipt = receipt
        self.notify()

    def _open_files(self) -> tuple[DatasetFiles, Continuation | None]:
        if self._state.state is not AcquisitionState.INTERRUPTED:
            return DatasetFiles.create(self.disk, self.folder, self._state), None
        files, continuation = DatasetFiles.open(self.disk, self.folder, self._state, self.layout(), self._keys)
        if continuation.summary:
            self.summary = continuation.summary
            self.intake.layout = self.layout()
        self.tally = continuation.tally
        self.published = self.durable = continuation.next_number
        self.intake.go_on_from(continuation)
        return files, continuation

    def _make_committer(self, files: DatasetFiles) -> Committer:
        return Committer(
            self.spec.name,
            files=(files.journal, files.index),
            stacks=self.stacks,
            layout=lambda: self.intake.layout,
            durability=self.spec.durability,
            stack_limit_bytes=self._stack_limit_bytes,
            gate=self.gate,
            events=CommitEvents(
                published=self._note_published,
                durable=self._note_durable,
                idle=self._wake_writer,
                warning=self.notes.warn,
                error=self.fail,
            ),
        )

    def _note_published(self, entries: Sequence[Group | Gap], next_number: int) -> None:
        self.tally.add(entries)
        self.intake.release(entries, next_number)
        self.published = next_number
        self.notify()

    def _note_durable(self, next_number: int) -> None:
        self.durable = next_number
        self.notify()

    def _close(self, files: DatasetFiles | None) -> Receipt:
        is_without_frames = files is not None and self.intake.stack_header == b""
        header = self.intake.layout.stack_header(self.intake.axis_order) if is_without_frames else None
        self._closing.finish_stacks(self.stacks, header)
        return self._closing.write(files, self._make_receipt, tuple(self.tally.gaps))

    def _make_receipt(self) -> Receipt:
        tally, ending = self.tally, self.ending
        status, reason = ending.resolve(self.error, self.no_space)
        end = max(self.intake.received, ending.sent or 0)
        settings = {
            **self._state.settings,
            "durability": self.spec.durability,
            "io": self.io,
            "memory_bytes": self.ring.size_bytes,
            "stack_limit_bytes": self._stack_limit_bytes,
        }
        return Receipt(
            dataset_id=self.spec.dataset_id,
            path=os.path.abspath(self.folder),
            status=status,
            reason=reason,
            sent=ending.sent,
            stored=tally.stored,
            skipped=tally.skipped,
            missing=tally.missing(self.published, end, reason),
            payload_bytes=tally.payload_bytes,
            without_checksum=tally.without_checksum,
            started_at=self._state.started_at,
            finished_at=now_text(),
            root_sha256=self.committer.records_hash.hexdigest() if self.committer is not None else "",
            stalls=tuple(self.notes.stalls),
            settings=settings,
            versions=writer_versions(),
            mirrors=self._views.texts(tally.stored),
        )

    def _set_phase(self, phase: AcquisitionState) -> None:
        with self.intake.condition:
            self.phase = AcquisitionState.CLOSING if self.intake.closing else phase
        self.notify()

    def _wake_writer(self) -> None:
        with self.intake.condition:
            self.intake.condition.notify_all()
