"""Notices about acquisitions: what is worth one, found by comparing two views of the daemon. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, SpaceLevel
from acqstream.model.units import count_text, duration_text, size_text
from acqstream.monitor.daemon_watch import DaemonView, EndedRun


class NoticeKind(StrEnum):
    """What has happened."""

    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    DISK_LOW = "disk_low"
    NO_FRAMES = "no_frames"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message. text is for people. time is ISO 8601 in UTC; details has numbers.

    acquisition and path are empty for notices about the disk.
    """

    kind: NoticeKind
    text: str
    host: str
    time: str
    acquisition: str = ""
    path: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as for JSON."""
        return {**asdict(self), "kind": str(self.kind)}


class NoticeFinder:
    """Compares each view with the one before. Used by one thread.

    no_frames_s: seconds without a frame after which a running acquisition is worth a notice; 0: never. Each state is
    reported once, when it begins.
    """

    def __init__(self, host: str, no_frames_s: float) -> None:
        self._host = host
        self._no_frames_s = no_frames_s
        self._paused: set[str] = set()
        self._silent: set[str] = set()
        self._ended: set[tuple[str, float]] = set()
        self._is_low = False

    def find(self, view: DaemonView) -> list[Notice]:
        """Return what has begun since the last view."""
        found = [*self._ends(view)]
        if view.status is not None:
            found += self._space(view)
            found += self._states(view.running)
        return found

    def _ends(self, view: DaemonView) -> Iterator[Notice]:
        ended = {(run.last.dataset_id, run.at_s): run for run in view.ended}
        for mark, run in ended.items():
            if mark not in self._ended:
                yield self._end(run)
        self._ended = {*ended}

    def _end(self, run: EndedRun) -> Notice:
        receipt = run.receipt
        if receipt is None:
            text = f"{run.last.name} ended without a receipt; {count_text(run.last.durable, 'frame')} were durable"
            return self._notice(NoticeKind.FAILED, text, run.last, {"durable": run.last.durable})
        kind = NoticeKind.FINISHED if run.is_good else NoticeKind.FAILED
        return self._notice(kind, f"{run.last.name}: {_result(receipt)}", run.last, _numbers(receipt))

    def _space(self, view: DaemonView) -> Iterator[Notice]:
        status = view.status
        assert status is not None
        was_low, self._is_low = self._is_low, status.space in (SpaceLevel.LOW, SpaceLevel.FULL)
        if self._is_low and not was_low:
            lasting = status.seconds_left
            lasts = f"; it lasts for {duration_text(lasting)}" if lasting is not None else ""
            free = "unknown" if status.free_bytes is None else size_text(status.free_bytes)
            text = f"disk space is low: {free} left for {status.data}{lasts}"
            details = {"free_bytes": status.free_bytes, "seconds_left": lasting, "frames_left": status.frames_left}
            yield self._notice(NoticeKind.DISK_LOW, text, None, details)

    def _states(self, running: tuple[AcquisitionStatus, ...]) -> Iterator[Notice]:
        paused, silent = self._paused, self._silent
        self._paused = {run.dataset_id for run in running if run.state == AcquisitionState.PAUSED}
        self._silent = {run.dataset_id for run in running if self._is_silent(run)}
        for run in running:
            if run.dataset_id in self._paused - paused:
                yield self._notice(NoticeKind.PAUSED, f"{run.name} is paused: {run.paused}", run, {})
            if run.dataset_id in self._silent - silent:
                since_s = run.seconds_since_frame
                text = f"{run.name} has had no frame for {duration_text(since_s or 0)}"
                yield self._notice(NoticeKind.NO_FRAMES, text, run, {"seconds_since_frame": since_s})

    def _is_silent(self, run: AcquisitionStatus) -> bool:
        if not self._no_frames_s or run.seconds_since_frame is None:
            return False
        is_running = run.state in (AcquisitionState.RUNNING, AcquisitionState.ORPHANED)
        return is_running and run.seconds_since_frame >= self._no_frames_s

    def _notice(self, kind: NoticeKind, text: str, run: AcquisitionStatus | None, details: Mapping[str, Any]) -> Notice:
        return Notice(
            kind=kind,
            text=f"{self._host}: {text}",
            host=self._host,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            acquisition=run.name if run is not None else "",
            path=run.path if run is not None else "",
            details=details,
        )


def _result(receipt: Receipt) -> str:
    sent = "" if receipt.sent is None else f" of {receipt.sent:,} sent"
    return f"{receipt.sentence}; {count_text(receipt.stored, 'frame')} stored{sent}"


def _numbers(receipt: Receipt) -> dict[str, Any]:
    return {
        "status": receipt.status,
        "complete": receipt.complete,
        "sent": receipt.sent,
        "stored": receipt.stored,
        "skipped": receipt.skipped,
        "missing": sum(gap.count for gap in receipt.missing),
        "payload_bytes": receipt.payload_bytes,
        "reason": receipt.reason,
        "root_sha256": receipt.root_sha256,
    }
