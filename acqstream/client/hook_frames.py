"""What both hooks share: frames with capture times and metadata that are not too large, and events of a resumed run.

No script of the user could shorten metadata. Events without frames yet have settings that they inherit from skipped
ones, and start times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from acqstream.client.plain_values import Changes, plain_metadata
from acqstream.client.run import Run
from acqstream.errors import FrameRefused, ProtocolError
from acqstream.model.frame_header import SIGNIFICANT_BITS
from acqstream.storage.platform import wall_clock_ns

MAX_ENTRY_BYTES = 64 * 2**10  # of an entry that stays where all together are too large


class HookFrames:
    """Puts the frames of a hook into a run. n_dropped: those that came again, and are stored already.

    A refused frame is in the run's warnings and its receipt: it raises nothing where the next one is put.
    """

    def __init__(self, run: Run) -> None:
        self.n_dropped = 0
        self._run = run
        run.refused.is_raised = False

    def put(
        self, image: NDArray[Any], axes: Mapping[Any, Any], meta: Mapping[str, Any], bits: int | None, time_ns: int
    ) -> bool:
        """As `Run.put`; False for a frame that is stored already.

        Large entries of metadata that exceed the limit are left out, with a note and a warning.
        """
        run = self._run
        if axes in run.stored:
            self.n_dropped += 1
            return False
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
        return True


def fitting_bits(depth: object, image: NDArray[Any]) -> int | None:
    """The bit depth of a camera as `bits` of `Run.put`, where the array can hold it."""
    fits = image.ndim == 2 and depth in SIGNIFICANT_BITS.get(image.dtype.str, ())
    return depth if fits and isinstance(depth, int) else None


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


class SkippedEvents:
    """Events that are left out, as their frames are stored.

    The first event after skipped ones gets the settings that these would have made, and start times move forward by
    the skipped time. names: of settings that an event without them inherits from the events before it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.clock = EventClock()
        self._names = names
        self._settings: dict[str, Any] = {}
        self._properties: dict[tuple[str, str], Any] = {}

    def add(
        self,
        get: Callable[[str], Any],
        properties: Iterable[Any] | None,
        start_s: float | None,
        *,
        resets: bool = False,
    ) -> None:
        """Leave an event out. get: its value of a setting, None without one; properties: device, name and value."""
        self.clock.skip(start_s, resets=resets)
        values = {name: get(name) for name in self._names}
        self._settings.update({name: value for name, value in values.items() if value is not None})
        self._properties.update({(device, name): value for device, name, value in properties or ()})

    def take(self, get: Callable[[str], Any], properties: Iterable[Any] | None) -> dict[str, Any]:
        """The settings that the next event lacks and inherits, "properties" as triples; they are inherited once."""
        inherited = {name: value for name, value in self._settings.items() if get(name) is None}
        if self._properties:
            own = {(device, name): value for device, name, value in properties or ()}
            merged = {**self._properties, **own}
            inherited["properties"] = [(device, name, value) for (device, name), value in merged.items()]
        self._settings.clear()
        self._properties.clear()
        return inherited


class EventClock:
    """Moves start times forward by the time of skipped events.

    Times are seconds since the start of a run; None means at once.

    Skipped events in a row count from the start of the first of them to the start of the next event that is acquired.
    A time-lapse that is resumed at point 50 continues at once, with the same interval after that.
    """

    def __init__(self) -> None:
        self._saved_s = 0.0
        self._gap_start_s: float | None = None
        self._is_reset = False

    def skip(self, start_s: float | None, *, resets: bool = False) -> None:
        """An event is left out. resets: the times of later events count from its start."""
        if resets:
            self._saved_s, self._gap_start_s, self._is_reset = 0.0, None, True
        if self._gap_start_s is None:
            self._gap_start_s = start_s

    def start(self, start_s: float | None, *, resets: bool = False) -> tuple[float | None, bool]:
        """Start time of the next event that is acquired, and True if later times count from it."""
        if resets:
            self._saved_s, self._gap_start_s, self._is_reset = 0.0, None, False
            return start_s, True
        if start_s is None:
            return None, False
        if self._gap_start_s is not None:
            self._saved_s = max(0.0, self._saved_s + start_s - self._gap_start_s)
            self._gap_start_s = None
        was_reset, self._is_reset = self._is_reset, False
        return max(0.0, start_s - self._saved_s), was_reset
