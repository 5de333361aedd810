"""The daemon's child processes, for views, web and notices: start, restart after pauses, orders and reports, end.

Used by the loop. No call here waits for a child, but those that end one with the daemon. What happens to a child costs
no run anything.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import acqstream
from acqstream.daemon.config import DaemonConfig
from acqstream.storage.handover import OrderSender
from acqstream.storage.platform import child_process

logger = logging.getLogger("acqstream.daemon")

TOKEN_NAME = "web-token"
EXIT_CONFIGURATION = 78  # of the web process: a restart cannot help
NOTICES_PAUSE_S = 30.0
_READ_BYTES = 65536
_MAX_READS = 16  # in one call of `reports`
_LOOK_S = 0.2
WEB_END_S = 3.0
_STARTED_S = time.time()


_Child = TypeVar("_Child", "WorkerProcess", "PipedProcess")


class ChildSupervisor(Generic[_Child]):
    """Starts one child, and again when it has died, after a pause that doubles with every death in a row.

    name: in the log. process: None while it does not run. A child that lived for more than well_after_s was well. After
    final_code a restart cannot help. is_wanted=False: there is none.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], _Child],
        *,
        first_pause_s: float,
        max_pause_s: float,
        well_after_s: float = math.inf,
        final_code: int | None = None,
        is_wanted: bool = True,
    ) -> None:
        self.process: _Child | None = None
        self.deaths = 0  # in a row
        self._name = name
        self._start: Callable[[], _Child] = start
        self._first_pause_s, self._max_pause_s, self._well_after_s = first_pause_s, max_pause_s, well_after_s
        self._final_code = final_code
        self._is_wanted = is_wanted
        self._look_at_s = self._start_at_s = self._started_s = 0.0

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def tick(self, now_s: float) -> None:
        """Start the child, and again when it has died. Raises nothing."""
        if not self._is_wanted or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        code = None if self.process is None else self.process.poll()
        if code is not None:
            self.release()
            self.note_death(now_s)
            if code == self._final_code:
                logger.error("the %s cannot work with this configuration; it is not started again", self._name)
                self._is_wanted = False
                return
            logger.warning("the %s ended (%s); starting it again", self._name, exit_text(code))
        self.start_if_due(now_s)

    def start_if_due(self, now_s: float) -> bool:
        """True if the child was started now: it did not run, and the pause is over."""
        if self.process is not None or now_s < self._start_at_s:
            return False
        try:
            self.process = self._start()
        except OSError as error:
            logger.error("cannot start the %s: %s", self._name, error)  # noqa: TRY400 - the text says all
            self._start_at_s = now_s + self._max_pause_s
            return False
        self._started_s = now_s
        return True

    def note_death(self, now_s: float) -> float:
        """Plan the next start; return the pause before it, in seconds."""
        if now_s - self._started_s > self._well_after_s:
            self.deaths = 0
        pause_s = min(self._first_pause_s * float(2 ** min(self.deaths, 10)), self._max_pause_s)
        self.deaths += 1
        self._start_at_s = now_s + pause_s
        return pause_s

    def release(self) -> None:
        """Forget the child, which has ended, or ends by itself."""
        process, self.process = self.process, None
        if process is not None:
            process.release()

    def close(self, timeout_s: float = 0.0) -> None:
        """End the child in order, and kill it if it has not ended within timeout_s; 0: it ends by itself."""
        self._is_wanted = False
        if self.process is not None:
            self.process.end()
            if timeout_s > 0:
                self.process.wait(timeout_s)
        self.release()


class InvalidReport(Exception):
    """The worker sent a line that is not a report."""


