"""Notifies the service manager: readiness, one line of status, the end, and proof of progress.

The protocol is sd_notify(3): one datagram to the socket named in NOTIFY_SOCKET. Without that variable nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from acqstream.model.state import AcquisitionState, Cursors
from acqstream.model.status import DaemonStatus
from acqstream.storage.platform.capabilities import has_local_sockets

logger = logging.getLogger("acqstream.daemon")

STATUS_INTERVAL_S = 1.0
STALL_SHARE = 0.75  # of the watchdog's time: a log may stall that long, as slow disks do, and still count as alive
EXTEND_START_USEC = 10 * 60 * 1_000_000  # for one dataset to be recovered before the daemon is ready

_T = TypeVar("_T")


class LogProgress(Protocol):
    """Progress of a log, as the watchdog sees it."""

    @property
    def state(self) -> AcquisitionState: ...
    @property
    def is_finished(self) -> bool: ...
    @property
    def paused_why(self) -> str: ...
    def cursors(self) -> Cursors: ...
    def queued(self) -> tuple[int, int]: ...


class RunningAcquisition(Protocol):
    """An acquisition as the status line and the watchdog see it."""

    @property
    def dataset_id(self) -> str: ...
    @property
    def log(self) -> LogProgress: ...


class ServiceManager:
    """The socket of the manager that started this process. Raises nothing: the daemon runs without a manager too."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract name.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._socket: socket.socket | None = None
        self._is_failure_logged = False
        if name and has_local_sockets():
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self.watchdog_s = _watchdog_s(environment) if self._socket is not None else None

    @property
    def exists(self) -> bool:
        return self._socket is not None

    def notify(self, *assignments: str) -> bool:
        """Send "NAME=value" lines; return False if they could not be sent now."""
        if self._socket is None:
            return False
        try:
            lines = "\n".join(map(_one_line, assignments))
            self._socket.sendto(lines.encode("utf-8", "backslashreplace"), self._address)
        except OSError as error:
            if not self._is_failure_logged:
                logger.warning("cannot notify the service manager of %s: %s", assignments[0], error)
            self._is_failure_logged = True
            return False
        self._is_failure_logged = False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds within which the manager expects a sign of life; None if it does not watch this process."""
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
        process = int(environment.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 and process == os.getpid() else None


class StallWatch:
    """Measures how long each log that has work makes no progress. stall_s is the max time."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._progress: dict[str, tuple[tuple[Cursors, AcquisitionState], float]] = {}

    def stalled(self, acquisitions: Iterable[RunningAcquisition], now_s: float) -> list[str]:
        """Return the dataset ids of logs that stall for longer than stall_s."""
        progress = {}
        for one in acquisitions:
            mark = (one.log.cursors(), one.log.state)
            before, since_s = self._progress.get(one.dataset_id, (mark, now_s))
            progress[one.dataset_id] = (mark, since_s if before == mark and _has_work(one.log) else now_s)
        self._progress = progress
        return [dataset_id for dataset_id, (_, since_s) in progress.items() if now_s - since_s > self._stall_s]


def _has_work(log: LogProgress) -> bool:
    """Return True while the log's threads have work. Forcing published frames may wait an hour, and does not count."""
    if log.is_finished or log.paused_why:  # a restart does not free a full disk
        return False
    return log.state in (AcquisitionState.OPENING, AcquisitionState.CLOSING) or log.queued()[0] > 0


class Service:
    """Sends the daemon's notifications. Used by the loop only, which calls `tick` in every turn."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._manager = ServiceManager(os.environ if environment is None else environment)
        self._is_ready = False
        self._is_stopping = False
        self._status = ""
        self._status_at_s = 0.0
        self._watchdog_at_s = 0.0
        watchdog_s = self._manager.watchdog_s
        self._watch = None if watchdog_s is None else StallWatch(STALL_SHARE * watchdog_s)
        self._watchdog_interval_s = (watchdog_s or 0.0) / 2
        self._stalled: list[str] = []

    def starting(self, folders: Iterable[_T]) -> Iterator[_T]:
        """Yield `folders`, and extend the manager's start timeout before each, as its recovery may take long."""
        for folder in folders:
            self._manager.notify(f"EXTEND_TIMEOUT_USEC={EXTEND_START_USEC}", f"STATUS=checking {folder}")
            yield folder

    def tick(
        self,
        acquisitions: Collection[RunningAcquisition],
        now_s: float,
        *,
        is_stopping: bool,
        daemon_status: Callable[[], DaemonStatus],
    ) -> None:
        """Send changes, and feed the watchdog unless a log stalls."""
        if not self._manager.exists:
            return
        if not self._is_ready:
            self._is_ready = self._manager.notify("READY=1")
        if is_stopping and not self._is_stopping:
            self._is_stopping = self._manager.notify("STOPPING=1", "STATUS=finishing running acquisitions")
        if now_s - self._status_at_s >= STATUS_INTERVAL_S:
            self._status_at_s = now_s
            self._send_status(daemon_status())
            self._watch_logs(acquisitions, now_s)
        is_due = now_s - self._watchdog_at_s >= self._watchdog_interval_s
        if self._watch is not None and not self._stalled and is_due:
            self._watchdog_at_s = now_s
            self._manager.notify("WATCHDOG=1")

    def close(self) -> None:
        self._manager.close()

    def _send_status(self, status: DaemonStatus) -> None:
        text = status_line(status)
        if text != self._status and self._manager.notify(f"STATUS={text}"):
            self._status = text

    def _watch_logs(self, acquisitions: Iterable[RunningAcquisition], now_s: float) -> None:
        if self._watch is None:
            return
        stalled = self._watch.stalled(acquisitions, now_s)
        if stalled and stalled != self._stalled:
            logger.error("no progress in %s; the watchdog is no longer fed", ", ".join(stalled))
        self._stalled = stalled


def status_line(status: DaemonStatus) -> str:
    """Return one line for users: "3 datasets, 812 MB/s, 4.1 h of disk left"."""
    datasets, bytes_per_s, free = len(status.acquisitions), status.bytes_per_s, status.free_bytes
    parts = [f"{datasets} dataset{'' if datasets == 1 else 's'}" if datasets else "idle"]
    if datasets:
        parts.append(f"{bytes_per_s / 1e6:.0f} MB/s")
    lasting_s = status.seconds_left
    if lasting_s == 0:
        parts.append("no disk left")
    elif lasting_s is not None:
        parts.append(f"{lasting_s / 3600:.1f} h of disk left")
    elif free is not None:
        parts.append(f"{free / 1e9:.0f} GB of disk left")
    return ", ".join(parts)


def _one_line(assignment: str) -> str:
    """Replace line breaks by spaces: one in a folder's name would add an assignment of its own."""
    return " ".join(assignment.splitlines())
