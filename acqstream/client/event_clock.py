"""Start times of the events that are left to acquire: stored ones take no time."""

from __future__ import annotations


class EventClock:
    """Moves start times forward by what is skipped. Times are seconds since the start of a run; None means at once.

    Skipped events in a row count from the start of the first of them to the start of the next event that is acquired:
    a time-lapse that is resumed at point 50 goes on at once, with the same interval after that.
    """

    def __init__(self) -> None:
        self._saved_s = 0.0
        self._gap_began_s: float | None = None
        self._is_reset = False

    def skip(self, start_s: float | None, *, resets: bool = False) -> None:
        """An event is left out. resets: the times of later events count from its start."""
        if resets:
            self._saved_s, self._gap_began_s, self._is_reset = 0.0, None, True
        if self._gap_began_s is None:
            self._gap_began_s = start_s

    def start(self, start_s: float | None, *, resets: bool = False) -> tuple[float | None, bool]:
        """When the next event that is acquired may start, and whether later times count from its start."""
        if resets:
            self._saved_s, self._gap_began_s, self._is_reset = 0.0, None, False
            return start_s, True
        if start_s is None:
            return None, False
        if self._gap_began_s is not None:
            self._saved_s = max(0.0, self._saved_s + start_s - self._gap_began_s)
            self._gap_began_s = None
        was_reset, self._is_reset = self._is_reset, False
        return max(0.0, start_s - self._saved_s), was_reset
