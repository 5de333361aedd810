"""Progress of an acquisition: three counts of frames without holes, and the window's right edge."""

from __future__ import annotations

from dataclasses import dataclass


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
