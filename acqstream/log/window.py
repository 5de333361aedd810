"""The window: how many frames and bytes a producer may send, from what the last frames took of the ring."""

from __future__ import annotations

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.placement import Placement
from acqstream.log.ring import Ring, Span
from acqstream.model.state import Limit

MAX_FRAMES_IN_FLIGHT = 16384  # bounds what small frames cost in Python objects: about 1 KiB each
_UNKNOWN_FRAME_SHARE = 0.5  # of the ring, granted before the first frame shows its real cost
_BLIND_FRAME_BYTES = 4 * 2**20  # of the ring for each frame granted before: its metadata may be large
_MIN_BLIND_FRAMES = 8
_COST_DECAY = 0.98  # how fast an expensive frame is forgotten, per frame
_STOP_BESIDE = 1 / 4  # of the ring: with more memory beside it the window stays closed
_MAX_BESIDE = 2  # rings: with more memory beside them no frame is taken


class Window:
    """The limit that a producer is granted. The intake calls it under its lock and is its only writer.

    is_held: the limit stays where it is, because the disk is full. released is the frame number below which memory was
    given back. stops counts the times that the window was closed
    because too much memory lay beside the ring.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.is_held = False
        self.released = 0
        self.stops = 0
        self._is_stopped = False
        self._cost_ratio = 0.0  # ring bytes per payload byte, from the last frames
        self._frame_cost = 0.0  # ring bytes per frame, from the last frames
        self._last_span_bytes = 0
        self._limit = Limit(0, 0)

    @property
    def is_overfull(self) -> bool:
        """So much memory lies beside the ring that no frame is taken."""
        return self._ring.beside_bytes > self._ring.size_bytes * _MAX_BESIDE

    def note_cost(self, span: Span, placement: Placement) -> None:
        """Learn from frames that were received."""
        payload = placement.frames.frame_bytes
        if placement.packed:
            cost = payload + 256 + max(map(len, placement.frames.metadata))
        else:  # also outside: small frames, which are copied, may come next into the window that is granted now
            cost = placement.group_end - placement.group_start
        self._last_span_bytes = max(span.length, self._last_span_bytes // 2)
        self._cost_ratio = max(cost / payload, self._cost_ratio * _COST_DECAY)
        self._frame_cost = max(float(cost), self._frame_cost * _COST_DECAY)

    def limit(self, received: int, received_payload_bytes: int) -> Limit:
        """The right edge now; it never moves back."""
        frames, granted = self._grant(is_empty=received == self.released)
        number = min(received + frames, self.released + MAX_FRAMES_IN_FLIGHT)
        payload = max(self._limit.payload_bytes, received_payload_bytes + granted)
        self._limit = Limit(max(self._limit.number, number), payload)
        return self._limit

    def _grant(self, *, is_empty: bool) -> tuple[int, int]:
        """Frames and payload bytes that may come besides those received."""
        if self.is_held:
            return 0, 0
        ring = self._ring
        was_stopped, self._is_stopped = self._is_stopped, ring.beside_bytes > ring.size_bytes * _STOP_BESIDE
        if self._is_stopped:
            self.stops += not was_stopped
            return 0, 0
        free = max(ring.size_bytes - ring.used_bytes - self._last_span_bytes, 0)
        frames = int(free / self._frame_cost) if self._frame_cost else 0
        payload = int(free / self._cost_ratio) if self._cost_ratio else 0
        if is_empty:  # all is free: whatever may come must find a way in
            frames = max(frames, ring.size_bytes // _BLIND_FRAME_BYTES, _MIN_BLIND_FRAMES)
            payload = max(payload, int(ring.size_bytes * _UNKNOWN_FRAME_SHARE))
        return frames, payload

    def refusal(self, number: int) -> FrameRefused:
        """The error for a frame that comes while the window is overfull."""
        text = (
            f"frame {number}: frames with far more metadata than those before take {self._ring.beside_bytes} bytes "
            f"beside {self._ring.size_bytes} of memory; send more slowly, or less metadata"
        )
        return FrameRefused(text, code="limit_exceeded", number=number)
