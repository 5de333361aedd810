"""Items due at their times, served by several threads of which one waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from acqstream.mirrors.view_worker import DueQueue
from tests.waiting import HANG_S, until


class Waits(threading.Condition):
    """Notes each time that a thread begins to wait: the time it waits at most."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.begun.append(timeout)
        return super().wait(timeout)


class Servers:
    """Threads that take items and note them. gates: names of items that keep their thread until the gate is set."""

    def __init__(self, queue: DueQueue[str], count: int, gates: str) -> None:
        self.queue = queue
        self.served: list[tuple[str, str]] = []
        self.gates = {name: threading.Event() for name in gates}
        self.threads = [threading.Thread(target=self._serve, name=f"server-{n}") for n in range(count)]
        for thread in self.threads:
            thread.start()

    def _serve(self) -> None:
        while (item := self.queue.next()) is not None:
            self.served.append((threading.current_thread().name, item))
            if item in self.gates:
                assert self.gates[item].wait(HANG_S)

    @property
    def items(self) -> list[str]:
        return [item for _, item in self.served]


@contextmanager
def serving(count: int, gates: str = "") -> Iterator[tuple[DueQueue[str], Waits, Servers]]:
    queue: DueQueue[str] = DueQueue()
    queue._changed = waits = Waits()
    servers = Servers(queue, count, gates)
    try:
        until(lambda: len(waits.begun) >= count, "all threads wait")
        yield queue, waits, servers
    finally:
        for gate in servers.gates.values():
            gate.set()
        queue.close()
        for thread in servers.threads:
            thread.join(HANG_S)
            assert not thread.is_alive()


def test_items_come_in_the_order_of_their_times() -> None:
    queue: DueQueue[str] = DueQueue()
    now_s = time.monotonic()
    for name, due_s in [("b", now_s - 1), ("c", now_s), ("a", now_s - 2)]:
        queue.push(name, due_s)
    assert [queue.next() for _ in range(3)] == ["a", "b", "c"]
    queue.push("later", time.monotonic() + 0.05)
    assert queue.next() == "later"
    assert time.monotonic() >= now_s + 0.05


def test_an_item_that_comes_again_and_again_wakes_one_thread() -> None:
    """As a view does that looks for frames: it is pushed by the thread that has served it."""
    queue: DueQueue[str] = DueQueue()
    queue._changed = waits = Waits()
    turns, is_over = 40, threading.Event()
    count = [0]

    def serve() -> None:
        while (item := queue.next()) is not None:
            count[0] += 1
            if count[0] == turns:
                is_over.set()
                return
            queue.push(item, time.monotonic() + 0.001, is_own=True)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(waits.begun) == 4, "all threads wait")
    queue.push("view", 0.0)
    assert is_over.wait(HANG_S)
    queue.close()
    for thread in threads:
        thread.join(HANG_S)
    forever = [timeout for timeout in waits.begun if timeout is None]
    assert len(forever) == 4, "no other thread has looked in between"


def test_an_earlier_item_is_not_kept_waiting_for_a_later_one() -> None:
    with serving(2) as (queue, waits, servers):
        queue.push("in an hour", time.monotonic() + 3600)
        until(lambda: any(timeout is not None for timeout in waits.begun), "a thread waits for it")
        queue.push("soon", time.monotonic() + 0.02)
        until(lambda: servers.items == ["soon"], "it is served")
        assert queue.left() == ["in an hour"]


def test_what_is_left_by_a_busy_thread_is_awaited_by_another() -> None:
    """The thread that had waited for both serves the first one for long."""
    with serving(2, gates="x") as (queue, _, servers):
        queue.push("y", time.monotonic() + 0.1)
        queue.push("x", time.monotonic() + 0.01)
        until(lambda: servers.items == ["x", "y"], "the other one serves what comes next")
        assert len({thread for thread, _ in servers.served}) == 2


def test_all_threads_serve_items_that_are_due_together() -> None:
    with serving(3, gates="abc") as (queue, _, servers):
        for name in "abc":
            queue.push(name, 0.0)
        until(lambda: sorted(servers.items) == ["a", "b", "c"], "each is served by a thread of its own")
        assert len({thread for thread, _ in servers.served}) == 3


def test_closing_ends_all_waiting_and_keeps_what_is_left() -> None:
    with serving(3) as (queue, _, servers):
        queue.push("in an hour", time.monotonic() + 3600)
        queue.close()
        for thread in servers.threads:
            thread.join(HANG_S)
        assert queue.next() is None
        assert (servers.items, queue.left()) == ([], ["in an hour"])
