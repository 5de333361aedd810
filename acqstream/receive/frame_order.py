"""Puts the messages of one stream in the order of the sender's counter, which threads of a sender may swap. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

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


_Message = TypeVar("_Message")


class FrameOrder(Generic[_Message]):
    """Holds at most `window` messages whose predecessors have not come; 0: none.

    A number that is not above the last one may be a repeat, or the first of a counter that restarted: the next message
    tells. repeats counts numbers that came again, or after `window` others.
    """

    def __init__(self, window: int) -> None:
        self.repeats = 0
        self._window = window
        self._last: int | None = None
        self._held: dict[int, _Message] = {}
        self._doubtful: tuple[int, _Message] | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._held) or self._doubtful is not None

    def add(self, number: int | None, message: _Message) -> Iterator[_Message]:
        """Take a message; yield those whose turn has come. One without a number comes in its turn of arrival."""
        if number is None or not self._window:
            yield from self.settle()
            self._last = number
            yield message
            return
        if self._doubtful is not None:
            yield from self._judge(number)
        is_first = self._last is None and number in self._held  # of a series of one frame
        if is_first or (self._last is not None and number <= self._last):
            yield from self._release()
            self._doubtful = (number, message)
        elif number in self._held:
            self.repeats += 1
        elif self._last is not None and number - self._last > MAX_LOST:  # another counter
            yield from self._release()
            self._last = number
            yield message
        else:
            self._held[number] = message
            yield from self._in_turn()

    def settle(self) -> Iterator[_Message]:
        """Yield all that is held: no other message comes for now."""
        yield from self._release()
        if self._doubtful is not None:
            self._last, message = self._doubtful
            self._doubtful = None
            yield message

    def _judge(self, number: int) -> Iterator[_Message]:
        """Decide on the doubtful message by the number of the next one."""
        assert self._doubtful is not None
        doubtful, message = self._doubtful
        self._doubtful = None
        if self._last is not None and number > self._last:
            self.repeats += 1
            return
        self._last = doubtful
        yield message

    def _in_turn(self) -> Iterator[_Message]:
        if self._last is None and len(self._held) > 1:  # the first two may have been swapped
            self._last = min(self._held) - 1
        while self._last is not None and self._held:
            following = self._last + 1
            if following not in self._held:
                if len(self._held) <= self._window:
                    return
                following = min(self._held)
            self._last = following
            yield self._held.pop(following)

    def _release(self) -> Iterator[_Message]:
        for number in sorted(self._held):
            self._last = number
            yield self._held.pop(number)
