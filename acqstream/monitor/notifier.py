"""Notices about acquisitions, and the process that sends them: a child of the daemon, which it asks for its status.

It asks like any other client. What is worth a notice is found by comparing two views of the daemon; that part is pure.
The daemon writes one line of JSON to its standard input: `endpoint`, `targets`, `no_frames_s`. The end of that input is
the end of the daemon, however it came about: the notifier then reads the receipts of what was running, sends what is
left within END_S, and ends. Each target has a bounded queue, a thread, a few attempts, and a bound on their time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from acqstream.model.notice_target import AddressTarget, CommandTarget, NoticeTarget, parse_target
from acqstream.model.receipt import Receipt
from acqstream.model.run_summary import run_summary, silence, space_alarm
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, SpaceLevel
from acqstream.model.units import count_text
from acqstream.monitor.daemon_watch import DaemonView, DaemonWatch, EndedRun
from acqstream.storage.patient_output import never_wait_for_output
from acqstream.storage.platform import child_process


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
            details = {name: getattr(status, name) for name in ("free_bytes", "seconds_left", "frames_left")}
            yield self._notice(NoticeKind.DISK_LOW, space_alarm(status).sentence, None, details)

    def _states(self, running: tuple[AcquisitionStatus, ...]) -> Iterator[Notice]:
        paused, silent = self._paused, self._silent
        self._paused = {run.dataset_id for run in running if run.state == AcquisitionState.PAUSED}
        self._silent = {run.dataset_id for run in running if self._is_silent(run)}
        for run in running:
            if run.dataset_id in self._paused - paused:
                yield self._notice(NoticeKind.PAUSED, f"{run.name}: {run_summary(run).alarm.sentence}", run, {})
            if run.dataset_id in self._silent - silent:
                details = {"seconds_since_frame": run.seconds_since_frame}
                yield self._notice(NoticeKind.NO_FRAMES, f"{run.name}: {silence(run).sentence}", run, details)

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


logger = logging.getLogger("acqstream.monitor")

MAX_WAITING = 100  # notices of one target; a further one takes the place of the oldest
_USER_AGENT = "acqstream"


class NotSent(Exception):
    """An attempt failed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """attempt_s: seconds for one attempt. pauses_s: before the second attempt, the third, and so on."""

    attempt_s: float = 10.0
    pauses_s: tuple[float, ...] = (2.0, 10.0)


