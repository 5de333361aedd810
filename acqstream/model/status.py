"""The status of a daemon: one frozen object that the wire, the command line and metrics read; its totals and warnings.

Names of fields are those of docs/protocol.md, "status", except `dataset_id`, which is `ds` there. Totals are counts
since the daemon started, which only grow, and histograms of latency; no acquisition is named in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from acqstream.model.receipt import MissingFrames

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Numbers of frames by latency.

    bounds_s are upper bounds in seconds, in ascending order. counts has one number for each bound, of frames with at
    most this latency and more than the bound before, then one for the frames above all bounds. sum_s adds up the
    latencies of all frames.
    """

    bounds_s: tuple[float, ...] = LATENCY_BOUNDS_S
    counts: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS_S) + 1)
    sum_s: float = 0.0

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """Return both together; their bounds are equal."""
        counts = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return LatencyHistogram(bounds_s=self.bounds_s, counts=counts, sum_s=self.sum_s + other.sum_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTotals:
    """Counts since the daemon started. None of them ever falls.

    frames_received, frames_published and frames_durable count frames with pixels, frames_skipped the numbers that
    producers declared as never coming. frames_missing counts numbers that had no frame when an acquisition ended and
    were not declared. payload_bytes are pixel bytes published. stalls counts times when disk calls took over a second,
    and stall_s adds up their seconds. warnings counts by `WarningCode`, ended counts acquisitions by the status of
    their receipt. publish_latency and durable_latency are from received to published, and to durable.
    """

    frames_received: int = 0
    frames_published: int = 0
    frames_durable: int = 0
    frames_skipped: int = 0
    frames_missing: int = 0
    payload_bytes: int = 0
    stalls: int = 0
    stall_s: float = 0.0
    warnings: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    publish_latency: LatencyHistogram = LatencyHistogram()
    durable_latency: LatencyHistogram = LatencyHistogram()

    def plus(self, other: DaemonTotals) -> DaemonTotals:
        """Return both together."""
        return DaemonTotals(
            frames_received=self.frames_received + other.frames_received,
            frames_published=self.frames_published + other.frames_published,
            frames_durable=self.frames_durable + other.frames_durable,
            frames_skipped=self.frames_skipped + other.frames_skipped,
            frames_missing=self.frames_missing + other.frames_missing,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            stalls=self.stalls + other.stalls,
            stall_s=self.stall_s + other.stall_s,
            warnings=_sums(self.warnings, other.warnings),
            ended=_sums(self.ended, other.ended),
            publish_latency=self.publish_latency.plus(other.publish_latency),
            durable_latency=self.durable_latency.plus(other.durable_latency),
        )


def _sums(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *(set(second) - set(first)))}


class WarningCode(StrEnum):
    """A closed list, so that counts by code have a fixed number of series. docs/protocol.md, "warn", explains each."""

    DISK_LOW = "disk_low"
    DISK_FULL = "disk_full"
    DISK_SPACE = "disk_space"
    DISK_STALLED = "disk_stalled"
    IO_ERROR = "io_error"
    SHAPE_CHANGED = "shape_changed"
    OVERLAP_ONE_WAY = "overlap_one_way"
    NO_LEVELS = "no_levels"
    NO_MIRROR = "no_mirror"
    MIRROR_LEFT_OUT = "mirror_left_out"
    MIRROR_WAITS = "mirror_waits"
    MIRROR_REMOVED = "mirror_removed"
    MIRROR_RESTARTS = "mirror_restarts"
    MIRROR_HELD = "mirror_held"
    UNCALIBRATED = "uncalibrated"
    FRAME_REFUSED = "frame_refused"
    FOLDER_MOVED = "folder_moved"
    NAMES_UNFORCED = "names_unforced"
    NOT_UNDERSTOOD = "not_understood"
    NOTHING_TO_RESUME = "nothing_to_resume"
    RESUME_KEEPS = "resume_keeps"
    THIN_RGB = "thin_rgb"
    NOTE_REFUSED = "note_refused"
    OTHER = "other"  # counts codes that this version does not know


_KNOWN = frozenset(WarningCode)


def counted_code(code: str) -> str:
    """Return the code under which a warning is counted."""
    return code if code in _KNOWN else WarningCode.OTHER


