"""Figures of one log for status messages and tables; nothing is decided by them."""

from __future__ import annotations

from acqstream.log.notes import stall_text
from acqstream.log.recording import Recording


class LogMetrics:
    """What a log has published, and the disk and memory it uses. Read from any thread, as it is at that moment."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def payload_bytes(self) -> int:
        """Pixel bytes published."""
        return self._recording.counts.payload_bytes

    @property
    def stored_frames(self) -> int:
        """Frames with pixels that are published."""
        return self._recording.counts.stored

    @property
    def durable_frames(self) -> int:
        """Frames with pixels that are durable."""
        return self._recording.counts.forced.stored

    @property
    def skipped(self) -> int:
        """Frame numbers declared as never coming."""
        return self._recording.counts.skipped

    @property
    def stall(self) -> str:
        """The disk call that stalls now, and its duration so far; empty without one."""
        slow = self._recording.disk.stalled_call()
        return stall_text(slow, "takes") if slow is not None else ""

    @property
    def io(self) -> str:
        """ "direct" or "buffered"; "" while the acquisition is opening."""
        return self._recording.stacks.io

    @property
    def io_why(self) -> str:
        """The reason why files are written through the page cache; empty if they are not."""
        return self._recording.stacks.io_why

    @property
    def reserved_bytes(self) -> int:
        """Space on the disk that is reserved for this acquisition and not written yet."""
        return self._recording.stacks.reserved_bytes

    @property
    def memory_peak_bytes(self) -> int:
        """The most memory that frames took at once: in the log's own, and as they lie in the producers'."""
        ring = self._recording.intake.ring
        return ring.peak_bytes + ring.beside_peak_bytes
