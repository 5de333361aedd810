"""Events of a resumed run without frames yet, for both hooks: what they inherit from skipped ones, and start times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


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
