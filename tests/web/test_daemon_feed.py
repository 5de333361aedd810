"""The feed reports each second, also while the daemon does not answer, and logs a silence once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest

from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web import daemon_feed
from acqstream.web.daemon_feed import DaemonFeed, feeding
from tests.monitor.views_of_daemons import run_status, view_of
from tests.waiting import WAIT_S

SILENT = DaemonView(why="no daemon answers at x")


class ScriptedWatch:
    """Answers with `view`, or raises it; waits for `gate` before."""

    def __init__(self) -> None:
        self.view: DaemonView | Exception = SILENT
        self.gate = threading.Event()
        self.gate.set()

    def tick(self) -> DaemonView:
        assert self.gate.wait(WAIT_S)
        if isinstance(self.view, Exception):
            raise self.view
        return self.view

    def close(self) -> None:
        pass


def run(body: Callable[[ScriptedWatch, DaemonFeed], Awaitable[None]]) -> None:
    async def main() -> None:
        watch = ScriptedWatch()
        feed = DaemonFeed(watch)
        try:
            await body(watch, feed)
        finally:
            watch.gate.set()
            feed.close()

    asyncio.run(main())


def test_a_silence_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "acqstream.web")

    async def body(watch: ScriptedWatch, feed: DaemonFeed) -> None:
        for view in (view_of(), SILENT, OSError("broken"), SILENT, view_of(), view_of(), OSError("broken"), SILENT):
            watch.view = view
            await feed.ask()

    run(body)
    first, again, broken = caplog.messages
    assert first == "no word from the daemon: no daemon answers at x"
    assert again.startswith("the daemon answers again after ")
    assert broken == "cannot read the status of the daemon"


def test_an_error_leaves_no_status() -> None:
    async def body(watch: ScriptedWatch, feed: DaemonFeed) -> None:
        run = run_status()
        watch.view = view_of(run)
        await feed.ask()
        assert feed.silence_s is not None
        watch.view = ValueError("not a status")
        await feed.ask()
        assert (feed.view.status, feed.view.running) == (None, (run,))
        assert "not a status" in feed.view.why

    run(body)


def test_the_silence_counts_from_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("acqstream.web.daemon_feed.time.monotonic", lambda: now_s)

    async def body(watch: ScriptedWatch, feed: DaemonFeed) -> None:
        nonlocal now_s
        await feed.ask()
        assert feed.silence_s is None
        watch.view = view_of()
        await feed.ask()
        now_s += 7
        watch.view = SILENT
        await feed.ask()
        assert feed.silence_s == 7
        watch.view = view_of()
        await feed.ask()
        assert feed.silence_s == 0

    run(body)


def test_reports_come_while_a_question_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.web.daemon_feed.LOOK_INTERVAL_S", 0.001)

    async def body(watch: ScriptedWatch, feed: DaemonFeed) -> None:
        watch.view = view_of()
        task = asyncio.create_task(feed.run())
        while feed.silence_s is None:
            await asyncio.wait_for(feed.wait_for_report(feed.n_reports), WAIT_S)
        watch.gate.clear()
        for _ in range(5):
            await asyncio.wait_for(feed.wait_for_report(feed.n_reports), WAIT_S)
        watch.view = SILENT
        watch.gate.set()
        while feed.view.status is not None:
            await asyncio.wait_for(feed.wait_for_report(feed.n_reports), WAIT_S)
        task.cancel()

    run(body)


@pytest.mark.parametrize("steps", range(6))
def test_an_end_at_any_moment_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, steps: int
) -> None:
    monkeypatch.setattr(daemon_feed, "DaemonWatch", lambda endpoint: ScriptedWatch())

    async def main() -> None:
        async with feeding(None):
            for _ in range(steps):
                await asyncio.sleep(0)  # the loop goes one step further

    asyncio.run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
