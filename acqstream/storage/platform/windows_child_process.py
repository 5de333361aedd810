"""A child process with a local socket to its parent, which must not outlive it (Windows).

The socket is one end of a pair on loopback. It reaches the child through its standard input, as WSADuplicateSocketW
describes it for that process. A job object with JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE ends the child, and all that it has
started, when the last handle of the job is closed: the parent has the only one (learn.microsoft.com, "Job Objects").
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int64, c_size_t, c_uint32, c_uint64, sizeof

from acqstream.storage.platform.windows_api import call_error, close_handle, kernel32, open_process

_BELOW_NORMAL_PRIORITY_CLASS = 0x4000
_CREATE_NO_WINDOW = 0x0800_0000  # no console opens on the screen
_PROCESS_TERMINATE, _PROCESS_SET_QUOTA = 0x1, 0x100  # what AssignProcessToJobObject requires
_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
_KILL_ON_JOB_CLOSE = 0x2000


class _ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of 64-bit Windows."""

    _fields_ = (
        ("process_time", c_int64),
        ("job_time", c_int64),
        ("flags", c_uint32),
        ("min_working_set", c_size_t),
        ("max_working_set", c_size_t),
        ("active_processes", c_uint32),
        ("affinity", c_size_t),
        ("priority", c_uint32),
        ("scheduling", c_uint32),
        ("io_counters", c_uint64 * 6),
        ("process_memory", c_size_t),
        ("job_memory", c_size_t),
        ("peak_process_memory", c_size_t),
        ("peak_job_memory", c_size_t),
    )


class ChildProcess(subprocess.Popen[bytes]):
    """A child, started with two arguments added, which `adopt_connection` and `follow_parent` take.

    connection is the parent's end of the socket; the caller closes it, and calls `release`. Raises OSError.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._job = _make_job(kills_on_close=True)
        self.connection, theirs = socket.socketpair()
        try:
            with theirs:
                program, variables = interpreter(command[0], environment)
                super().__init__(
                    [program, *command[1:], "stdin", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    env=variables,
                    creationflags=_BELOW_NORMAL_PRIORITY_CLASS,
                )
                try:
                    _assign(self._job, self.pid)  # before the child receives anything: without it, it ends
                    self._give(theirs)
                except OSError:
                    self.kill()
                    self.wait()
                    raise
        except OSError:
            self.connection.close()
            self.release()
            raise

    def release(self) -> None:
        """Close the job, which ends the child if it is running. Repeated calls do nothing."""
        job, self._job = self._job, 0
        if job:
            close_handle(job)

    def _give(self, theirs: socket.socket) -> None:
        """Send the socket's description, which is smaller than a pipe's buffer: this does not wait."""
        assert self.stdin is not None
        with self.stdin as pipe, contextlib.suppress(BrokenPipeError):  # the child has died: its exit code tells
            pipe.write(theirs.share(self.pid))  # type: ignore[attr-defined] # of Windows only


def adopt_connection(argument: str) -> socket.socket:
    """In the child: the socket to its parent, from standard input. argument is the first one that was added."""
    assert argument == "stdin", argument
    description = sys.stdin.buffer.read()
    if not description:
        sys.exit(1)  # the parent has ended
    connection: socket.socket = vars(socket)["fromshare"](description)
    return connection


def follow_parent(argument: str) -> None:
    """In the child: do nothing, as the job ends it. Exits if the process of this number is not its parent."""
    if os.getppid() != int(argument):
        sys.exit(1)


def yield_to_parent() -> None:
    """In the child: do nothing, as it was started with a lower priority."""


def ignored_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a console sends to the child with its parent."""
    return signal.SIGINT, signal.SIGTERM, vars(signal)["SIGBREAK"]


def interpreter(program: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the program and its environment, without the launcher of a virtual environment.

    Its python.exe starts the real one as a child: the socket and the handles would go to the wrong process. So the real
    one is started with the variable that the launcher would set, as multiprocessing does (popen_spawn_win32.py).
    """
    base = vars(sys)["_base_executable"]
    if program != sys.executable or base == sys.executable:
        return program, dict(environment)
    return base, {**environment, "__PYVENV_LAUNCHER__": sys.executable}


def _make_job(*, kills_on_close: bool) -> int:
    """Return the handle of a job, which may end its processes when it is closed. Raises OSError."""
    job: int | None = kernel32().CreateJobObjectW(None, None)
    if not job:
        raise call_error("cannot create a job object")
    if not kills_on_close:
        return job
    limits = _ExtendedLimits(flags=_KILL_ON_JOB_CLOSE)
    if not kernel32().SetInformationJobObject(job, _EXTENDED_LIMITS, byref(limits), sizeof(limits)):
        error = call_error("cannot set up a job object")
        close_handle(job)
        raise error
    return job


def _assign(job: int, process: int) -> None:
    handle = open_process(process, _PROCESS_TERMINATE | _PROCESS_SET_QUOTA)
    try:
        if not kernel32().AssignProcessToJobObject(job, handle):
            raise call_error(f"cannot assign process {process} to its job object")
    finally:
        close_handle(handle)


class GroupProcess(subprocess.Popen[bytes]):
    """A program that can be killed with all that it has started: `kill_all`. Raises OSError.

    It has pipes for input and errors, and no output. The caller calls `release`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._job = _make_job(kills_on_close=False)
        try:
            super().__init__(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environment),
                creationflags=_CREATE_NO_WINDOW,
            )
        except OSError:
            self.release()
            raise
        # What it starts before this call is not in the job; a process that has ended already cannot enter one.
        with contextlib.suppress(OSError):
            _assign(self._job, self.pid)

    def kill_all(self) -> None:
        """Kill it and its children."""
        if self._job:
            kernel32().TerminateJobObject(self._job, 1)
        self.kill()  # in case it is not in the job

    def release(self) -> None:
        """Forget it when it has ended; what it has started may live on. Repeated calls do nothing."""
        job, self._job = self._job, 0
        if job:
            close_handle(job)
