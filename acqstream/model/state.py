"""The states of an acquisition, as in `acqstream.json` and on the wire; its cursors, window and claims on memory.

Claims are two integers in memory that a producer shares, with which it takes back the memory of published frames. They
are of 64 bits and in the byte order of the machine. The frames with numbers below either of them may be overwritten;
all others lie where they were put. The producer stores them before it writes to that memory, and a reader looks at them
after it has read. Two, because two threads of the producer learn of such frames, and each has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Cursors:
    """Counts of frames, from the first on, that reached a state.

    received: in the daemon's memory; published: readable, even after a power cut; durable: journal and index
    forced to the disk too, so that the frame is found again after a power cut.
    """

    received: int = 0
    published: int = 0
    durable: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """The window's right edge: frames with number < `number` may be sent, and `payload_bytes` in all since frame 0."""

    number: int
    payload_bytes: int


WORD_BYTES = 8
CLAIM_BYTES = 2 * WORD_BYTES