class SpaceLevel(StrEnum):
    """Free space on the disk of the data directory, in three steps."""

    ENOUGH = "enough"
    LOW = "low"  # reported, without further effect
    FULL = "full"  # below the reserve: producers may send no more frames


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatus:
    """Progress of one view. cursor, behind, from_memory, from_stack, overtaken: counts of frames.

    waiting: pieces of its result that are not written yet; restarts: of the view process since the view was requested.
    state is a ViewState; reason explains why it has failed, waits or is throttled.
    """

    cursor: int = 0
    behind: int = 0
    state: str = ""
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    waiting: int = 0
    restarts: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedViewStatus(ViewStatus):
    """A view that is not complete, of any dataset. path: the dataset's folder; mirror: the view's name."""

    path: str = ""
    mirror: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewProcessStatus:
    """The process that makes all views. pid: None while it does not run; restarts: after deaths.

    memory: "shared", or why the process cannot map the daemon's memory. kernels: "compiled" or "numpy", as the process
    reported; empty until the first one has.
    """

    pid: int | None = None
    restarts: int = 0
    memory: str = ""
    kernels: str = ""
    mirrors: tuple[UnfinishedViewStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquisitionStatus:
    """One acquisition. sent, received, published, durable, skipped and queue_frames count frames. sent is what its
    producer said last (None: it does not say), expected the number of frames that it planned (None: not stated).

    bytes_per_s is the rate of the last minute, or of the last ten frames. running_s is the time since it was opened or
    resumed, seconds_since_frame since a frame was received, before the first one since it was opened (None: unknown).
    seconds_left and frames_left are the time and the frames until the disk is full (None: unknown). safe counts the
    frames with pixels among the durable ones (None: not stated). to_come_bytes are those of frames that are still
    planned, short_bytes what the disk lacks for them beside all other runs (0: they fit), and seconds_to_end is the
    time until they have come at the mean rate of the run (None: unknown). gaps are the last numbers without pixels,
    with reasons that may be cut. paused is the reason why no frames are taken for lack of space, stall the disk call
    that stalls; both are empty while all is well. io is the way files are written ("direct" or "buffered"), io_why the
    reason for "buffered", transport the way frames come ("shm" or "messages"), transport_why the reason for not using
    shared memory. memory_bytes is its share of the daemon's memory. warnings are (code, text, time in ISO 8601).
    mirrors has the progress of its views, by name.
    """

    name: str = ""
    dataset_id: str = ""
    path: str = ""
    state: str = ""
    sent: int | None = None
    received: int = 0
    published: int = 0
    durable: int = 0
    skipped: int = 0
    expected: int | None = None
    payload_bytes: int = 0
    queue_frames: int = 0
    queue_bytes: int = 0
    bytes_per_s: float = 0.0
    running_s: float | None = None
    seconds_since_frame: float | None = None
    free_bytes: int | None = None
    seconds_left: float | None = None
    frames_left: int | None = None
    safe: int | None = None
    to_come_bytes: int | None = None
    short_bytes: int | None = None
    seconds_to_end: float | None = None
    gaps: tuple[MissingFrames, ...] = ()
    paused: str = ""
    stall: str = ""
    io: str = ""
    io_why: str = ""
    transport: str = ""
    transport_why: str = ""
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    warnings: tuple[tuple[str, str, str], ...] = ()
    mirrors: Mapping[str, ViewStatus] = field(default_factory=dict)

    @property
    def known(self) -> int:
        """Frames that were sent, as far as is known: those in the producer's memory count."""
        return max(self.sent or 0, self.received)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedStatus:
    """An acquisition that has ended lately; finished_at is that of its receipt. durable counts frames."""

    name: str = ""
    dataset_id: str = ""
    path: str = ""
    durable: int = 0
    finished_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """Load of the daemon's machine and process, averaged over the last two seconds. None: unknown.

    processor_percent: busy share of all processors; daemon_processor_percent: of one, above 100 if the daemon's threads
    run on several. daemon_memory_bytes: resident memory, the memory for pixels included. disk: the block device of the
    data directory, empty where the system counts none; disk_busy_percent: share of the time with a request in progress.
    priority: the daemon's scheduling priority, "nice 0" or a priority class of Windows.
    """

    processors: int = 0
    processor_percent: float | None = None
    daemon_processor_percent: float | None = None
    daemon_memory_bytes: int = 0
    available_memory_bytes: int = 0
    total_memory_bytes: int = 0
    disk: str = ""
    disk_write_bytes_per_s: float | None = None
    disk_busy_percent: float | None = None
    priority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """A daemon. endpoint is the one that answered, set by the client; endpoints are all for producers.

    data is the data directory; memory_budget_bytes bounds the memory for pixels. reserve_bytes is the free space at
    which runs are paused. left_out counts acquisitions, mirrors and warnings that did not fit into the answer; empty if
    all did. ended has the latest acquisitions that ended within the last minute, at most 100: many end between two
    questions.
    """

    endpoint: str = ""
    version: str = ""
    boot: str = ""
    data: str = ""
    endpoints: tuple[str, ...] = ()
    uptime_s: float = 0.0
    memory_budget_bytes: int = 0
    memory_used_bytes: int = 0
    memory_peak_bytes: int = 0
    free_bytes: int | None = None
    reserve_bytes: int = 0
    space: str = ""
    load: LoadStatus = LoadStatus()
    totals: DaemonTotals = DaemonTotals()
    acquisitions: tuple[AcquisitionStatus, ...] = ()
    ended: tuple[EndedStatus, ...] = ()
    views: ViewProcessStatus = ViewProcessStatus()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes_per_s(self) -> float:
        """Rate of all acquisitions together."""
        return sum(one.bytes_per_s for one in self.acquisitions)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the disk is full with all acquisitions together; None if unknown."""
        lasting = [one.seconds_left for one in self.acquisitions if one.seconds_left is not None]
        if not lasting:
            return None
        return 0.0 if 0 in lasting else 1 / sum(1 / seconds for seconds in lasting)  # each as if it were alone

    @property
    def frames_left(self) -> int | None:
        """Frames of all acquisitions together that the disk has space for; None if unknown."""
        known = [one for one in self.acquisitions if one.frames_left is not None]
        if len(known) == 1:
            return known[0].frames_left
        rates = [one.frames_left / one.seconds_left for one in known if one.frames_left and one.seconds_left]
        seconds = self.seconds_left
        return None if seconds is None else round(seconds * sum(rates))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as for JSON."""
        return asdict(self)
