"""Learns of a log-off or shutdown by a window that nobody sees.

A console handler does not: "If a console application loads the gdi32.dll or user32.dll library, the HandlerRoutine
function is not called for CTRL_LOGOFF_EVENT and CTRL_SHUTDOWN_EVENT" (SetConsoleCtrlHandler). A program without a
console has no other way. Sources: WM_QUERYENDSESSION, WM_ENDSESSION, CreateWindowExW on learn.microsoft.com.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from acqstream.storage.platform.windows_api import WIN_CTYPES, call_error, user32

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
