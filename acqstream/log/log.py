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
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from acqstream.errors import AcqStreamError, FrameRefused, WriterBehind
from acqstream.formats.ndtiff.layout import STACK_LIMIT_BYTES
from acqstream.log.continuation import KeyPage, read_key_page
from acqstream.log.dataset_files import NoteFile
from acqstream.log.intake import Slot
from acqstream.log.log_thread import CloseRequest, LogThread
from acqstream.log.receipt_facts import stall_text
from acqstream.log.recent_frames import NO_FOLLOWERS, Followers
from acqstream.log.state_file import DatasetState
from acqstream.log.threads import RETRY_S
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.frame_header import FrameHeader, FrameRun
from acqstream.model.receipt import Receipt, Status
from acqstream.model.run_note import RunNote
from acqstream.model.state import AcquisitionState, Cursors, Limit
from acqstream.storage.files.disk import Disk, LocalDisk


class Log:
    """One acquisition from its first frame to its receipt.

    The writing thread makes the folder, which must not exist (`wait_until_open`). With resume, the state of an
    interrupted dataset, the folder is that dataset's and frames continue at its next number. memory is block-aligned
    and the log's until `is_finished`. on_change is called from the log's threads whenever a cursor or the state moved,
    and must only wake a thread. free_reserve releases space kept for the end, see SpaceGate. stack_limit_bytes is
    lowered in tests only. Any thread may read counts (of published frames), stacks (how files are written) and notes.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        spec: AcquisitionSpec,
        *,
        memory: memoryview,
        disk: Disk | None = None,
        on_change: Callable[[], None] = lambda: None,
        stack_limit_bytes: int = STACK_LIMIT_BYTES,
        resume: DatasetState | None = None,
        free_reserve: Callable[[], None] = lambda: None,
        followers: Followers = NO_FOLLOWERS,
    ) -> None:
        self.folder = os.fspath(folder)
        self.spec = spec
        self._parts = LogThread(
            self.folder,
            spec,
            memory=memory,
            disk=disk or LocalDisk(),
            on_change=on_change,
            stack_limit_bytes=stack_limit_bytes,
            dataset=resume or DatasetState.of(spec),
            free_reserve=free_reserve,
            followers=followers,
        )
        self._note_file = NoteFile(self._parts.disk, self.folder)
        self.counts, self.stacks, self.notes = self._parts.counts, self._parts.stacks, self._parts.notes
        self._parts.thread.start()

    # The producer's side.

    def reserve(self, header: FrameHeader) -> Slot:
        """The next frame's place in the file image. Never blocks inside `limit()`. Raises FrameRefused, or `error`."""
        self._raise_error()
        return self._parts.intake.reserve(header)

    def reserve_run(self, frames: FrameRun) -> Slot | None:
        """One place for the pixels of small frames back to back, or of the first of them; None: reserve each alone."""
        self._raise_error()
        return self._parts.intake.reserve_run(frames)

    def adopt(self, header: FrameHeader, pixels: memoryview) -> None:
        """Take the next frame as it lies in memory of the producer's: a large one is written from there, uncopied.

        pixels: C-contiguous bytes of the payload that must not change until the frame is published. The log keeps them
        until then, or until it ends. Pixels are copied where frames are packed, have no checksum, or do not start on a
        block of memory. Never blocks; raises as `reserve`.
        """
        self._raise_error()
        self._parts.intake.adopt(header, pixels)

    def append(self, header: FrameHeader, pixels: Any, *, timeout_s: float = 10.0) -> None:
        """Copy one frame into the log, after a wait for memory if necessary.

        pixels: C-contiguous buffer of the payload. Raises WriterBehind if there is no memory within timeout_s,
        DiskFull if the cause is a full disk.
        """
        deadline = time.monotonic() + timeout_s
        self.wait_until_open(timeout_s)
        changed = self._parts.state.changed
        with changed:
            while not self._has_room(header):
                self._raise_error()
                if not changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    if self._parts.gate.error is not None:
                        raise self._parts.gate.error
                    raise WriterBehind(f"frame {header.number}: the disk took nothing for {timeout_s} s")
        self.reserve(header).fill(memoryview(pixels).cast("B"))

    def skip(self, number: int, count: int, reason: str) -> None:
        """Declare frame numbers that will never come."""
        self._raise_error()
        self._parts.intake.skip(number, count, reason)

    def refuse(self, error: FrameRefused, payload_bytes: int = 0) -> None:
        """Make the next frame a gap, for which another call has raised this error."""
        self._raise_error()
        self._parts.intake.skip(error.number, 1, self.notes.refuse(error).reason, refused_bytes=payload_bytes)

    def patch_summary(self, summary: Mapping[str, Any], *, keeps: bool = False) -> Mapping[str, Any]:
        """Merge into the summary metadata; return the result. See `Placing.patch_summary`."""
        return self._parts.intake.patch_summary(summary, keeps=keeps)

    def set_display(self, settings: Mapping[str, Any]) -> None:
        """Replace the display settings beside the stacks, soon; trouble with them is a warning."""
        self._raise_error()
        self._parts.set_display(settings)

    def add_note(self, note: RunNote) -> RunNote:
        """Add a note to the dataset's folder, once; for any thread that may wait for the disk. See `NoteFile.add`."""
        return self._note_file.add(note)

    def begin_close(self, status: Status = "completed", reason: str = "", *, sent: int | None = None) -> None:
        """Refuse further frames, publish those received and finish the files. `is_finished` is True afterwards."""
        if not self._parts.state.request_close(CloseRequest(status, reason, sent)):
            return
        self._parts.intake.begin_close()
        if status != "completed":
            self.abandon(status, reason)

    def abandon(self, status: Status, reason: str) -> None:
        """Stop waiting for space on a full disk. A run that was to be completed then ends as `status`.

        Frames that are not on the disk yet are left out; the receipt names them.
        """
        self._parts.state.abandon(status, reason)
        self._parts.gate.abandon()

    def close(
        self, status: Status = "completed", reason: str = "", *, sent: int | None = None, patience_s: float = 10.0
    ) -> Receipt:
        """`begin_close`, then wait for the receipt; on a full disk for patience_s.

        Raises the acquisition's first error, DiskFull if frames had to be left out.
        """
        self.begin_close(status, reason, sent=sent)
        waiting_since = time.monotonic()
        while self._parts.thread.is_alive():
            self._parts.thread.join(RETRY_S)
            if self._parts.gate.error is None:
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > patience_s:
                self.abandon("error", f"no space for {patience_s:g} s")
        self._raise_error()
        if self._parts.state.no_space is not None:
            raise self._parts.state.no_space
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
            self.wait_until_finished()

    # State, from any thread.

    @property
    def error(self) -> AcqStreamError | None:
        """The first error of the acquisition; None without one."""
        return self._parts.state.error

    @property
    def receipt(self) -> Receipt | None:
        """The receipt; None before the end."""
        return self._parts.state.receipt

    @property
    def state(self) -> AcquisitionState:
        phase = self._parts.state.phase
        return AcquisitionState.PAUSED if phase is AcquisitionState.RUNNING and self.paused_why else phase

    @property
    def paused_why(self) -> str:
        """The reason why frames are refused for lack of space; empty while they are taken."""
        return self._parts.gate.reason

    @property
    def stall(self) -> str:
        """The disk call that stalls now, and its duration so far; empty without one."""
        slow = self._parts.disk.stalled_call()
        return stall_text(slow, "takes") if slow is not None else ""

    @property
    def memory_peak_bytes(self) -> int:
        """The most memory that frames took at once: in the log's own, and as they lie in the producers'."""
        ring = self._parts.intake.ring
        return ring.peak_bytes + ring.beside_peak_bytes

    def hold(self, why: str) -> None:
        """Keep the window closed for lack of space; with an empty `why` open it again."""
        self._parts.gate.hold(why)

    @property
    def is_finished(self) -> bool:
        """All files are closed and the receipt exists."""
        return self.receipt is not None

    @property
    def received(self) -> int:
        """The next frame number to come."""
        return self._parts.intake.received

    @property
    def received_payload_bytes(self) -> int:
        return self._parts.intake.received_payload_bytes

    @property
    def received_frames(self) -> int:
        """Frames below `received` that have pixels: without the numbers that were skipped."""
        return self._parts.intake.received_frames - self._parts.counts.refused_late

    def stored_keys(self, at: int) -> KeyPage:
        """Axes of published frames; at: a byte of the index, 0 or `next` of the page before. Bounded disk I/O.

        Raises StorageError or CorruptDataset.
        """
        return read_key_page(self._parts.index_path, at)

    def cursors(self) -> Cursors:
        return Cursors(self._parts.intake.received, self._parts.counts.published, self._parts.counts.forced.published)

    def limit(self) -> Limit:
        """The window: which frames `reserve` will take without blocking."""
        return self._parts.intake.limit()

    def queued(self) -> tuple[int, int]:
        """Frames and pixel bytes received but not published."""
        counts, intake = self._parts.counts, self._parts.intake
        payload_bytes = intake.received_payload_bytes - counts.payload_bytes - counts.refused_bytes
        return intake.received - counts.published, payload_bytes

    def wait_until_open(self, timeout_s: float = 30.0) -> None:
        """Wait until the dataset's files exist. Raises the error that prevented it."""
        state = self._parts.state
        with state.changed:
            state.changed.wait_for(lambda: state.phase is not AcquisitionState.OPENING, timeout_s)
        self._raise_error()

    def wait_until_finished(self, timeout_s: float | None = None) -> bool:
        """Wait until the receipt exists and the log's threads have ended; False after timeout_s."""
        self._parts.thread.join(timeout_s)
        return not self._parts.thread.is_alive()

    def wait_for_published(self, count: int, timeout_s: float = 30.0) -> bool:
        """Until `count` frames are published; False if that did not happen in time."""
        changed, counts = self._parts.state.changed, self._parts.counts
        with changed:
            changed.wait_for(lambda: counts.published >= count or self.is_finished, timeout_s)
            return counts.published >= count

    def _raise_error(self) -> None:
        error = self._parts.state.error  # not by the property: this runs for every frame
        if error is not None:
            raise error

    def _has_room(self, header: FrameHeader) -> bool:
        intake = self._parts.intake
        limit, total = intake.limit(), intake.received_payload_bytes + header.payload_bytes
        is_empty = self._parts.counts.published == intake.received
        return is_empty or (header.number < limit.number and total <= limit.payload_bytes)
