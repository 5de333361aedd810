"""When the daemon was last heard, and the last state of its disk and acquisition that it reported. Pure."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from acqstream.errors import FrameRefused
from acqstream.model.status import AcquisitionStatus
from acqstream.protocol.replies import Error, Warn

MAX_WARNINGS = 1000
MAX_LOSSES_IN_A_ROW = 5
_MAX_NUMBERS = 10  # in the text of an error
_MANY = 50_000  # more than there are in flight


@dataclass(frozen=True, slots=True)
class RunWarning:
    """A problem that the daemon reported and that does not end the run; time is in seconds since 1970."""

    code: str
    text: str
    time: float


class Contact:
    """Contact with the daemon. Times are seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.released_at = now  # frames became safe last
        self.epoch = 0
        self.is_lost = False
        self.loss_reason = ""  # for the error, should contact not return
        self._losses_in_a_row = 0

    def restore(self, epoch: int, now: float) -> None:
        """The daemon has opened the acquisition, for the first time or again."""
        self.epoch = max(self.epoch, epoch)
        self.is_lost = False
        self.heard_at = self.released_at = now

    def forgive(self, seconds: float, now: float) -> None:
        """Move both times, because this program did not run and could not hear."""
        self.heard_at = min(self.heard_at + seconds, now)
        self.released_at = min(self.released_at + seconds, now)

    def acknowledge(self) -> None:
        """The daemon has taken frames over this connection."""
        self._losses_in_a_row = 0

    def lose(self) -> bool:
        """The daemon does not know this connection; False when too many connections in a row ended in this way."""
        if not self.is_lost:  # else one of many answers to frames that were on their way
            self.is_lost = True
            self._losses_in_a_row += 1
        return self._losses_in_a_row <= MAX_LOSSES_IN_A_ROW


class RefusedFrames:
    """Frames that the daemon refused. n_frames counts them, each once; `pending` were not raised yet.

    is_raised: the program gets them as errors; else, as for hooks, in warnings and receipt only.
    """

    def __init__(self) -> None:
        self.n_frames = 0
        self.pending: list[tuple[int, Error]] = []
        self.is_raised = True
        self._numbers: set[int] = set()
        self._lock = threading.RLock()  # a signal handler may call in the middle of `raise_pending`

    def add(self, error: Error, first: int, kept: range) -> None:
        """Note refused frames, unless that is a repetition. kept: the numbers of frames that may still be refused."""
        if len(self._numbers) >= _MANY:
            self._numbers = {one for one in self._numbers if one >= kept.start}
        new = set(range(max(first, kept.start), min(first + error.count, kept.stop))) - self._numbers
        self._numbers |= new
        self.n_frames += len(new)
        with self._lock:
            self.pending += [(number, error) for number in sorted(new)]

    def raise_pending(self) -> None:
        """Raise FrameRefused for the pending frames, once."""
        with self._lock:
            pending, self.pending = self.pending, []
        if not pending or not self.is_raised:
            return
        first, numbers = pending[0][1], tuple(number for number, _ in pending)
        text = f"{first.text} ({first.code})"
        if len(numbers) > 1:
            more = ", ".join(map(str, numbers[1:_MAX_NUMBERS])) + (", ..." if len(numbers) > _MAX_NUMBERS else "")
            text += f"; {len(numbers)} frames were refused, also {more}"
        text += "; this call did its work all the same"
        raise FrameRefused(text, code=first.code, number=numbers[0], earlier=numbers)


class DaemonReport:
    """Disk, state and warnings, as the daemon reported them last."""

    def __init__(self, now: float) -> None:
        self.free_bytes: int | None = None
        self.seconds_left: float | None = None
        self.state = ""
        self.pause_reason = ""  # the daemon waits for space on its disk
        self.stall = ""  # the disk call that stalls
        self.paused_at = now
        self.warnings: deque[RunWarning] = deque(maxlen=MAX_WARNINGS)

    def update(self, status: AcquisitionStatus, now: float) -> None:
        if status.free_bytes is not None:
            self.free_bytes = status.free_bytes
        self.seconds_left = status.seconds_left
        self.state = status.state or self.state
        if status.paused and not self.pause_reason:
            self.paused_at = now
        self.pause_reason, self.stall = status.paused, status.stall

    def add_warning(self, code: str, text: str, wall_time: float) -> RunWarning:
        """Keep a warning; the oldest give way."""
        warning = RunWarning(code, text, wall_time)
        self.warnings.append(warning)
        return warning

    def add_reply(self, reply: Warn, wall_time: float) -> RunWarning | None:
        """Keep the daemon's warning; None for one that it repeats, as after a lost contact."""
        try:
            noted_at = datetime.fromisoformat(reply.time).timestamp()
        except (ValueError, OverflowError):  # an older daemon sends no time
            noted_at = wall_time
        if RunWarning(reply.code, reply.text, noted_at) in self.warnings:
            return None
        return self.add_warning(reply.code, reply.text, noted_at)

    def phrases(self) -> list[str]:
        """State, space and last warning, for an error message."""
        phrases = [f"its disk stalls: {self.stall}"] if self.stall else []
        if self.state:
            phrases.append(f"the daemon's state is {self.state}")
        if self.free_bytes is not None:
            phrases.append(f"{self.free_bytes / 1e9:.1f} GB are free on its disk")
        if self.warnings:
            phrases.append(f"its last warning: {self.warnings[-1].text}")
        return phrases
