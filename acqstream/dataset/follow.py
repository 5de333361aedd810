"""New frames of a growing dataset, as they are published."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue


class Followed(Protocol):
    """A level of a dataset that may still have to appear; `name` is for errors.

    failure is the error of the view that made the level, if it failed before the end, as of the last refresh.
    """

    name: str
    failure: str

    def refresh(self) -> bool:
        """Look for new frames; False if no frame will come after those seen now."""

    def reader(self) -> NDTiffReader | None:
        """The reader of the level; None while the level is missing."""


def follow_keys(
    followed: Followed, timeout_s: float | None, poll_s: float, *, replaced: bool = False
) -> Iterator[dict[str, AxisValue]]:
    """Every key once, from the first frame on, in order of arrival, until the writer has ended.

    replaced: a key comes again whenever its frame was written again. Raises TimeoutError when no new frame came
    within timeout_s of the last one, DatasetError if the level never appeared, or its view failed.
    """
    seen = 0
    last_news = time.monotonic()
    while True:
        looked = time.monotonic()  # before the refresh: the next one sees frames that come while this program pauses
        writing = followed.refresh()
        reader = followed.reader()
        count = len(reader) if reader is not None else 0  # after the state: another thread may have refreshed meanwhile
        if reader is not None and count > seen:
            rows = range(seen, count)
            yield from map(reader.key, rows) if replaced else reader.keys(rows)
            seen = count
            last_news = time.monotonic()  # after the yields: the consumer's own time does not count
        elif followed.failure:
            raise DatasetError(f"{followed.name} is incomplete: the view that makes it failed {followed.failure}")
        elif not writing:
            if reader is None:
                raise DatasetError(f"{followed.name}: the level is missing")
            return
        elif timeout_s is not None and looked - last_news >= timeout_s:
            raise TimeoutError(f"{followed.name}: no new frame within {timeout_s} s after frame {seen}; not complete")
        else:
            time.sleep(poll_s)
