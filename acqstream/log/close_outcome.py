"""The end of an acquisition: as requested, unless an error or a full disk decides otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.errors import AcqStreamError, DiskFull
from acqstream.model.receipt import Status


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """The end that was requested. sent is the producer's own count of frame numbers, None if it never sent one.

    abandoned was requested later: status and reason if frames have to be left out because the disk is full.
    """

    status: Status = "completed"
    reason: str = ""
    sent: int | None = None
    abandoned: tuple[Status, str] | None = None

    def resolve(self, error: AcqStreamError | None, no_space: DiskFull | None) -> tuple[Status, str]:
        """Status and reason of the receipt.

        error is the first one of the acquisition. no_space is the error for which received frames were left out.
        """
        if error is not None:
            return "failed", str(error)
        if no_space is None:
            return self.status, self.reason
        status, reason = self.status, self.reason
        if status == "completed":
            status, reason = self.abandoned or ("error", "")
        return status, f"{reason}; {no_space}" if reason else str(no_space)