class WorkerProcess:
    """A running child with a socket to it, which ends with the daemon, in whatever way that ends.

    Orders that cannot be sent now are sent by a later `send`. is_ending: it was asked to end and takes no more orders.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start `command` with two arguments added, see `storage.platform`. Raises OSError."""
        self.is_ending = False
        # Called by the daemon's loop: Linux ends the child with the thread that started it.
        environment = child_environment()
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts a thread for each core, which nothing uses
        self._process = child_process.ChildProcess(command, environment)
        self._connection = self._process.connection
        self._connection.setblocking(False)
        self._orders = OrderSender(self._connection, self._process.pid)
        self._pending = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.poll()

    @property
    def blocked_s(self) -> float:
        """Seconds for which the worker has not read an order that waits to be sent."""
        since_s = self._orders.blocked_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def order(self, order: dict[str, Any], *handles: int) -> None:
        """Queue an order. Handles are duplicated, as they may be closed before it is sent. Raises OSError."""
        if self.is_ending:
            return
        self._orders.add(order, *handles)

    def send(self) -> None:
        """Send the queued orders, as far as the socket takes them now."""
        with contextlib.suppress(OSError):  # the worker is dying; `poll` reports it
            self._orders.send()

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield the reports that have arrived. Raises InvalidReport."""
        for _ in range(_MAX_READS):
            try:
                data = self._connection.recv(_READ_BYTES)
            except OSError:
                return  # no data now, or the worker is dying
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                try:
                    report = json.loads(line)
                except ValueError as error:
                    raise InvalidReport(f"{line!r:.80} is not JSON") from error
                if not isinstance(report, dict):
                    raise InvalidReport(f"{line!r:.80} is not an object")
                yield report
            if len(self._pending) > _READ_BYTES:
                raise InvalidReport(f"a line of more than {_READ_BYTES} bytes")
            if not data:
                return

    def end(self) -> None:
        """Close the sending side: the child ends in order."""
        if not self.is_ending:
            self.is_ending = True
            with contextlib.suppress(OSError):  # it is dying already
                self._connection.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> bool:
        """After `end`: wait until the worker has ended. Returns False if it had to be killed."""
        self._connection.settimeout(timeout_s)
        try:
            while data := self._connection.recv(_READ_BYTES):
                del data  # no reader is left, but the worker must not block on a full socket
            self._process.wait(timeout_s)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
            return False
        return True

    def release(self) -> None:
        """Close the socket and the handles of orders that were not sent."""
        self._connection.close()
        self._orders.close()
        self._process.release()


class PipedProcess(subprocess.Popen[bytes]):
    """A child that gets its settings by its input and may outlive the daemon for a moment, until it has done its work.

    Not by arguments, which every user of the machine can read: addresses may have secrets.
    """

    def __init__(self, command: Sequence[str], settings: bytes) -> None:
        super().__init__(command, stdin=subprocess.PIPE, env=child_environment())
        assert self.stdin is not None
        with contextlib.suppress(OSError):  # it has died already: started again later
            self.stdin.write(settings)  # less than a pipe holds, so it does not wait for the process
            self.stdin.flush()

    def release(self) -> None:
        self.end()

    def end(self) -> None:
        """Close its input: it ends in order."""
        assert self.stdin is not None
        with contextlib.suppress(OSError):
            self.stdin.close()


def web_process(config: DaemonConfig, endpoints: Sequence[str]) -> ChildSupervisor[WorkerProcess]:
    """The web face, if the configuration wants it; it reads files only. endpoints: as of `needs_token`."""
    command = [sys.executable, "-P", "-m", "acqstream.web.web_server", json.dumps(_settings(config, endpoints))]
    return ChildSupervisor(
        "web process",
        partial(WorkerProcess, command),
        first_pause_s=1.0,
        max_pause_s=60.0,
        well_after_s=60.0,
        final_code=EXIT_CONFIGURATION,
        is_wanted=config.web,
    )


def notifier_process(
    targets: Sequence[str],
    no_frames_s: float,
    endpoint: str,
    command: Sequence[str] = (sys.executable, "-m", "acqstream.monitor.notifier"),
) -> ChildSupervisor[PipedProcess]:
    """The process that sends notices, if there are targets. It reports the last ends of runs when the daemon has ended.

    endpoint: where it asks for the status. command: of the process.
    """
    settings = {"endpoint": endpoint, "targets": list(targets), "no_frames_s": no_frames_s}
    start = partial(PipedProcess, command, json.dumps(settings).encode() + b"\n")
    pause_s = NOTICES_PAUSE_S
    return ChildSupervisor("notifier", start, first_pause_s=pause_s, max_pause_s=pause_s, is_wanted=bool(targets))


def child_environment() -> dict[str, str]:
    """This process's environment, with the folder of this package first in the child's module path."""
    root = os.path.dirname(os.path.dirname(acqstream.__file__))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def exit_text(code: int) -> str:
    """Return the text of a return code of `subprocess`: the exit code, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def replaced_hint() -> str:
    """Return what to do if a file of this package is newer than the process, or is gone; else nothing."""
    hint = "the program was replaced while this daemon ran; restart the daemon"
    names = [name for name in sys.modules if name.partition(".")[0] == "acqstream"]
    for path in filter(None, (getattr(sys.modules[name], "__file__", None) for name in names)):
        try:
            status = os.stat(path)
        except OSError:
            return hint
        if max(status.st_mtime, status.st_ctime) > _STARTED_S:
            return hint
    return ""


def needs_token(config: DaemonConfig, endpoints: Sequence[str]) -> bool:
    """Return True if the web face asks for a token.

    Unless the configuration decides: if each way to the daemon is a local socket or needs a key. Only some users have
    these, but every user of the machine can connect to a port. endpoints: without remote ones, which all need a key.
    """
    if config.web_token is not None:
        return config.web_token
    return config.has_key or not any(endpoint.startswith("tcp:") for endpoint in endpoints)


def _settings(config: DaemonConfig, endpoints: Sequence[str]) -> dict[str, object]:
    """The arguments of WebSettings, as JSON; token_file for its token."""
    token_file: Path | None = None
    if needs_token(config, endpoints):
        token_file = config.runtime / TOKEN_NAME
    return {
        "data": str(config.data),
        "address": config.web_address,
        "port": config.web_port,
        "endpoint": endpoints[0] if endpoints else None,
        "hosts": config.web_hosts,
        "origins": config.web_origins,
        "token_file": None if token_file is None else str(token_file),
        "neuroglancer": None if config.web_neuroglancer is None else str(config.web_neuroglancer),
        "read_mb_s": config.web_read_mb_s,
    }
