"""The queue of a resumed acquisition, which several threads may fill."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("pycromanager"), reason="pycromanager is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of the library, while it is imported
]


def test_events_that_two_threads_acquire_are_filtered_once_each() -> None:
    from acqstream.client.pycromanager.acquisition import PendingEventQueue

    filtered: list[Any] = []

    def pending(item: Any) -> Any:
        filtered.append(item)
        return item

    def acquire(item: Any) -> None:
        with events.unfiltered():
            events.put(item)

    events = PendingEventQueue(pending)  # type: ignore[arg-type]
    with events.unfiltered():
        other = threading.Thread(target=acquire, args=({"axes": {"time": 1}},))
        other.start()
        other.join()
        events.put({"axes": {"time": 0}})
    assert not filtered
    events.put({"axes": {"time": 2}})
    assert filtered == [{"axes": {"time": 2}}]
