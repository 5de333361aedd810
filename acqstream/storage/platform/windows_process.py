"""Processes of Windows: child processes, this one and how it is asked to end, and detached ones.

The socket of a child to its parent, which it must not outlive, is one end of a pair on loopback. It reaches the child
through its standard input, as WSADuplicateSocketW describes it for that process. A job object with
JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE ends the child, and all that it has started, when the last handle of the job is
closed: the parent has the only one (learn.microsoft.com, "Job Objects").

A window that nobody sees learns of a log-off or shutdown. A console handler does not: "If a console application loads
the gdi32.dll or user32.dll library, the HandlerRoutine function is not called for CTRL_LOGOFF_EVENT and
CTRL_SHUTDOWN_EVENT" (SetConsoleCtrlHandler). A program without a console has no other way.

Sources: WM_QUERYENDSESSION, WM_ENDSESSION, CreateWindowExW, SetConsoleCtrlHandler, HandlerRoutine,
SetThreadExecutionState and "Process Creation Flags" on learn.microsoft.com. With the names of `posix_process`.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int64, c_size_t, c_uint32, c_uint64, sizeof
from enum import IntEnum
from types import TracebackType
from typing import Any

from acqstream.storage.platform.windows_api import (
    WIN_CTYPES,
    advapi32,
    call_error,
    check_success,
    close_handle,
    kernel32,
    open_process,
    user32,
    using,
)

_HKEY_LOCAL_MACHINE = 0x80000002
_READ_TEXT, _READ_NUMBER = 0x02, 0x10  # RRF_RT_REG_SZ, RRF_RT_REG_DWORD
_64_BIT_VIEW = 0x00010000  # RRF_SUBKEY_WOW6464KEY
_MAX_BYTES = 512
_MACHINE = r"SOFTWARE\Microsoft\Cryptography", "MachineGuid"
_BOOT = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters", "BootId"


def boot_id() -> str:
    """An id that differs between machines, and between two starts of one; empty if the system has none.

    The GUID of the installation, the computer's name (copies of one disk image have the same GUID), and the number of
    starts, which Windows counts for its prefetcher. The time of the start would not do: it moves with the clock.
    """
    machine = _read(*_MACHINE, _READ_TEXT).decode("utf-16-le", "replace").rstrip("\0")
    if not machine:
        return ""
    starts = int.from_bytes(_read(*_BOOT, _READ_NUMBER), "little")
    return f"{machine}-{platform.node()}-{starts}"


def _read(key: str, value: str, kind: int) -> bytes:
    """The bytes of a registry value (RegGetValueW); none if it is missing."""
    data, size = ctypes.create_string_buffer(_MAX_BYTES), ctypes.c_uint32(_MAX_BYTES)
    flags = kind | _64_BIT_VIEW
    code = advapi32().RegGetValueW(_HKEY_LOCAL_MACHINE, key, value, flags, None, data, ctypes.byref(size))
    return data.raw[: size.value] if code == 0 else b""


logger = logging.getLogger("acqstream.daemon")

WM_DESTROY, WM_CLOSE, WM_QUERYENDSESSION, WM_ENDSESSION = 0x0002, 0x0010, 0x0011, 0x0016
_TOOL_WINDOW = 0x80  # WS_EX_TOOLWINDOW: not in the task bar
_START_S = 5.0


class _WindowClass(ctypes.Structure):
    """WNDCLASSW."""

    _fields_ = (
        ("style", ctypes.c_uint),
        ("procedure", ctypes.c_void_p),
        ("class_extra", ctypes.c_int),
        ("window_extra", ctypes.c_int),
        ("instance", ctypes.c_void_p),
        ("icon", ctypes.c_void_p),
        ("cursor", ctypes.c_void_p),
        ("background", ctypes.c_void_p),
        ("menu", ctypes.c_wchar_p),
        ("name", ctypes.c_wchar_p),
    )


class LogOffWindow:
    """Calls `on_end` in a thread of its own when the session of the user ends, until `close`.

    Windows ends the process when on_end returns, or 5 s later. Where no window can be made, as in some services,
    nothing is noticed, and `exists` is False.
    """

    def __init__(self, on_end: Callable[[], object]) -> None:
        self._on_end = on_end
        self._window: int | None = None
        self._is_ready = threading.Event()
        self._user: Any = user32()
        self._thread = threading.Thread(target=self._serve, name="log-off", daemon=True)
        self._thread.start()
        self._is_ready.wait(_START_S)

    @property
    def exists(self) -> bool:
        return self._window is not None

    def send(self, message: int, word: int) -> int:
        """Send a message as Windows does, and return the answer of the window."""
        answer: int = self._user.SendMessageW(self._window, message, word, None)
        return answer

    def close(self) -> None:
        """Let the thread end, unless it is in on_end."""
        if self._window is not None:
            self._user.PostMessageW(self._window, WM_CLOSE, None, None)

    def _serve(self) -> None:
        prototype = WIN_CTYPES.WINFUNCTYPE(
            ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
        )
        procedure = prototype(self._handle)  # must live as long as the window
        name = f"acqstream-{os.getpid()}"
        kind = _WindowClass(procedure=ctypes.cast(procedure, ctypes.c_void_p), name=name)
        self._user.RegisterClassW(ctypes.byref(kind))
        # A window of the desktop: those that are made for messages alone are not told of a log-off.
        self._window = self._user.CreateWindowExW(_TOOL_WINDOW, name, name, 0, 0, 0, 0, 0, None, None, None, None)
        self._is_ready.set()
        if self._window is None:
            logger.info("no log-off will be noticed: %s", call_error("CreateWindowExW"))
            return
        message = ctypes.create_string_buffer(64)  # MSG has 48 bytes
        while self._user.GetMessageW(message, None, 0, 0) > 0:
            self._user.DispatchMessageW(message)

    def _handle(self, window: int, message: int, word: int | None, extra: int | None) -> int:
        if message == WM_QUERYENDSESSION:
            return 1  # the session may end
        if message == WM_ENDSESSION and word:
            self._on_end()
            return 0
        if message == WM_DESTROY:
            self._user.PostQuitMessage(0)
            return 0
        result: int = self._user.DefWindowProcW(window, message, word, extra)
        return result


STOP_SIGNALS: tuple[int, ...] = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGTERM))

FINISH_S = 4.0
"""Seconds for an ordered end when a console closes. Windows ends the process after 5 s (HandlerRoutine, Timeouts)."""
_LINGER_S = 10.0  # longer than Windows waits
_ES_CONTINUOUS, _ES_SYSTEM_REQUIRED = 0x80000000, 0x00000001


def session_signals() -> tuple[int, ...]:
    """Return nothing: `ConsoleWatch` is told of the end of a session."""
    return ()


class ConsoleEvent(IntEnum):
    """Values of dwCtrlType."""

    CTRL_C = 0
    CTRL_BREAK = 1
    CLOSE = 2
    LOGOFF = 5
    SHUTDOWN = 6


class ConsoleWatch:
    """Calls `stop` at each event of the console and at the log-off, in the block of a `with` statement.

    Windows calls the handler in a thread of its own, so a poll of the main thread need not be interrupted, as signals
    cannot do on Windows. stop takes the seconds that remain; None: as many as it needs.
    """

    def __init__(self, stop: Callable[[float | None], None]) -> None:
        self._stop = stop
        self._has_ended = threading.Event()
        self._handler: object = None
        self._window: LogOffWindow | None = None

    def handle(self, event: int) -> bool:
        """Return True if the event needs no other handler."""
        if event in (ConsoleEvent.CTRL_C, ConsoleEvent.CTRL_BREAK):
            self._stop(None)
            return True
        if event not in (ConsoleEvent.CLOSE, ConsoleEvent.LOGOFF, ConsoleEvent.SHUTDOWN):
            return False
        self._stop(FINISH_S)
        # Windows ends the process as soon as this returns. So let the main thread end it, with its exit code.
        if self._has_ended.wait(_LINGER_S):
            threading.Event().wait(_LINGER_S)
        return True

    def __enter__(self) -> ConsoleWatch:
        # The object that Windows calls must live as long as it is registered.
        self._handler = WIN_CTYPES.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(self.handle)
        check_success(kernel32().SetConsoleCtrlHandler(self._handler, True), "SetConsoleCtrlHandler")
        self._window = LogOffWindow(lambda: self.handle(ConsoleEvent.LOGOFF))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        if self._window is not None:
            self._window.close()
        # The handler stays registered: an event while the interpreter ends must not change the exit code.


console_watch = ConsoleWatch


def keep_awake(is_needed: bool) -> None:
    """Keep the PC from sleeping until called with False. Raises OSError. The screen may turn off.

    Windows keeps this state for the calling thread, so always call it from the same one.
    """
    state = _ES_CONTINUOUS | (_ES_SYSTEM_REQUIRED if is_needed else 0)
    check_success(kernel32().SetThreadExecutionState(state), "SetThreadExecutionState")


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


class _JobProcess(subprocess.Popen[bytes]):
    """A program in a job, whose handle is open until `release`."""

    _job: int

    def release(self) -> None:
        """Close the job, which ends a child if it is running; else what it has started may live on. Idempotent."""
        job, self._job = self._job, 0
        if job:
            close_handle(job)


class ChildProcess(_JobProcess):
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
    job = check_success(kernel32().CreateJobObjectW(None, None), "cannot create a job object")
    if not kills_on_close:
        return job
    limits = _ExtendedLimits(flags=_KILL_ON_JOB_CLOSE)
    if not kernel32().SetInformationJobObject(job, _EXTENDED_LIMITS, byref(limits), sizeof(limits)):
        error = call_error("cannot set up a job object")
        close_handle(job)
        raise error
    return job


def _assign(job: int, process: int) -> None:
    with using(open_process(process, _PROCESS_TERMINATE | _PROCESS_SET_QUOTA)) as handle:
        done = kernel32().AssignProcessToJobObject(job, handle)
        check_success(done, f"cannot assign process {process} to its job object")


class GroupProcess(_JobProcess):
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


_CREATE_NEW_PROCESS_GROUP = 0x0000_0200  # Ctrl-C does not reach it
_CREATE_BREAKAWAY_FROM_JOB = 0x0100_0000  # else it ends with the job of a terminal or a notebook server

_ALONE = _CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW
DETACHED_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"creationflags": _ALONE | _CREATE_BREAKAWAY_FROM_JOB},
    {"creationflags": _ALONE},  # where the job lets no process leave
)
"""Keywords for subprocess.Popen, the best first."""
