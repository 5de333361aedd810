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

    failure: why nothing more will come although not all is there, as of the last refresh.
    """

    name: str
    failure: str

    def refresh(self) -> bool:
        """Look for new frames; False if none will come after those that are there now."""

    def reader(self) -> NDTiffReader | None:
        """None while the level is not there."""


def follow_keys(
    followed: Followed, timeout_s: float | None, poll_s: float, *, replaced: bool = False
) -> Iterator[dict[str, AxisValue]]:
    """Every key once, from the first frame on, in order of arrival, until nothing is written any more.

    replaced: a key comes again for every time its frame was written again. Raises TimeoutError when no new frame came
    within timeout_s of the last one, DatasetError if the level never appeared, or is given up unfinished.
    """
    seen = 0
    last_news = time.monotonic()
    while True:
        looked = time.monotonic()  # before it: what comes while this program is held up is seen by the next look
        writing = followed.refresh()
        reader = followed.reader()
        count = len(reader) if reader is not None else 0  # after the state: another thread may have refreshed meanwhile
        if reader is not None and count > seen:
            rows = range(seen, count)
            yield from map(reader.key, rows) if replaced else reader.keys(rows)
            seen = count
            last_news = time.monotonic()  # after the yields: the consumer's own time does not count
        elif followed.failure:
            raise DatasetError(f"{followed.name} is not whole: the view that makes it failed {followed.failure}")
        elif not writing:
            if reader is None:
                raise DatasetError(f"{followed.name}: there is no such level")
            return
        elif timeout_s is not None and looked - last_news >= timeout_s:
            raise TimeoutError(f"{followed.name}: no new frame within {timeout_s} s after frame {seen}; not complete")
        else:
            time.sleep(poll_s)
