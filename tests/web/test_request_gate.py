"""Bounds on all answers together: requests, bytes in transit, bytes a second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acqstream.model.status import AcquisitionStatus
from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web.request_gate import BytePool, GateClosed, RequestGate
from acqstream.web.web_settings import WebLimits
from tests.waiting import until
from tests.web.web_process import web_thread

ANSWER = 10_000_000


def waits_of(
    monkeypatch: pytest.MonkeyPatch, limits: WebLimits, *, is_recording: bool, answers: int = 4
) -> list[float]:
    """How long each of some answers, begun at once, waits before it is sent; 0 is not listed."""
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    async def send() -> None:
        gate = RequestGate(limits, lambda: is_recording)
        for _ in range(answers):
            await gate.pace(ANSWER)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(send())
    return slept


def test_answers_are_paced_while_the_daemon_records(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = WebLimits(recording_bytes_per_s=ANSWER // 1000)  # an answer in 1000 s: no machine is that slow
    first, second, third = waits_of(monkeypatch, limits, is_recording=True)
    assert 900 < first < 1001
    assert 1900 < second < 2001
    assert 2900 < third < 3001


def test_answers_are_not_paced_while_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits_of(monkeypatch, WebLimits(recording_bytes_per_s=1), is_recording=False) == []


def test_clients_that_leave_use_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def run() -> None:
        gate = RequestGate(WebLimits(read_bytes_per_s=ANSWER // 1000), lambda: False)

        async def leave(delay_s: float) -> None:
            slept.append(delay_s)
            raise asyncio.CancelledError

        await gate.pace(ANSWER)
        monkeypatch.setattr(asyncio, "sleep", leave)
        for _ in range(3):
            with pytest.raises(asyncio.CancelledError):
                await gate.pace(ANSWER)

    asyncio.run(run())
    assert len(slept) == 3
    assert all(900 < one < 1001 for one in slept)


@pytest.mark.parametrize("is_recording", [False, True])
def test_a_bound_of_the_user_holds_always(monkeypatch: pytest.MonkeyPatch, is_recording: bool) -> None:
    limits = WebLimits(read_bytes_per_s=ANSWER // 1000, recording_bytes_per_s=1)
    (first,) = waits_of(monkeypatch, limits, is_recording=is_recording, answers=2)
    assert 900 < first < 1001


def test_a_request_too_many_is_refused() -> None:
    gate = RequestGate(WebLimits(requests=2), lambda: False)
    with gate.request(), gate.request():
        with pytest.raises(GateClosed), gate.request():
            pass
        assert gate.peak_requests == 2
    with gate.request():
        pass


def test_answers_wait_in_the_order_in_which_they_came() -> None:
    """Also one that there would be room for: else many small ones keep a large one waiting without end."""
    order: list[Any] = []

    async def run() -> None:
        pool = BytePool(100)
        ends = {name: asyncio.Event() for name in ("first", "large", "small")}

        async def send(name: str, count: int) -> None:
            with await pool.take(count):
                order.append(name)
                await ends[name].wait()
            order.append(f"{name} ends")

        tasks = [asyncio.create_task(send(*one)) for one in (("first", 60), ("large", 200), ("small", 10))]
        for _ in range(10):
            await asyncio.sleep(0)
        with await pool.take(0):  # who needs none does not wait
            assert order == ["first"]
        assert pool.peak_bytes == 60
        for end in ends.values():
            end.set()
        await asyncio.gather(*tasks)
        assert pool.peak_bytes == 100

    asyncio.run(run())
    assert order == ["first", "first ends", "large", "large ends", "small", "small ends"]


def test_clients_that_leave_while_they_wait_take_nothing() -> None:
    async def run() -> None:
        pool = BytePool(100)

        async def send(count: int) -> None:
            with await pool.take(count):
                pass

        with await pool.take(60):
            waiting = [asyncio.create_task(send(count)) for count in (60, 100, 70)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.sleep(0)
            assert [task.done() for task in waiting] == [True, False, False]
        waiting[1].cancel()  # at the moment at which it could go on
        await waiting[2]
        await send(100)  # all bytes are back
        assert pool.peak_bytes == 100

    asyncio.run(run())


def test_the_server_asks_the_latest_status_whether_a_run_is_recorded(tmp_path: Path) -> None:
    with web_thread(tmp_path) as site:
        assert site.context is not None
        gate, feed = site.context.gate, site.context.feed
        recording = DaemonView(running=(AcquisitionStatus.__new__(AcquisitionStatus),))

        def is_recording(view: DaemonView) -> bool:
            feed.view = view  # until the feed looks again
            return gate._is_recording()

        until(lambda: is_recording(recording), "a run is recorded")
        until(lambda: not is_recording(DaemonView()), "nothing is recorded")
