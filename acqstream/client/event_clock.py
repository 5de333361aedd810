"""Start times of the events that remain to be acquired; stored ones take no time."""

from __future__ import annotations


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
