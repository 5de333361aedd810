"""Frames of both hooks: their capture times, and a put that shortens metadata that are too large.

No script of the user could do it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from acqstream.client.plain_values import Changes, plain_metadata
from acqstream.client.run import Run
from acqstream.errors import FrameRefused, ProtocolError
from acqstream.storage.platform import wall_clock_ns

MAX_ENTRY_BYTES = 64 * 2**10  # of an entry that stays where all together are too large


def put_frame(
    run: Run, image: object, axes: Mapping[Any, Any], meta: Mapping[str, Any], *, bits: int | None, time_ns: int
) -> None:
    """As `Run.put`. Large entries of metadata that exceed the limit are left out, with a note and a warning."""
    try:
        run.put(image, axes, meta=meta, bits=bits, time_ns=time_ns)
    except (FrameRefused, ProtocolError):
        short = {key: _short(value) for key, value in meta.items()}
        large = [key for key in meta if short[key] is not meta[key]]
        if not large:
            raise
        run.put(image, axes, meta=short, bits=bits, time_ns=time_ns)  # raises again what had another reason
        changes = Changes(texts=len(large), first_text=f"[{large[0]!r:.60}] ({short[large[0]]})")
        run.warn_of_changes(changes, f"the metadata of frame {run.next - 1}")


def _short(value: Any) -> Any:
    try:
        size = len(json.dumps(plain_metadata({"": value})[0]))
    except ProtocolError:
        return "left out: more than the metadata of a frame may have"
    return value if size <= MAX_ENTRY_BYTES else f"left out: {size} bytes"


class CaptureClock:
    """Nanoseconds since 1970, read once and counted on from there: a wall clock that is set back changes nothing.

    `TimeReceivedByCore` of Micro-Manager is no source: it is local time, and one hour of each year comes twice.
    """

    def __init__(self) -> None:
        self.started_ns = wall_clock_ns()
        self._started = time.perf_counter_ns()  # on Windows 1000 times finer than the monotonic clock

    def now_ns(self) -> int:
        return self.started_ns + time.perf_counter_ns() - self._started
