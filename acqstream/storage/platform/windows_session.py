"""How Windows asks this process to end, and keeping the PC awake. With the names of `posix_session`.

Sources: SetConsoleCtrlHandler, HandlerRoutine and SetThreadExecutionState on learn.microsoft.com.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

from acqstream.storage.platform.windows_api import WIN_CTYPES, call_error, kernel32
from acqstream.storage.platform.windows_log_off import LogOffWindow

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
        if not kernel32().SetConsoleCtrlHandler(self._handler, True):
            raise call_error("SetConsoleCtrlHandler")
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
    if not kernel32().SetThreadExecutionState(state):
        raise call_error("SetThreadExecutionState")
