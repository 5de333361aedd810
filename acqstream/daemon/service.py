"""What the service manager is told: readiness, one line of status, the end, and proof of progress.

The protocol is sd_notify(3): one datagram to the socket named in NOTIFY_SOCKET. Where there is none, nothing is said.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from acqstream.model.cursors import Cursors
from acqstream.model.state import AcquisitionState
from acqstream.model.status import DaemonStatus

logger = logging.getLogger("acqstream.daemon")

STATUS_INTERVAL_S = 1.0
STALL_SHARE = 0.75  # of the watchdog's time: how long a log may stand still and count as alive, for slow disks stall
EXTEND_START_USEC = 10 * 60 * 1_000_000  # for one dataset to be recovered before the daemon is ready

_T = TypeVar("_T")


class LogProgress(Protocol):
    """What can be seen of a log from outside."""

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
    """The socket of the manager that started this process. Raises nothing: a manager that is deaf stops no daemon."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract name.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._socket: socket.socket | None = None
        self._is_failure_told = False
        if name and hasattr(socket, "AF_UNIX"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0))
            self._socket.setblocking(False)
        self.watchdog_s = _watchdog_s(environment) if self._socket is not None else None

    @property
    def is_there(self) -> bool:
        return self._socket is not None

    def tell(self, *assignments: str) -> bool:
        """Send "NAME=value" lines; False if they could not be sent now."""
        if self._socket is None:
            return False
        try:
            lines = "\n".join(map(_one_line, assignments))
            self._socket.sendto(lines.encode("utf-8", "backslashreplace"), self._address)
        except OSError as error:
            if not self._is_failure_told:
                logger.warning("cannot tell the service manager %s: %s", assignments[0], error)
            self._is_failure_told = True
            return False
        self._is_failure_told = False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Within what time a sign of life is wanted; None where nobody watches this process."""
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
        process = int(environment.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 and process == os.getpid() else None


class StallWatch:
    """Since when each log with something to do has made no progress."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._seen: dict[str, tuple[tuple[Cursors, AcquisitionState], float]] = {}

    def stalled(self, acquisitions: Iterable[RunningAcquisition], now_s: float) -> list[str]:
        """Dataset ids of logs that stand still for longer than they may."""
        seen = {}
        for one in acquisitions:
            mark = (one.log.cursors(), one.log.state)
            before, since_s = self._seen.get(one.dataset_id, (mark, now_s))
            seen[one.dataset_id] = (mark, since_s if before == mark and _has_work(one.log) else now_s)
        self._seen = seen
        return [dataset_id for dataset_id, (_, since_s) in seen.items() if now_s - since_s > self._stall_s]


def _has_work(log: LogProgress) -> bool:
    """True while the log's threads owe something. Forcing later what is published may wait for an hour: not counted."""
    if log.is_finished or log.paused_why:  # a full disk is nothing that a restart mends
        return False
    return log.state in (AcquisitionState.OPENING, AcquisitionState.CLOSING) or log.queued()[0] > 0


class Service:
    """The daemon's side of the conversation. Used by the loop only, whose every turn calls `look_after`."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._manager = ServiceManager(os.environ if environment is None else environment)
        self._is_ready = False
        self._is_stopping = False
        self._status = ""
        self._status_at_s = 0.0
        self._fed_at_s = 0.0
        watchdog_s = self._manager.watchdog_s
        self._watch = None if watchdog_s is None else StallWatch(STALL_SHARE * watchdog_s)
        self._feed_every_s = (watchdog_s or 0.0) / 2
        self._stalled: list[str] = []

    def starting(self, folders: Iterable[_T]) -> Iterator[_T]:
        """Pass on folders that are looked at before the daemon is ready, asking for the time that each may take."""
        for folder in folders:
            self._manager.tell(f"EXTEND_TIMEOUT_USEC={EXTEND_START_USEC}", f"STATUS=looking at {folder}")
            yield folder

    def look_after(
        self,
        acquisitions: Collection[RunningAcquisition],
        now_s: float,
        *,
        is_stopping: bool,
        daemon_status: Callable[[], DaemonStatus],
    ) -> None:
        """One turn of the loop has come so far: tell what is news, and feed the watchdog if all are well."""
        if not self._manager.is_there:
            return
        if not self._is_ready:
            self._is_ready = self._manager.tell("READY=1")
        if is_stopping and not self._is_stopping:
            self._is_stopping = self._manager.tell("STOPPING=1", "STATUS=finishing what runs")
        if now_s - self._status_at_s >= STATUS_INTERVAL_S:
            self._status_at_s = now_s
            self._tell_status(daemon_status())
            self._watch_logs(acquisitions, now_s)
        if self._watch is not None and not self._stalled and now_s - self._fed_at_s >= self._feed_every_s:
            self._fed_at_s = now_s
            self._manager.tell("WATCHDOG=1")

    def close(self) -> None:
        self._manager.close()

    def _tell_status(self, status: DaemonStatus) -> None:
        text = status_line(status)
        if text != self._status and self._manager.tell(f"STATUS={text}"):
            self._status = text

    def _watch_logs(self, acquisitions: Iterable[RunningAcquisition], now_s: float) -> None:
        if self._watch is None:
            return
        stalled = self._watch.stalled(acquisitions, now_s)
        if stalled and stalled != self._stalled:
            logger.error("no progress in %s; the watchdog is no longer fed", ", ".join(stalled))
        self._stalled = stalled


def status_line(status: DaemonStatus) -> str:
    """Return one line for people: "3 datasets, 812 MB/s, 4.1 h of disk left"."""
    datasets, bytes_per_s, free = len(status.acquisitions), status.bytes_per_s, status.free_bytes
    parts = [f"{datasets} dataset{'' if datasets == 1 else 's'}" if datasets else "idle"]
    if datasets:
        parts.append(f"{bytes_per_s / 1e6:.0f} MB/s")
    if free is not None and bytes_per_s > 0:
        parts.append(f"{free / bytes_per_s / 3600:.1f} h of disk left")
    elif free is not None:
        parts.append(f"{free / 1e9:.0f} GB of disk left")
    return ", ".join(parts)


def _one_line(assignment: str) -> str:
    """A folder of a stranger may have a line break in its name, and would tell the service manager more than we do."""
    return " ".join(assignment.splitlines())
