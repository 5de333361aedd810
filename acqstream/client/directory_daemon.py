"""The daemon of one data directory: finds it by the directory's lock, and starts it where none runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.default_endpoint import IPC, is_local, listening_user
from acqstream.errors import ConfigError, DaemonUnavailable, StorageError
from acqstream.model.daemon_note import STARTING, DaemonNote, parse_daemon_note
from acqstream.storage import platform
from acqstream.storage.files.directory_lock import LockHolder, holder_of
from acqstream.storage.files.small_file import last_lines
from acqstream.storage.platform.capabilities import ROOT_USER, effective_user_id
from acqstream.storage.platform.detached_process import DetachedProcess

CONFIG_VARIABLE = "ACQSTREAM_CONFIG"
LOG_NAME = ".acqstream.log"
MIN_START_S = 60.0
"""An interpreter may take that long to start on a busy PC, or with a virus scanner."""
_MAX_STARTS = 3
_LOCKED_EXIT = 75  # of `acqstream serve` when another daemon has the directory
_POLL_S = 0.02
_ANSWER_S = 1.0
_SHOWN_LINES = 8
_MAX_LINE = 300  # characters
_INTERPRETERS = ("python", "pypy", "graalpy")
# Of a service manager: they are for the process that it started, and not for a daemon that outlives that one.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "RUNTIME_DIRECTORY")


class DirectoryDaemon:
    """Finds and starts the daemon of the directory `data`, for one thread at a time.

    transport is that of `create`. log is the daemon's log file, empty where it logs elsewhere or is not known yet.
    Raises ConfigError if the directory does not exist.
    """

    def __init__(self, data: Path, transport: str = "auto") -> None:
        self.data = data.absolute()
        if not self.data.is_dir():
            raise ConfigError(f"data={str(data)!r} is not a directory; create it, or correct the path")
        self.log = ""
        self._transport = transport
        self._process: DetachedProcess | None = None
        self._starts = 0
        self._endpoint = ""  # the last one found
        self._note: DaemonNote | None = None  # of the daemon that was asked for its directory

    def wait(self, timeout_s: float) -> str:
        """Return the endpoint of the daemon, started if necessary. Raises as `locate`, and after timeout_s.

        timeout_s: at least MIN_START_S are waited.
        """
        deadline = time.monotonic() + max(timeout_s, MIN_START_S)
        try:
            while not (endpoint := self.find()):
                if time.monotonic() > deadline:
                    raise self._no_answer()
                time.sleep(_POLL_S)
        finally:
            self.release()
        return endpoint

    def locate(self) -> str:
        """Return the endpoint of the daemon, or the last one while another daemon starts. Waits for nothing.

        Raises DaemonUnavailable, with the last lines of its log, when a daemon cannot be started, and ConfigError or
        StorageError when the directory cannot be used.
        """
        return self.find() or self._endpoint

    def find(self) -> str:
        """As `locate`, but empty while no daemon has reported where it listens."""
        holder = holder_of(str(self.data))
        if holder is None:
            self._start()
            return ""
        note = parse_daemon_note(holder.note)
        if note is None:
            return ""  # it is recovering datasets
        self._check_machine(note, holder)
        self.log = note.log
        if note != self._note:
            if not self._serves_directory(note):
                return ""
            self._note = note
        self._endpoint, self._starts = self._endpoint_in(note), 0
        self.release()
        return self._endpoint

    def release(self) -> None:
        """Leave a daemon that was started alone from now on."""
        if self._process is not None:
            self._process.release()
            self._process = None

    def log_advice(self) -> str:
        """Return the end of an error message: the log's name and its last lines; empty without a log."""
        return log_advice(self.log)

    def _start(self) -> None:
        """Start a daemon, unless the one that was started is still on its way."""
        if self._process is not None:
            code = self._process.exit_code
            if code is None:
                return
            output = self._process.output()
            self.release()
            # Another daemon may have been faster, and have ended since.
            if code != _LOCKED_EXIT or self._starts >= _MAX_STARTS:
                raise self._not_started(f"ended with exit code {code}", output)
        self._starts += 1
        log = self.data / LOG_NAME
        try:
            self._process = DetachedProcess(_command(self.data, log), _environment(), self.data)
        except OSError as error:
            raise self._not_started(str(error), "") from error

    def _check_machine(self, note: DaemonNote, holder: LockHolder) -> None:
        if note.boot and platform.boot_id() and note.boot != platform.boot_id():
            raise DaemonUnavailable(
                f"{self.data} is in use by {holder.name}, on another machine or in a container; "
                f"connect to it by its endpoint (create(..., endpoint=...)), or use another directory"
            )

    def _serves_directory(self, note: DaemonNote) -> bool:
        """True if the daemon at that endpoint reports this directory as its own; False if it does not answer.

        The lock file may have been left by a daemon that was killed, and its port may have another owner now.
        """
        endpoint = self._endpoint_in(note)
        user = listening_user(endpoint)
        if user is not None and user not in (effective_user_id(), ROOT_USER):
            raise DaemonUnavailable(
                f"{endpoint}, of the daemon of {self.data}, is answered by a process of user {user}"
            )
        try:
            data = fetch_status(endpoint, timeout_s=_ANSWER_S).data
        except DaemonUnavailable:
            return False
        try:
            return os.path.samefile(data, self.data)
        except OSError:
            return False

    def _endpoint_in(self, note: DaemonNote) -> str:
        """The endpoint to connect to: a local socket that is seen here, else tcp."""
        local = [endpoint for endpoint in note.endpoints if is_local(endpoint)]
        tcp = [endpoint for endpoint in local if endpoint.startswith("tcp:")]
        sockets = [endpoint for endpoint in local if os.path.exists(endpoint.removeprefix(IPC))]
        if not local or (self._transport == "tcp" and not tcp):
            text = (
                f"the daemon of {self.data} listens at {', '.join(note.endpoints)}; expected a tcp endpoint on loopback"
            )
            raise ConfigError(f"{text} for transport={self._transport!r}")
        return (tcp if self._transport == "tcp" else [*sockets, *tcp, *local])[0]

    def _not_started(self, why: str, output: str) -> DaemonUnavailable:
        half = _SHOWN_LINES // 2  # ten lines in all
        printed = "".join(f"\n  {line[:_MAX_LINE]}" for line in output.strip().splitlines()[-half:])
        log = self.data / LOG_NAME
        advice = log_advice(str(log), half) if log.exists() else ""
        return DaemonUnavailable(f"cannot start a daemon for {self.data}: it {why}{printed}{advice}")

    def _no_answer(self) -> DaemonUnavailable:
        try:
            holder = holder_of(str(self.data))
        except StorageError:
            holder = None
        log = self.data / LOG_NAME
        advice = log_advice(self.log or (str(log) if log.exists() else ""))
        if holder is None:
            return DaemonUnavailable(f"the daemon started for {self.data} does not answer yet{advice}")
        return DaemonUnavailable(
            f"{self.data} is in use by {holder.name}, which does not answer: it may be recovering datasets, or be "
            f"another program{advice}"
        )


