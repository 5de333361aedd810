"""How an acquisition ends: as it was asked to, unless an error or a full disk has the last word."""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.errors import AcqStreamError, DiskFull, FrameRefused
from acqstream.model.receipt import Status


@dataclass(slots=True)
class Ending:
    """What was asked for. sent is the producer's own count of frame numbers, None if it never said."""

    status: Status = "completed"
    reason: str = ""
    sent: int | None = None
    given_up: tuple[Status, str] | None = None  # asked for later: do not wait for space any more

    def resolve(self, error: AcqStreamError | None, no_space: DiskFull | None) -> tuple[Status, str]:
        """Status and reason in the end.

        error is what broke the acquisition: a frame that was refused leaves it interrupted, to be resumed. no_space is
        why frames that had been received were left out after waiting for space was given up.
        """
        if error is not None:
            return ("interrupted" if isinstance(error, FrameRefused) else "failed"), str(error)
        if no_space is None:
            return self.status, self.reason
        status, reason = self.status, self.reason
        if status == "completed":
            status, reason = self.given_up or ("error", "")
        return status, f"{reason}; {no_space}" if reason else str(no_space)
