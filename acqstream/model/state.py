"""The states of an acquisition, as in `acqstream.json` and on the wire."""

from __future__ import annotations

from enum import StrEnum


class AcquisitionState(StrEnum):
    """State of an acquisition; the value is the name itself."""

    OPENING = "OPENING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"  # the disk is full; continues by itself when it has space
    ORPHANED = "ORPHANED"  # the producer is silent; it may come back within the grace time
    CLOSING = "CLOSING"
    INTERRUPTED = "INTERRUPTED"  # nothing is being written; `resume` continues
    COMPLETE = "COMPLETE"
    CANCELED = "CANCELED"
    ERRORED = "ERRORED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """True when no frame will ever be added."""
        return self in _FINAL

    @property
    def writing(self) -> bool:
        """True while frames may still be added without anybody resuming the acquisition."""
        return self not in _FINAL and self is not AcquisitionState.INTERRUPTED


_FINAL = frozenset(
    {AcquisitionState.COMPLETE, AcquisitionState.CANCELED, AcquisitionState.ERRORED, AcquisitionState.FAILED}
)