def endpoint_of(data: Path) -> str:
    """Return the endpoint of the daemon that holds the directory, without starting one.

    Raises DaemonUnavailable if none holds it, or it does not report where it listens; StorageError as `holder_of`.
    """
    holder = holder_of(str(data))
    if holder is None:
        raise DaemonUnavailable(f"no daemon has {data.absolute()} open")
    note = parse_daemon_note(holder.note)
    local = [] if note is None else [endpoint for endpoint in note.endpoints if is_local(endpoint)]
    if note is None and holder.process:  # only daemons write that
        raise DaemonUnavailable(f"{STARTING} ({holder.name}): it checks the datasets in {data.absolute()}; try again")
    if not local:
        raise DaemonUnavailable(f"{data.absolute()} is in use by {holder.name}, which reports no endpoint yet")
    return local[0]


def log_advice(path: str, count: int = _SHOWN_LINES) -> str:
    """Return the end of an error message: the log's name and its last lines; empty without a path."""
    if not path:
        return ""
    lines = [line[:_MAX_LINE] for line in last_lines(Path(path), count)]
    return "".join((f"\nlog {path}:" if lines else f"; its log is {path}", *(f"\n  {line}" for line in lines)))


def _command(data: Path, log: Path) -> list[str]:
    # Some programs have no interpreter (PyInstaller), or are their own (MATLAB): started again, they do what they do.
    is_python = Path(sys.executable or "").name.lower().startswith(_INTERPRETERS)
    if getattr(sys, "frozen", False) or not is_python:
        which = f" ({sys.executable} is none)" if sys.executable else ""
        text = f"data=: this program has no Python interpreter to start a daemon with{which}; run `acqstream serve`"
        raise ConfigError(text)
    config = os.environ.get(CONFIG_VARIABLE)
    command = [sys.executable, "-P", "-m", "acqstream", "serve", "--embedded", "--data", str(data), "--log", str(log)]
    return [*command, "--config", str(Path(config).absolute())] if config else command


def _environment() -> dict[str, str]:
    """This process's environment, with the folder of this package in the module path if it is not installed."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    root = os.path.dirname(os.path.dirname(acqstream.__file__))
    # Folders of installed packages come after the standard library, and some package there may have a module's name.
    if os.path.basename(root).lower().endswith("-packages"):
        return kept
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))}
