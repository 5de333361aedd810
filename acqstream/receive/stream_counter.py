"""The sender's frame counter: what lies between two messages."""

from __future__ import annotations

MOST_LOST = 1_000_000  # a wider jump is another counter, not a loss


class StreamCounter:
    """Follows the `frame` field of one stream, from any first value on."""

    def __init__(self) -> None:
        self.last: int | None = None

    def lost_before(self, frame: int | None) -> int | None:
        """How many frames are missing between the last one and this; None where the counter began anew."""
        if frame is None or self.last is None:
            return 0
        lost = frame - self.last - 1
        return lost if 0 <= lost <= MOST_LOST else None

    def advance(self, frame: int | None) -> None:
        """This one has been dealt with. Without a counter (None) nothing can be said of the next one."""
        self.last = frame
