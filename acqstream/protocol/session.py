"""The session table: the state of one acquisition in the daemon. Pure: time is an argument.

Events happen to an acquisition; the table has the events that each state permits, and the state after them. Frames do
not change the state: `judge` decides if one is stored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from acqstream.model.frame_header import FrameRun
from acqstream.model.receipt import Status
from acqstream.model.state import AcquisitionState as State
from acqstream.model.state import Limit


class Event(enum.Enum):
    """Events of an acquisition."""

    OPENED = "its files exist"
    LOST = "its producer cannot be reached"
    FOUND = "its producer is back"
    GRACE_OVER = "its producer was away for longer than the grace time"
    CLOSE = "its producer closes it"
    REFUSED = "its producer breaks the protocol"
    STOP = "the operator or the daemon's end stops it"
    FAILED = "its log failed"


_ENDING = (Event.GRACE_OVER, Event.CLOSE, Event.REFUSED, Event.STOP, Event.FAILED)

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.OPENING, Event.OPENED): State.RUNNING,
    (State.OPENING, Event.LOST): State.OPENING,
    (State.OPENING, Event.FOUND): State.OPENING,
    **{(State.OPENING, event): State.CLOSING for event in _ENDING if event is not Event.GRACE_OVER},
    (State.RUNNING, Event.LOST): State.ORPHANED,
    (State.RUNNING, Event.FOUND): State.RUNNING,
    (State.ORPHANED, Event.LOST): State.ORPHANED,
    (State.ORPHANED, Event.FOUND): State.RUNNING,
    **{(State.RUNNING, event): State.CLOSING for event in _ENDING if event is not Event.GRACE_OVER},
    **{(State.ORPHANED, event): State.CLOSING for event in _ENDING},
    (State.CLOSING, Event.LOST): State.CLOSING,
    (State.CLOSING, Event.FOUND): State.CLOSING,
    (State.CLOSING, Event.FAILED): State.CLOSING,
}


class Verdict(enum.Enum):
    """Decision about a frame."""

    STORE = enum.auto()
    KNOWN = enum.auto()  # already stored: acknowledge again, drop the payload
    LATE = enum.auto()  # the acquisition is ending: drop it, the receipt lists it
    REFUSE = enum.auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a frame is refused; code and text go to the producer."""

    code: str
    text: str


class Session:
    """State of one acquisition, its producer's window, and how it ends.

    grace_s: how long a lost producer may stay away.
    """

    __slots__ = ("_grace_s", "ending", "limit", "lost_at_s", "state")

    def __init__(self, *, grace_s: float) -> None:
        self.state = State.OPENING
        self.limit = Limit(0, 0)
        self.ending: tuple[Status, str] | None = None
        self.lost_at_s: float | None = None
        self._grace_s = grace_s

    def on(self, event: Event, now_s: float, ending: tuple[Status, str] | None = None) -> bool:
        """Follow the table; False, without a change, where it lacks the step.

        ending: status and reason, for the events that end the acquisition; the first one stays.
        """
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            return False
        if event is Event.OPENED and self.lost_at_s is not None:
            target = State.ORPHANED  # lost before the files existed: the grace time runs since then
        self.state = target
        if event is Event.LOST and self.lost_at_s is None:
            self.lost_at_s = now_s
        if event is Event.FOUND:
            self.lost_at_s = None
        if ending is not None and self.ending is None:
            self.ending = ending
        return True

    def is_grace_over(self, now_s: float) -> bool:
        """True when a lost producer has been away too long."""
        is_waited_for = self.state in (State.ORPHANED, State.CLOSING) and self.lost_at_s is not None
        return is_waited_for and now_s - (self.lost_at_s or 0.0) >= self._grace_s

    def takes_run(self, frames: FrameRun, received: int, received_bytes: int) -> bool:
        """True if all of these frames are due and inside the window; else each is to be judged."""
        if self.state not in (State.RUNNING, State.ORPHANED) or not len(frames) or frames.number != received:
            return False
        total = received_bytes + frames.payload_bytes
        return frames.next_number <= self.limit.number and total <= self.limit.payload_bytes

    def judge(
        self, number: int, payload_bytes: int, received: int, received_bytes: int
    ) -> tuple[Verdict, Refusal | None]:
        """Decide about a frame. received and received_bytes are the frames and payload bytes in the log so far."""
        if self.state is State.OPENING:
            return Verdict.REFUSE, Refusal("limit_exceeded", f"frame {number} came before the acquisition was opened")
        if self.state not in (State.RUNNING, State.ORPHANED):
            return Verdict.LATE, None
        if number < received:
            return Verdict.KNOWN, None
        if number > received:
            text = f"frame {number} came where {received} was expected; declare missing frames with skip"
            return Verdict.REFUSE, Refusal("gap", text)
        if number >= self.limit.number or received_bytes + payload_bytes > self.limit.payload_bytes:
            text = (
                f"frame {number} of {payload_bytes} bytes exceeds the window: frames below {self.limit.number} "
                f"and {self.limit.payload_bytes} payload bytes in all may be sent"
            )
            return Verdict.REFUSE, Refusal("limit_exceeded", text)
        return Verdict.STORE, None
