"""Running acquisitions: session, log, producer, memory and views of each, and the registry by id, name and producer.

The views themselves may continue after the end of their acquisition.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acqstream.daemon.frame_progress import FrameProgress
from acqstream.daemon.machine_watch import Demand, DiskSpace, RateWindow
from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError, FrameRefused, ProtocolError
from acqstream.log.log import Log
from acqstream.log.memory import Share
from acqstream.log.writer import BATCH_BYTES
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.dataset_name import name_key, normal_name
from acqstream.model.frame_header import FrameHeader
from acqstream.model.receipt import Receipt, Status
from acqstream.model.state import AcquisitionState, Cursors, Limit
from acqstream.model.status import AcquisitionStatus, SpaceLevel, ViewStatus
from acqstream.model.units import duration_text
from acqstream.model.view_spec import MirrorResult, ViewSpec
from acqstream.protocol.encoding import Encoding
from acqstream.protocol.replies import Ack, Opened, StoredPage
from acqstream.protocol.session import Event, Session, Verdict
from acqstream.storage.files.disk import Disk
from acqstream.views.checkpoint import mark_begun
from acqstream.views.view_folder import record_result, remove_record

logger = logging.getLogger("acqstream.daemon")

ACK_INTERVAL_S = 0.02
PROTOCOL_FAULTS = frozenset({"gap", "limit_exceeded", "closing"})
"""Codes of FrameRefused that end an acquisition. Every other one costs the frame that it names."""
MAX_WARNINGS_SHOWN = 50  # in a status; each one was sent when it came
MAX_GAPS_SHOWN, MAX_REASON_SHOWN = 3, 100  # likewise; characters
MAX_RECEIPTS = 100  # for producers that ask again after a lost connection
LeftOut = Sequence[tuple[ViewSpec, str]]
"""Views of the configuration that are not made of an acquisition, and why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Address of a client: its ZeroMQ identity, and the encoding of replies."""

    identity: bytes
    encoding: Encoding


@dataclass(slots=True, eq=False)
class SpaceReports:
    """Rate of one acquisition, and the warnings and pauses for lack of space that were reported.

    Used by the loop; `demand` also by the thread that watches the disk.
    """

    log: Log
    views: AcquisitionViews
    bytes_per_s: float = 0.0
    is_low_reported: bool = False
    is_pause_reported: bool = False
    _window: RateWindow = field(default_factory=RateWindow)

    def measure_rate(self, now_s: float) -> None:
        """Update bytes_per_s; called about once a second."""
        self.bytes_per_s = self._window.rate(now_s, self._stored, self.log.counts.payload_bytes)

    @property
    def frame_bytes(self) -> float:
        """Mean size of the frames so far; 0 before the first one."""
        return self.log.counts.payload_bytes / max(1, self._stored)

    @property
    def demand(self) -> Demand:
        """What log, mirrors and levels take of the disk."""
        need, backlog = self.views.disk_need(self._stored)
        share = need / self.frame_bytes if self.frame_bytes else 0.0
        return Demand(self.bytes_per_s, share, backlog, self._planned_bytes)

    @property
    def _planned_bytes(self) -> float | None:
        """Bytes of the frames that are still planned; None without a plan that tells them."""
        planned, done = self.log.spec.expect, self._stored + self.log.counts.skipped
        # Before its first frame a run has no frame size, and a producer may send more than it has planned.
        if planned is None or done > planned or not self.frame_bytes:
            return None
        return (planned - done) * self.frame_bytes

    @property
    def _stored(self) -> int:
        return self.log.counts.stored

    def note(self, space: DiskSpace) -> bool:
        """Throttle the window while space is short, and warn once; return True if that paused or resumed the run."""
        if space.level is not SpaceLevel.ENOUGH and not self.is_low_reported:
            seconds = space.seconds_left(self.demand)
            lasts = f"; it lasts for {duration_text(seconds)} at the present rate" if seconds is not None else ""
            self.log.notes.warn("disk_low", space.text() + lasts)
        self.is_low_reported = space.level is not SpaceLevel.ENOUGH
        self.log.hold(space.text() if space.level is SpaceLevel.FULL else "")
        was_paused, self.is_pause_reported = self.is_pause_reported, bool(self.log.paused_why)
        return was_paused != self.is_pause_reported

    def fields(self, space: DiskSpace) -> dict[str, Any]:
        """Return fields of `status` and of the event `space`: free space, its duration, reason of a pause."""
        demand = self.demand
        seconds, short = space.seconds_left(demand), space.short_bytes(demand)
        return {
            "free_bytes": space.free_bytes,
            "seconds_left": round(seconds) if seconds is not None else None,
            "frames_left": space.frames_left(demand, self.frame_bytes),
            "to_come_bytes": round(demand.planned_bytes) if demand.planned_bytes is not None else None,
            "short_bytes": round(short) if short is not None else None,
            "paused": self.log.paused_why,
        }


MIN_RGB_SIDE = 16  # pixels of a picture; below, (Y, X, 3) may be a stack of another order


@dataclass(slots=True, eq=False)
class ShapeWatch:
    """Warns of a first frame that may be no picture, and the first time that shapes change. Used by the loop."""

    log: Log
    _shape: tuple[int, ...] | None = None  # of the first frame
    _is_reported: bool = False

    def note(self, header: FrameHeader) -> None:
        """Compare a frame that was received with the first one."""
        if self._shape is None:
            self._shape = header.shape
            if len(header.shape) == 3 and min(header.shape[:2]) < MIN_RGB_SIDE:
                text = f"frame {header.number} of shape {header.shape} is stored as one RGB picture of"
                text += (
                    f" {header.shape[0]} x {header.shape[1]} pixels; a stack is sent plane by plane, with the axis z"
                )
                self.log.notes.warn("thin_rgb", text)
        elif header.shape != self._shape and not self._is_reported:
            self._is_reported = True  # shapes that alternate would fill every status with warnings
            text = f"frame {header.number} has shape {header.shape}, before it was {self._shape}"
            self.log.notes.warn("shape_changed", f"{text}; further changes are not reported")


@dataclass(slots=True, eq=False)
class ActiveAcquisition:
    """State of one acquisition in the daemon. Used by the loop only."""

    session: Session
    log: Log
    share: Share
    views: AcquisitionViews
    peer: Peer
    name: str
    epoch: int = 0
    memory: ProducerMemory | None = None
    memory_why: str = ""  # why frames come as messages
    is_resumed: bool = False
    last_ack: tuple[Cursors, Limit, float] = (Cursors(), Limit(0, 0), 0.0)  # and when it was sent, in s
    n_warnings_sent: int = 0
    is_error_reported: bool = False
    stop_requesters: list[Peer] = field(default_factory=list)  # operators who wait for the receipt
    key_request: tuple[int, int] | None = None  # a byte of the index, and how much must be published before it is read
    space_reports: SpaceReports = field(init=False)
    progress: FrameProgress = field(init=False)
    shape_watch: ShapeWatch = field(init=False)

    def __post_init__(self) -> None:
        self.space_reports = SpaceReports(self.log, self.views)
        self.progress = FrameProgress(self.log)
        self.shape_watch = ShapeWatch(self.log)

    @property
    def dataset_id(self) -> str:
        return self.log.spec.dataset_id

    @property
    def state(self) -> AcquisitionState:
        """The session's state; PAUSED while its log waits for space, the log's final state after its end."""
        if self.log.is_finished:
            return self.log.state
        is_paused = self.session.state is AcquisitionState.RUNNING and self.log.state is AcquisitionState.PAUSED
        return AcquisitionState.PAUSED if is_paused else self.session.state

    def take_memory(self, memory: ProducerMemory | None, why: str = "") -> None:
        """Replace the shared memory of the producer. None means that frames come as messages, for the reason `why`."""
        if self.memory is not None:
            self.memory.unmap()
        self.memory, self.memory_why = memory, why
        self.views.lend(memory)

    def end(self, event: Event, status: Status, reason: str) -> bool:
        """Start to close the log with this status; return False if it is closing already."""
        if not self.session.on(event, time.monotonic(), (status, reason)):
            return False
        self.log.begin_close(status, reason)
        return True

    def refuse(self, error: FrameRefused, count: int = 1, frame_bytes: int = 0) -> None:
        """Refuse `count` frames, the first of which the error names; frame_bytes: of each, as the producer counts them.

        Those that were received before are ignored. Raises FrameRefused if the producer breaks the protocol, or the
        error of the log.
        """
        if error.code in PROTOCOL_FAULTS:
            raise error
        for number in range(error.number, error.number + count):
            verdict, fault = self.session.judge(number, 0, self.log.received, 0)
            if fault is not None:
                raise FrameRefused(fault.text, code=fault.code, number=number)
            if verdict is Verdict.STORE:
                self.log.refuse(error.of_number(number), frame_bytes)

    def opened(self) -> Opened:
        """Return the answer to `open`."""
        log = self.log
        limit = self.session.limit = log.limit()
        return Opened(
            dataset_id=self.dataset_id,
            name=self.name,
            path=str(Path(log.folder).absolute()),
            next=log.received,
            limit=limit,
            window_bytes=self.share.length // 2,
            resumed=self.is_resumed,
            received_bytes=log.received_payload_bytes,
            epoch=self.epoch,
            io=log.stacks.io,
            memory=self.memory.generation if self.memory is not None else None,
            memory_why=self.memory_why,
            stored=log.received_frames,
            views=self.views.table is not None,
        )

    def ack(self, now_s: float, *, force: bool = False) -> Ack | None:
        """Return an acknowledgement; None if nothing changed, or too little since the last one (ACK_INTERVAL_S)."""
        cursors = self.log.cursors()
        limit = self.session.limit = self.log.limit()
        last_cursors, last_limit, last_at_s = self.last_ack
        if cursors == last_cursors and limit == last_limit and not force:
            return None
        is_progress = cursors.published != last_cursors.published or cursors.durable != last_cursors.durable
        if not force and not is_progress and now_s - last_at_s < ACK_INTERVAL_S:
            return None
        self.last_ack = (cursors, limit, now_s)
        return Ack(self.dataset_id, cursors, limit)

    def request_keys(self, at: int) -> None:
        """Note the producer's request for a page of stored axes; it covers all frames received so far."""
        self.key_request = (at, self.log.received)

    def take_key_request(self) -> int | None:
        """Return the byte of the index whose page is due: requested, and all frames before the request published."""
        if self.key_request is None or self.session.state is AcquisitionState.OPENING:
            return None
        at, min_published = self.key_request
        if self.log.cursors().published < min_published:
            return None
        self.key_request = None
        return at

    def read_keys(self, at: int) -> StoredPage:
        """Read a page of stored axes from the disk, in a thread. Raises StorageError or CorruptDataset."""
        page = self.log.stored_keys(at)
        return StoredPage(self.dataset_id, page.keys, page.next)

    def is_ack_pending(self) -> bool:
        """Return True if changed cursors were not sent yet, to save messages."""
        return self.log.cursors() != self.last_ack[0]

    @property
    def has_backlog(self) -> bool:
        """True if more than a batch waits to be written; views do not read the disk then."""
        if self.log.state is AcquisitionState.PAUSED:
            return False
        return self.log.queued()[1] > min(BATCH_BYTES, self.share.length // 4)

    @property
    def demand(self) -> Demand:
        return self.space_reports.demand

    @property
    def reserved_bytes(self) -> int:
        return self.log.stacks.reserved_bytes

    @property
    def _seconds_to_end(self) -> float | None:
        planned = self.log.spec.expect
        if planned is None or self.state is not AcquisitionState.RUNNING:
            return None
        seconds = self.progress.seconds_until(planned - self.log.received)
        return round(seconds, 3) if seconds is not None else None

    def status(self, space: DiskSpace) -> AcquisitionStatus:
        cursors, log, counts = self.log.cursors(), self.log, self.log.counts
        queue_frames, queue_bytes = self.log.queued()
        return AcquisitionStatus(
            name=self.name,
            dataset_id=self.dataset_id,
            path=self.log.folder,
            state=str(self.state),
            sent=max(self.progress.sent, cursors.received) if self.progress.sent is not None else None,
            received=cursors.received,
            published=cursors.published,
            durable=cursors.durable,
            skipped=counts.skipped,
            expected=self.log.spec.expect,
            payload_bytes=counts.payload_bytes,
            queue_frames=queue_frames,
            queue_bytes=queue_bytes,
            bytes_per_s=round(self.space_reports.bytes_per_s),
            running_s=round(self.progress.running_s, 3),
            seconds_since_frame=round(self.progress.seconds_since_frame, 3),
            **self.space_reports.fields(space),
            safe=counts.forced.stored,
            seconds_to_end=self._seconds_to_end,
            gaps=tuple(replace(gap, reason=gap.reason[:MAX_REASON_SHOWN]) for gap in counts.gaps[-MAX_GAPS_SHOWN:]),
            stall=log.stall,
            io=log.stacks.io,
            io_why=log.stacks.io_why,
            transport="messages" if self.memory is None else "shm",
            transport_why=self.memory_why,
            memory_bytes=self.share.length,
            memory_peak_bytes=log.memory_peak_bytes,
            mirrors=self.views.status(counts.stored),
            warnings=tuple(self.log.notes.warnings[-MAX_WARNINGS_SHOWN:]),
        )


class AcquisitionRegistry:
    """Finds acquisitions. The path of a frame calls `of_producer` once and nothing else of it."""

    def __init__(self) -> None:
        self._running: dict[str, ActiveAcquisition] = {}
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[ActiveAcquisition]:
        """Iterate over running acquisitions; take a tuple of it before any is added or removed."""
        return iter(self._running.values())

    def of_producer(self, peer: Peer, dataset_id: str) -> ActiveAcquisition:
        """Return the peer's own running acquisition. Raises ProtocolError (unknown_ds, denied)."""
        acquisition = self._running.get(dataset_id)
        if acquisition is None:
            raise ProtocolError(f"acquisition {dataset_id!r} is not open here; send 'open' first", code="unknown_ds")
        if acquisition.peer.identity != peer.identity:
            raise ProtocolError(f"acquisition {dataset_id!r} belongs to another connection", code="denied")
        return acquisition

    def by_id(self, dataset_id: str) -> ActiveAcquisition | None:
        return self._running.get(dataset_id)

    def by_name(self, name: str) -> ActiveAcquisition | None:
        """name: normalized, as in requests; its folders may differ in case, as in `DataDirectory`."""
        named = [one for one in self._running.values() if _place_key(one.name) == _place_key(name)]
        return next((one for one in named if normal_name(one.name) == name), named[0] if named else None)

    def receipt(self, dataset_id: str) -> Receipt | None:
        """Return the receipt of an acquisition that ended lately and was not resumed."""
        return self._receipts.get(dataset_id)

    def add(self, acquisition: ActiveAcquisition) -> None:
        """Register an acquisition. A resumed one is no longer ended."""
        self._receipts.pop(acquisition.dataset_id, None)
        self._running[acquisition.dataset_id] = acquisition

    def remove(self, acquisition: ActiveAcquisition, receipt: Receipt) -> None:
        """Remove an ended acquisition and keep its receipt."""
        del self._running[acquisition.dataset_id]
        self._receipts[acquisition.dataset_id] = receipt
        while len(self._receipts) > MAX_RECEIPTS:
            self._receipts.popitem(last=False)


def _place_key(name: str) -> tuple[str, str]:
    """Equal for the names of one dataset: as it is called, in folders that differ by case or form at most."""
    folders, _, last = name.rpartition("/")
    return name_key(folders), normal_name(last)


class AcquisitionViews:
    """specs: the views to make; without any, no table and no process is made.

    table is for the log to fill, None where memory cannot be shared. Used by the loop; `texts`, `mark` and `disk_need`
    by any thread.
    """

    def __init__(
        self,
        process: ViewProcess,
        specs: Sequence[ViewSpec],
        share: Share,
        *,
        left_out: LeftOut = (),
    ) -> None:
        self.table = process.make_table() if specs else None
        self._process = process
        self._specs = specs
        self._left_out = left_out
        self._share = share
        self._lent: ProducerMemory | None = None
        self._jobs: dict[str, ViewJob] = {}
        self._warned: set[tuple[str, str]] = set()  # name of a view, code

    def mark(self, disk: Disk, folder: Path, dataset_id: str) -> None:
        """Before `begin`: record that levels will be made, so that readers wait for the first one.

        The recorded ends of an interrupted dataset's views are removed, and those left out are recorded. Errors of the
        disk are logged: frames come first.
        """
        for spec in self._specs:
            if spec.is_pyramid:
                try:
                    mark_begun(disk, folder, spec.name, dataset_id)
                except AcqStreamError as error:  # the view reports it again
                    logger.warning("view %s of %s: %s", spec.name, folder, error)
        for spec in self._specs:
            self._record(disk, folder, spec, None)
        for spec, reason in self._left_out:
            self._record(disk, folder, spec, MirrorResult(name=spec.name, state="left_out", reason=reason))

    def _record(self, disk: Disk, folder: Path, spec: ViewSpec, result: MirrorResult | None) -> None:
        """Replace the record of a view; None: remove it."""
        try:
            own_folder = folder_of(folder, spec)
            remove_record(disk, folder, own_folder)
            if result is not None:
                record_result(disk, folder, own_folder, result)
        except AcqStreamError as error:
            logger.warning("cannot record the state of mirror %s of %s: %s", spec.name, folder, error)

    def begin(self, folder: str) -> None:
        """Have the views made: the dataset's files exist."""
        for spec in self._specs:
            self._jobs[spec.name] = self._process.add(
                folder,
                spec,
                table=self.table,
                memory=self._share.memory,
                lent=self._lent,
            )

    def lend(self, memory: ProducerMemory | None) -> None:
        """Tell the views that frames will arrive in the producer's memory; None: that they no longer do."""
        self._lent = memory
        for job in self._jobs.values():
            self._process.lend(job, memory)

    def end(self) -> None:
        """The log has ended. Called before its share of the memory is returned."""
        if self.table is not None:
            self.table.end()
        self.lend(None)
        for job in self._jobs.values():
            job.forget_memory()

    def status(self, stored: int) -> dict[str, ViewStatus]:
        """Return the status of each view, by name. stored: frames published."""
        return {name: job.status(stored) for name, job in self._jobs.items()}

    def disk_need(self, stored: int) -> tuple[float, float]:
        """Bytes of disk that all views need for each further frame, and for frames stored and not taken yet."""
        needs = [job.disk_need(stored) for job in list(self._jobs.values())]
        return sum(need for need, _ in needs), sum(backlog for _, backlog in needs)

    def take_warnings(self) -> list[tuple[str, str]]:
        """Return the warnings of the views as code and text, each code of a view once."""
        found = []
        for name, job in self._jobs.items():
            progress = job.progress
            restart = f"mirror {name!r} is made again when the run ends: {progress.restart_warning}"
            found_now = {
                "uncalibrated": progress.warning,
                "mirror_held": progress.space_warning,
                "mirror_restarts": progress.restart_warning and restart,
            }
            for code, text in found_now.items():
                if text and (name, code) not in self._warned:
                    self._warned.add((name, code))
                    found.append((code, text))
        return found

    def texts(self, stored: int) -> dict[str, str]:
        """Return the progress of each view for the receipt, by name."""
        left_out = {spec.name: f"left out: {reason}" for spec, reason in self._left_out}
        return {**left_out, **{name: job.text(stored) for name, job in list(self._jobs.items())}}
