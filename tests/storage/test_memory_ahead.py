"""Memory that is made before it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.storage import page_memory
from acqstream.storage.page_memory import MemoryAhead, fresh_bytes
from tests.waiting import until

SIZE = 8192


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    threads: list[threading.Thread] = []

    def make(length: int) -> NDArray[np.uint8]:
        threads.append(threading.current_thread())
        return fresh_bytes(length)

    monkeypatch.setattr(page_memory, "fresh_bytes", make)
    return threads


def is_made(made: list[threading.Thread], count: int) -> Callable[[], bool]:
    return lambda: len(made) == count


def test_pieces_are_made_in_another_thread_and_never_more_than_asked_for(made: list[threading.Thread]) -> None:
    memory = MemoryAhead(SIZE, ahead=2, max_pieces=4)
    taken = [memory.take()]
    until(is_made(made, 3), "one and two ahead")
    taken += [memory.take() for _ in range(3)]
    until(is_made(made, 4), "no more than four")
    assert memory.is_spent
    memory.close()
    assert threading.current_thread() not in made
    assert [len(piece) for piece in taken] == [SIZE] * 4
    assert len({piece.ctypes.data for piece in taken}) == 4
    assert not any(piece.any() for piece in taken)


def test_that_there_is_no_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(length: int) -> NDArray[np.uint8]:
        raise MemoryError(f"no {length} bytes")

    monkeypatch.setattr(page_memory, "fresh_bytes", make)
    memory = MemoryAhead(SIZE, ahead=1)
    with pytest.raises(MemoryError, match="no 8192 bytes"):
        memory.take()
    memory.close()
