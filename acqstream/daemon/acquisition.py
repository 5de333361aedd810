"""One running acquisition: its session, its log, its producer, and what was last told to whom."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from acqstream.model.cursors import Cursors, Limit
from acqstream.model.state import AcquisitionState
from acqstream.pipeline.log import Log
from acqstream.pipeline.memory_budget import Share
from acqstream.protocol.encoding import Encoding
from acqstream.protocol.replies import Ack
from acqstream.protocol.session import Session

ACK_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to answer, and how."""

    identity: bytes
    encoding: Encoding


@dataclass(slots=True, eq=False)
class Acquisition:
    """Everything the server keeps for one acquisition. Used by the server's loop only."""

    session: Session
    log: Log
    share: Share
    peer: Peer
    name: str
    epoch: int = 0
    is_resumed: bool = False
    told: tuple[Cursors, Limit] = (Cursors(), Limit(0, 0))
    told_at_s: float = 0.0
    warnings_told: int = 0
    is_error_told: bool = False
    stop_askers: list[Peer] = field(default_factory=list)  # operators who wait for the receipt
    shape: tuple[int, ...] | None = None  # of the first frame
    is_shape_change_told: bool = False
    _rate: tuple[float, int] = field(default_factory=lambda: (time.monotonic(), 0))
    bytes_per_s: float = 0.0

    @property
    def dataset_id(self) -> str:
        return self.log.spec.dataset_id

    @property
    def state(self) -> AcquisitionState:
        """The session's state, or the final one once the log has ended."""
        return self.log.state if self.log.is_finished else self.session.state

    def ack(self, now_s: float, *, force: bool = False) -> Ack | None:
        """An acknowledgement, if there is news worth a message."""
        cursors = self.log.cursors()
        limit = self.session.limit = self.log.limit()
        last_cursors, _ = self.told
        if (cursors, limit) == self.told and not force:
            return None
        is_progress = cursors.published != last_cursors.published or cursors.durable != last_cursors.durable
        if not force and not is_progress and now_s - self.told_at_s < ACK_INTERVAL_S:
            return None
        self.told = (cursors, limit)
        self.told_at_s = now_s
        return Ack(self.dataset_id, cursors, limit)

    def is_ack_pending(self) -> bool:
        """News that was held back to save messages."""
        return self.log.cursors() != self.told[0]

    def measure_rate(self, now_s: float) -> None:
        """Update bytes_per_s; called about once a second."""
        then, bytes_then = self._rate
        self.bytes_per_s = (self.log.payload_bytes - bytes_then) / max(now_s - then, 1e-3)
        self._rate = (now_s, self.log.payload_bytes)

    def status(self, free_bytes: int | None) -> dict[str, Any]:
        """Fields of a `status` message about this acquisition."""
        cursors = self.log.cursors()
        queue_frames, queue_bytes = self.log.queued()
        is_filling = free_bytes is not None and self.bytes_per_s > 0
        return {
            "name": self.name,
            "path": self.log.folder,
            "state": str(self.state),
            "received": cursors.received,
            "published": cursors.published,
            "durable": cursors.durable,
            "skipped": self.log.skipped,
            "payload_bytes": self.log.payload_bytes,
            "queue_frames": queue_frames,
            "queue_bytes": queue_bytes,
            "bytes_per_s": round(self.bytes_per_s),
            "free_bytes": free_bytes,
            "seconds_left": round((free_bytes or 0) / self.bytes_per_s) if is_filling else None,
            "io": self.log.io,
            "memory_bytes": self.share.length,
            "memory_peak_bytes": self.log.memory_peak_bytes,
            "warnings": [list(warning) for warning in self.log.warnings],
        }