class NoticeSender:
    """A queue and a thread for one target. `put` never waits.

    n_sent, n_failed and n_dropped count notices: sent, abandoned after all attempts, and removed from a full queue.
    """

    def __init__(self, target: NoticeTarget, limits: SendLimits | None = None) -> None:
        self.label = target.label
        self.n_sent = self.n_failed = self.n_dropped = 0
        self._limits = limits or SendLimits()
        self._attempt = _attempt_of(target)
        self._queue: queue.Queue[Notice | None] = queue.Queue(MAX_WAITING)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notify-{self.label}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice | None) -> None:
        """Queue a notice; None ends the thread after those before it."""
        while True:
            try:
                self._queue.put_nowait(notice)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._queue.get_nowait()
                    self.n_dropped += 1
                    logger.warning("%s: too many notices wait; the oldest one is dropped", self.label)
            else:
                return

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for at most timeout_s, without pauses between attempts."""
        self._ended.set()
        self.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (notice := self._queue.get()) is not None:
            self._send(notice)

    def _send(self, notice: Notice) -> None:
        for pause_s in (0.0, *self._limits.pauses_s):
            self._ended.wait(pause_s)
            try:
                self._attempt(notice, self._limits.attempt_s)
            except NotSent as error:
                logger.warning("%s: notice %r was not sent: %s", self.label, notice.kind.value, error)
            else:
                self.n_sent += 1
                return
        self.n_failed += 1


def run_command(arguments: tuple[str, ...], notice: Notice, timeout_s: float) -> None:
    """Start a program with the notice as JSON on its input and in variables of its environment. Raises NotSent.

    The program is killed with its children after timeout_s.
    """
    variables = {
        "ACQSTREAM_KIND": notice.kind.value,
        "ACQSTREAM_TEXT": notice.text,
        "ACQSTREAM_HOST": notice.host,
        "ACQSTREAM_ACQUISITION": notice.acquisition,
        "ACQSTREAM_PATH": notice.path,
        "ACQSTREAM_TIME": notice.time,
    }
    environment = {**os.environ, **{name: value.replace("\0", "") for name, value in variables.items()}}
    try:
        process = child_process.GroupProcess(arguments, environment)
    except OSError as error:
        raise NotSent(f"cannot be started: {error.strerror or error}") from error
    try:
        _, errors = process.communicate(json.dumps(notice.as_dict()).encode(), timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill_all()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1.0)  # a child in yet another session may keep its output open
        raise NotSent(f"did not end within {timeout_s:g} s") from error
    finally:
        process.release()
    if process.returncode:
        more = f"; it said {len(errors)} bytes, which may hold secrets: run it by hand to read them" if errors else ""
        raise NotSent(f"ended with {process.returncode}{more}")


def post(url: str, notice: Notice, timeout_s: float) -> None:
    """Send a notice as JSON. Raises NotSent. Redirections are not followed: they could lead to another machine."""
    parts = urlsplit(url)
    body = json.dumps({**notice.as_dict(), "content": notice.text}).encode()  # `text` and `content`: chat services
    headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout_s)
    # A bound for each call on a socket does not bound an answer that comes byte by byte.
    is_late = threading.Event()
    deadline = threading.Timer(timeout_s, _abort, (connection, is_late))
    deadline.start()
    try:
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if is_late.is_set() or isinstance(error, TimeoutError):
            raise NotSent(f"no answer within {timeout_s:g} s") from error
        raise NotSent(f"{type(error).__name__}: {error}") from error
    finally:
        deadline.cancel()
        connection.close()
    if is_late.is_set():  # what was cut looks like an answer that has ended
        raise NotSent(f"no answer within {timeout_s:g} s")
    if not 200 <= status < 300:
        raise NotSent(f"the server answered {status}")


def _attempt_of(target: NoticeTarget) -> Callable[[Notice, float], None]:
    match target:
        case CommandTarget(arguments):
            return lambda notice, timeout_s: run_command(arguments, notice, timeout_s)
        case AddressTarget(url):
            return lambda notice, timeout_s: post(url, notice, timeout_s)


def _connection(scheme: str, name: str, port: int | None, timeout_s: float) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(name, port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(name, port, timeout=timeout_s)


def _abort(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    is_late.set()
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(2)  # wakes the thread that reads


TICK_INTERVAL_S = 1.0
END_S = 5.0  # a service manager waits for this process before it starts the daemon again
MAX_SETTINGS_BYTES = 2**20


class Notifier:
    """Asks the daemon at intervals, and gives what it finds to each sender."""

    def __init__(self, watch: DaemonWatch, finder: NoticeFinder, senders: Sequence[NoticeSender]) -> None:
        self._watch = watch
        self._finder = finder
        self._senders = senders

    def tick(self) -> list[Notice]:
        """Ask once, and queue what is worth a notice."""
        return self._give(self._finder.find(self._watch.tick()))

    def run(self, ended: threading.Event, interval_s: float = TICK_INTERVAL_S) -> None:
        """Ask until `ended` is set; then report how the runs have ended, and send what is left."""
        while not ended.wait(interval_s):
            self.tick()
        self._give(self._finder.find(self._watch.note_end_of_daemon("the daemon has ended")))
        for sender in self._senders:
            sender.put(None)
        for sender in self._senders:
            sender.close(END_S / len(self._senders))
        self._watch.close()

    def _give(self, notices: list[Notice]) -> list[Notice]:
        for notice in notices:
            logger.info("notice: %s", notice.text)
            for sender in self._senders:
                sender.put(notice)
        return notices


def run_notifier(source: BinaryIO) -> None:
    """Run the process with the settings that `source` begins with, until `source` ends."""
    settings = json.loads(source.readline(MAX_SETTINGS_BYTES))
    senders = [NoticeSender(parse_target(text)) for text in settings["targets"]]
    finder = NoticeFinder(socket.gethostname(), float(settings["no_frames_s"]))
    ended = threading.Event()

    def wait_for_end() -> None:
        while source.read(4096):
            pass
        ended.set()

    threading.Thread(target=wait_for_end, name="end-of-daemon", daemon=True).start()
    Notifier(DaemonWatch(settings["endpoint"]), finder, senders).run(ended)


def main() -> None:
    """Run the process. Signals of a service manager reach all processes of a service: the daemon decides the end."""
    for number in child_process.ignored_signals():
        signal.signal(number, signal.SIG_IGN)
    never_wait_for_output()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    child_process.yield_to_parent()
    run_notifier(sys.stdin.buffer)


if __name__ == "__main__":
    main()
