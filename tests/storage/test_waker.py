"""The descriptor that wakes a thread out of a poll."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator

import pytest

from acqstream.storage.waker import Waker


@pytest.fixture(params=["event", "sockets"])
def waker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waker]:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("needs eventfd")
    waker = Waker()
    yield waker
    waker.close()


def is_ready(waker: Waker, timeout_s: float = 0.0) -> bool:
    return bool(select.select([waker.fileno()], [], [], timeout_s)[0])


def test_it_is_readable_from_the_wake_to_the_clear(waker: Waker) -> None:
    assert not is_ready(waker)
    for _ in range(10_000):
        waker.wake()
    assert is_ready(waker)
    waker.clear()
    assert not is_ready(waker)
    waker.clear()
    waker.wake()
    assert is_ready(waker)


def test_wakes_before_a_clear_write_once(waker: Waker, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []
    write = waker._write

    def count_and_write() -> None:
        writes.append(1)
        write()

    monkeypatch.setattr(waker, "_write", count_and_write)
    for _ in range(3):
        waker.wake()
    waker.clear()
    waker.wake()
    assert len(writes) == 2


def test_another_thread_wakes_a_poll(waker: Waker) -> None:
    thread = threading.Thread(target=waker.wake)
    thread.start()
    assert is_ready(waker, 10.0)
    thread.join()


def test_wait_returns_when_woken_and_takes_the_wake(waker: Waker) -> None:
    waker.wake()
    waker.wait(60.0)
    assert not is_ready(waker)


def test_a_wake_in_the_middle_of_a_clear_does_not_silence_the_later_ones(
    waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = waker._read

    def wake_and_read() -> None:
        waker.wake()
        read()

    waker.wake()
    with monkeypatch.context() as patch:
        patch.setattr(waker, "_read", wake_and_read)
        waker.clear()
    waker.wake()
    assert is_ready(waker)


def test_an_interrupted_wake_does_not_silence_the_later_ones(waker: Waker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waker, "_write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            waker.wake()
    waker.wake()
    assert is_ready(waker)


def test_waking_after_the_end_is_no_error(waker: Waker) -> None:
    waker.close()
    waker.wake()


def test_a_descriptor_above_1023_can_be_waited_for() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may not open more than 1,024 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < 1024:
            stack.callback(os.close, descriptor)
        stack.callback(os.close, descriptor)
        waker = Waker()
        stack.callback(waker.close)
        assert waker.fileno() > 1023
        waker.wake()
        waker.wait(60.0)
