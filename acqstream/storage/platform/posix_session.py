"""How the system asks this process to end, and keeping the PC awake, on Linux and macOS."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

STOP_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a program to end. A handler runs in the main thread, and interrupts its poll."""


def session_signals() -> tuple[int, ...]:
    """Return the signals of a closed terminal and a log-off, which often come with others; none under `nohup`."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def console_watch(stop: Callable[[float | None], None]) -> AbstractContextManager[object]:
    """Watch nothing: signals report everything, also a closed terminal and a log-off."""
    del stop
    return nullcontext()


def keep_awake(is_needed: bool) -> None:
    """Do nothing: the desktop decides. docs/system-service.md shows systemd-inhibit and caffeinate."""
    del is_needed
