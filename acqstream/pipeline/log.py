"""The log: one acquisition's frames, appended to an NDTiff dataset in the order of their numbers.

Used by the daemon, or in-process without any daemon:

    with Log(folder, AcquisitionSpec(dataset_id=..., name="cells"), memory=PageMemory(2**28).view) as log:
        log.append(header, image)
    print(log.receipt)

Threads: the caller's (reserve, commit), one that writes, one that publishes, one for checksums. The first error of any
of them ends the acquisition; what was published stays.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from acqstream.errors import AcqStreamError, AcquisitionFailed, FrameRefused, WriterBehind
from acqstream.formats.ndtiff import layout as ndtiff
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.cursors import Cursors, Limit
from acqstream.model.frame_header import FrameHeader
from acqstream.model.receipt import Receipt, Status
from acqstream.model.state import AcquisitionState
from acqstream.pipeline.checksums import ChecksumWorker
from acqstream.pipeline.committer import Committer
from acqstream.pipeline.continuation import Continuation
from acqstream.pipeline.dataset_files import DatasetFiles
from acqstream.pipeline.group import Gap, Group
from acqstream.pipeline.intake import Intake, RunSlot, Slot
from acqstream.pipeline.key_set import KeySet
from acqstream.pipeline.ring import Ring
from acqstream.pipeline.stacks import Stacks
from acqstream.pipeline.state_file import END_STATES, DatasetState, now_text
from acqstream.pipeline.tally import Tally
from acqstream.pipeline.writer import Writer
from acqstream.storage.atomic import replace_file
from acqstream.storage.disk import Disk, LocalDisk


def _ignore() -> None:
    return


class Log:
    """One acquisition from its first frame to its receipt.

    folder must not exist, it is made by the writing thread (`wait_until_open`); with resume, the state of an
    interrupted dataset, it is that dataset's, and frames go on at its next number. memory is block-aligned and the
    log's until `is_finished`. on_change is called from the log's threads whenever a cursor or the state moved, and must
    only wake somebody. stack_limit_bytes is lowered in tests only.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        spec: AcquisitionSpec,
        *,
        memory: memoryview,
        disk: Disk | None = None,
        on_change: Callable[[], None] = _ignore,
        stack_limit_bytes: int = ndtiff.STACK_LIMIT_BYTES,
        settings: Mapping[str, Any] | None = None,
        resume: DatasetState | None = None,
    ) -> None:
        self.folder = os.fspath(folder)
        self.spec = spec
        self.error: AcqStreamError | None = None
        self.receipt: Receipt | None = None
        self.warnings: list[tuple[str, str, str]] = []  # code, text, time; bounded by the few things that warn
        self._disk = disk or LocalDisk()
        self._on_change = on_change
        self._stack_limit_bytes = stack_limit_bytes
        self._state = resume or DatasetState.of(spec, settings or {})
        self._phase = AcquisitionState.OPENING
        self._changed = threading.Condition()
        self._published = 0
        self._durable = 0
        self._tally = Tally()
        self._ending: tuple[Status, str, int | None] = ("completed", "", None)
        self._summary = dict(spec.summary)
        self._ring = Ring(memory)
        self._keys = None if spec.replace_duplicates else KeySet()
        self._checksums = ChecksumWorker(spec.name, self._fail)
        self._intake = Intake(self._layout(), self._ring, keys=self._keys, on_closed=self._checksums.submit)
        self._intake.axis_order = tuple(axis.name for axis in spec.axes)
        self._writer: Writer | None = None
        self._io = ""  # of the first stack file, before it is begun
        self._committer: Committer | None = None
        self._display: bytes | None = None
        self._thread = threading.Thread(target=self._run, name=f"write-{spec.name}", daemon=True)
        self._thread.start()

    # What a producer does.

    def reserve(self, header: FrameHeader) -> Slot:
        """The place where the next frame's pixels will lie in the file image. Never blocks inside `limit()`.

        Raises FrameRefused for this frame, or the acquisition's first error.
        """
        self._raise_error()
        return self._intake.reserve(header)

    def reserve_run(self, headers: Sequence[FrameHeader]) -> RunSlot | None:
        """One place for the pixels of several small frames, back to back; None if they must be reserved one by one."""
        self._raise_error()
        return self._intake.reserve_run(headers)

    def append(self, header: FrameHeader, pixels: Any, *, timeout_s: float = 10.0) -> None:
        """Copy one frame into the log, waiting for room if need be. pixels: C-contiguous buffer of the payload.

        Raises WriterBehind if there is no room within timeout_s.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._has_room(header):
                self._raise_error()
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise WriterBehind(f"frame {header.number}: the disk took nothing for {timeout_s} s")
        slot = self.reserve(header)
        slot.pixels[:] = memoryview(pixels).cast("B")
        slot.commit()

    def skip(self, number: int, count: int, reason: str) -> None:
        """Declare frame numbers that will never come."""
        self._raise_error()
        self._intake.skip(number, count, reason)

    def patch_summary(self, summary: Mapping[str, Any]) -> None:
        """Merge into the summary metadata. Raises AcquisitionFailed once frame 0 has come."""
        with self._intake.condition:
            if self._intake.stack_header:
                raise AcquisitionFailed("the summary is fixed: frame 0 has come", code="too_late")
            self._summary.update(summary)
            self._intake.layout = self._layout()

    def set_display(self, settings: Mapping[str, Any]) -> None:
        """Replace the display settings beside the stacks, soon; trouble with them is a warning."""
        self._raise_error()
        self._display = ndtiff.display_settings_bytes(settings)
        if self._committer is not None:
            self._committer.run_later(self._write_display)

    def _write_display(self) -> None:
        if self._display is not None:
            content, path = self._display, os.path.join(self.folder, ndtiff.DISPLAY_SETTINGS_NAME)
            self._attempt(lambda: replace_file(self._disk, path, content))

    def begin_close(self, status: Status = "completed", reason: str = "", *, sent: int | None = None) -> None:
        """No more frames: publish what was received, finish the files. `is_finished` tells when."""
        with self._intake.condition:
            if self._intake.closing:
                return
            self._ending = (status, reason, sent)
            self._intake.closing = True
            if self._phase is AcquisitionState.RUNNING:
                self._phase = AcquisitionState.CLOSING
            self._intake.condition.notify_all()

    def close(self, status: Status = "completed", reason: str = "", *, sent: int | None = None) -> Receipt:
        """`begin_close`, then wait for the receipt. Raises the acquisition's first error."""
        self.begin_close(status, reason, sent=sent)
        self._thread.join()
        self._raise_error()
        assert self.receipt is not None
        return self.receipt

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is None:
            self.close()
        else:
            self.begin_close("error", f"{type(value).__name__}: {value}")
            self._thread.join()

    # What anybody may ask.

    @property
    def state(self) -> AcquisitionState:
        return self._phase

    @property
    def is_finished(self) -> bool:
        """All files are closed and the receipt is there."""
        return self.receipt is not None

    @property
    def io(self) -> str:
        """ "direct" or "buffered"; "" while the acquisition is opening."""
        stack = self._writer.stack if self._writer is not None else None
        return stack.file.io if stack is not None else self._io

    @property
    def received(self) -> int:
        """The next frame number to come."""
        return self._intake.received

    @property
    def received_payload_bytes(self) -> int:
        return self._intake.received_payload_bytes

    @property
    def payload_bytes(self) -> int:
        """Pixel bytes published."""
        return self._tally.payload_bytes

    @property
    def skipped(self) -> int:
        """Frame numbers declared as never coming."""
        return self._tally.skipped

    @property
    def memory_peak_bytes(self) -> int:
        return self._ring.peak_bytes + self._ring.beside_peak_bytes

    def cursors(self) -> Cursors:
        return Cursors(self._intake.received, self._published, self._durable)

    def limit(self) -> Limit:
        """The window: which frames `reserve` will take without blocking."""
        return self._intake.limit()

    def queued(self) -> tuple[int, int]:
        """Frames and pixel bytes received but not published."""
        frames = self._intake.received - self._published
        return frames, self._intake.received_payload_bytes - self._tally.payload_bytes

    def wait_until_open(self, timeout_s: float = 30.0) -> None:
        """Until the dataset's files are there. Raises what kept them from being made."""
        with self._changed:
            self._changed.wait_for(lambda: self._phase is not AcquisitionState.OPENING, timeout_s)
        self._raise_error()

    def wait_for_published(self, count: int, timeout_s: float = 30.0) -> bool:
        """Until `count` frames are published; False if that did not happen in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._published >= count or self.is_finished, timeout_s)
            return self._published >= count

    # The log's own threads.

    def _run(self) -> None:
        files: DatasetFiles | None = None
        stacks = Stacks(self._disk, self.folder, lambda: self._intake.layout, limit_bytes=self._stack_limit_bytes)
        try:
            files, continuation = self._open_files()
            if continuation is not None:
                stacks.go_on_at(continuation.next_stack)
            stacks.prepare()
            self._io = stacks.prepared_io
            committer = self._committer = self._make_committer(files, stacks)
            committer.go_on_at(self._published)
            committer.run_later(self._write_display)  # settings that came before the files
            self._writer = Writer(
                self._intake,
                stacks,
                committer,
                batch_bytes=self._ring.size_bytes // 2,
                on_warning=self.note_warning,
            )
            self._set_phase(AcquisitionState.RUNNING)
            self._writer.run()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: it reaches the producer
            self._fail(error)
        self._checksums.stop()
        if self._committer is not None:
            self._committer.stop()
        self._finish(files, stacks)

    def _open_files(self) -> tuple[DatasetFiles, Continuation | None]:
        if self._state.state is not AcquisitionState.INTERRUPTED:
            return DatasetFiles.create(self._disk, self.folder, self._state), None
        files, continuation = DatasetFiles.open(self._disk, self.folder, self._state, self._layout(), self._keys)
        if continuation.summary:
            self._summary = continuation.summary
            self._intake.layout = self._layout()
        self._tally = continuation.tally
        self._published = self._durable = continuation.next_number
        self._intake.go_on_from(continuation)
        return files, continuation

    def _make_committer(self, files: DatasetFiles, stacks: Stacks) -> Committer:
        return Committer(
            self.spec.name,
            files=(files.journal, files.index),
            stacks=stacks,
            layout=lambda: self._intake.layout,
            durability=self.spec.durability,
            stack_limit_bytes=self._stack_limit_bytes,
            on_published=self._note_published,
            on_durable=self._note_durable,
            on_idle=self._wake_writer,
            on_error=self._fail,
        )

    def _note_published(self, entries: Sequence[Group | Gap], next_number: int) -> None:
        self._tally.add(entries)
        self._intake.release(entries, next_number)
        self._published = next_number
        self._notify()

    def _note_durable(self, next_number: int) -> None:
        self._durable = next_number
        self._notify()

    def _finish(self, files: DatasetFiles | None, stacks: Stacks) -> None:
        """Close everything; on a failing disk as much as it allows, each trouble a warning."""
        status, reason, sent = self._ending
        if self.error is not None:
            status = "error" if isinstance(self.error, FrameRefused) else "failed"
            reason = str(self.error)
        for stack in stacks.unfinished():
            self._attempt(partial(stacks.finish, stack))
        if files is not None and self._intake.stack_header == b"":
            self._attempt(lambda: self._write_empty_stack(stacks))
        self._attempt(stacks.discard_prepared)
        receipt = self._tally.receipt(
            self.spec.dataset_id,
            os.path.abspath(self.folder),
            ending=(status, reason, sent),
            published=self._published,
            received=self._intake.received,
            started_at=self._state.started_at,
        )
        state = END_STATES[status]
        if files is not None:
            self._attempt(lambda: files.close(receipt, state, tuple(self._tally.gaps)))
        self._phase = state
        self.receipt = receipt
        self._notify()

    def _write_empty_stack(self, stacks: Stacks) -> None:
        """A dataset without frames still keeps its summary: readers take it from the first stack's header."""
        stacks.finish(stacks.begin(self._intake.layout.stack_header(self._intake.axis_order)))

    def note_warning(self, code: str, text: str) -> None:
        """Note something that the operator should know; the daemon passes it on."""
        self.warnings.append((code, text, now_text()))
        self._notify()

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, AcqStreamError) as error:
            self.note_warning("io_error", str(error))

    def _fail(self, error: BaseException) -> None:
        """Keep the first error and stop the writer; nothing after it is published."""
        with self._changed:
            if self.error is None:
                if not isinstance(error, AcqStreamError):
                    text = f"unexpected {type(error).__name__}: {error}"
                    wrapped = AcquisitionFailed(text, number=self._published)
                    wrapped.__cause__ = error
                    error = wrapped
                self.error = error
        if self._writer is not None:
            self._writer.stopped.set()
        with self._intake.condition:
            self._intake.closing = True
            self._intake.condition.notify_all()
        self._notify()

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _set_phase(self, phase: AcquisitionState) -> None:
        with self._intake.condition:
            self._phase = AcquisitionState.CLOSING if self._intake.closing else phase
        self._notify()

    def _wake_writer(self) -> None:
        with self._intake.condition:
            self._intake.condition.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._on_change()

    def _has_room(self, header: FrameHeader) -> bool:
        limit = self._intake.limit()
        total = self._intake.received_payload_bytes + header.payload_bytes
        is_empty = self._published == self._intake.received
        return is_empty or (header.number < limit.number and total <= limit.payload_bytes)

    def _layout(self) -> ndtiff.NDTiffLayout:
        return ndtiff.NDTiffLayout(self.spec.name, self._summary, stack_limit_bytes=self._stack_limit_bytes)
