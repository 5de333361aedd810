"""Counts the frames that are missing between two messages, by the sender's counter."""

from __future__ import annotations

MAX_LOST = 1_000_000  # a wider jump is another counter, not a loss


class StreamCounter:
    """Follows the `frame` field of one stream, from any first value on."""

    def __init__(self) -> None:
        self.last: int | None = None

    def lost_before(self, frame: int | None) -> int | None:
        """Return the number of frames missing between the last one and this; None if the counter restarted."""
        if frame is None or self.last is None:
            return 0
        lost = frame - self.last - 1
        return lost if 0 <= lost <= MAX_LOST else None

    def advance(self, frame: int | None) -> None:
        """Note a handled frame. After one without a counter (None) no loss can be detected for the next."""
        self.last = frame
