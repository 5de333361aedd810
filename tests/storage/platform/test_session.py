"""How the system ends a program, and keeps awake."""

from __future__ import annotations

import inspect
import sys
import threading

import pytest

from acqstream.storage import platform
from acqstream.storage.platform import posix_process, windows_process
from acqstream.storage.platform.windows_process import (
    FINISH_S,
    WM_ENDSESSION,
    WM_QUERYENDSESSION,
    ConsoleEvent,
    ConsoleWatch,
    LogOffWindow,
)
from tests.waiting import WAIT_S, until

WINDOWS = pytest.mark.skipif(sys.platform != "win32", reason="calls Windows")


def test_both_systems_have_the_same_names() -> None:
    for name in ("STOP_SIGNALS", "console_watch", "keep_awake", "session_signals"):
        assert hasattr(posix_process, name)
        assert hasattr(windows_process, name)
        assert hasattr(platform, name)
    one, other = (inspect.signature(module.keep_awake) for module in (posix_process, windows_process))
    assert one == other


@pytest.mark.parametrize("event", [ConsoleEvent.CTRL_C, ConsoleEvent.CTRL_BREAK])
def test_a_key_stops_without_a_limit_of_time(event: ConsoleEvent) -> None:
    stops: list[float | None] = []
    assert ConsoleWatch(stops.append).handle(event)
    assert stops == [None]


def test_an_unknown_event_is_left_to_others() -> None:
    stops: list[float | None] = []
    assert not ConsoleWatch(stops.append).handle(7)
    assert stops == []


@pytest.mark.parametrize("event", [ConsoleEvent.CLOSE, ConsoleEvent.LOGOFF, ConsoleEvent.SHUTDOWN])
def test_the_handler_of_a_closed_console_outlives_the_daemon(
    event: ConsoleEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows ends the process when it returns: it must not return before the main thread has ended in order."""
    monkeypatch.setattr(windows_process, "_LINGER_S", WAIT_S)
    stops: list[float | None] = []
    watch = ConsoleWatch(stops.append)
    thread = threading.Thread(target=watch.handle, args=(event,), daemon=True)
    thread.start()
    until(lambda: stops == [FINISH_S], "the daemon is asked to stop")
    assert thread.is_alive()
    watch.__exit__(None, None, None)
    thread.join(0.2)
    assert thread.is_alive()


def test_the_time_to_finish_is_less_than_windows_waits() -> None:
    """HandlerRoutine, Timeouts: CTRL_CLOSE_EVENT, 5000 ms."""
    assert FINISH_S < 5.0 < windows_process._LINGER_S


@WINDOWS
def test_windows_takes_the_handler_and_keeps_awake() -> None:
    with platform.console_watch(lambda _seconds: None):
        pass
    platform.keep_awake(True)
    platform.keep_awake(False)


@WINDOWS
def test_a_log_off_asks_the_daemon_to_stop() -> None:
    """As Windows does it: a question that must be answered with yes, then the end, which may have been called off."""
    ends: list[str] = []
    window = LogOffWindow(lambda: ends.append(threading.current_thread().name))
    if not window.exists:
        pytest.skip("no windows in this session")
    assert window.send(WM_QUERYENDSESSION, 0) == 1
    assert window.send(WM_ENDSESSION, 0) == 0
    assert ends == []
    window.send(WM_ENDSESSION, 1)
    assert ends == ["log-off"]
    window.close()
