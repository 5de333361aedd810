"""The descriptor that wakes the loop."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator

import pytest

from acqstream.daemon.waker import LoopWaker


@pytest.fixture
def wakeup() -> Iterator[LoopWaker]:
    made = LoopWaker()
    yield made
    made.close()


def is_ready(wakeup: LoopWaker, timeout_s: float = 0.0) -> bool:
    return bool(select.select([wakeup.fileno()], [], [], timeout_s)[0])


def test_it_is_readable_from_the_wake_to_the_clear(wakeup: LoopWaker) -> None:
    assert not is_ready(wakeup)
    for _ in range(10_000):
        wakeup.wake()
    assert is_ready(wakeup)
    wakeup.clear()
    assert not is_ready(wakeup)
    wakeup.clear()
    wakeup.wake()
    assert is_ready(wakeup)


def test_another_thread_wakes_a_poll(wakeup: LoopWaker) -> None:
    thread = threading.Thread(target=wakeup.wake)
    thread.start()
    assert is_ready(wakeup, 10.0)
    thread.join()


def test_a_wake_in_the_middle_of_a_clear_does_not_silence_the_later_ones(wakeup: LoopWaker) -> None:
    class Reader:
        """The descriptor as `clear` uses it, with somebody waking just before it is read."""

        def recv(self, size: int) -> bytes:
            wakeup.wake()
            return real.recv(size)

    real = wakeup._reader
    wakeup.wake()
    wakeup._reader = Reader()  # type: ignore[assignment]
    wakeup.clear()
    wakeup._reader = real
    wakeup.wake()
    assert is_ready(wakeup)


def test_waking_after_the_end_is_no_error() -> None:
    wakeup = LoopWaker()
    wakeup.close()
    wakeup.wake()
