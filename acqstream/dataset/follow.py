"""New frames of a growing dataset, as they are published."""

from __future__ import annotations

import time
from collections.abc import Iterator

from acqstream.formats.base import FrameReader
from acqstream.model.axes import AxisValue


def follow_keys(reader: FrameReader, timeout_s: float | None, poll_s: float) -> Iterator[dict[str, AxisValue]]:
    """Every key once, from the first frame on, in order of arrival, until nothing is written any more.

    Raises TimeoutError when no new frame came within timeout_s of the last one.
    """
    seen = 0
    last_news = time.monotonic()
    while True:
        reader.refresh()  # reads the state before the index: what came before the end is in it
        writing = reader.writing
        count = len(reader)  # after the state: another thread may have refreshed meanwhile
        if count > seen:
            yield from reader.keys(range(seen, count))
            seen = count
            last_news = time.monotonic()  # after the yields: the consumer's own time does not count
        elif not writing:
            return
        elif timeout_s is not None and time.monotonic() - last_news >= timeout_s:
            raise TimeoutError(f"{reader.path}: no new frame within {timeout_s} s after frame {seen}; not complete")
        else:
            time.sleep(poll_s)
