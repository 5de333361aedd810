"""Progress of one acquisition's frames over time: latencies up to the two cursors, and the time of the last frame."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque

from acqstream.log.log import Log
from acqstream.model.status import LATENCY_BOUNDS_S, DaemonTotals, LatencyHistogram, counted_code

MARK_SPACING_S = 0.0005  # half of the histogram's first bound
MAX_MARKS = 4096
_UNSEEN, _UNSEEN_S = 5, 5.0  # longest pauses, and seconds: what lasts longer is a pause of another kind


class LatencyMeter:
    """Measures the time from received to one cursor, in histogram counts.

    A mark is a count of received frames and the time when the first of them since the mark before came. Frames that
    come within MARK_SPACING_S share a mark. More than MAX_MARKS are thinned, as where the cursor moves only at the end
    of a run: the error of a latency is then at most a 2000th of it. Times are monotonic seconds.
    """

    def __init__(self, n_frames: int = 0) -> None:
        """n_frames: those that had come before, which are not measured."""
        self._counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._measured = n_frames
        self._marks: deque[tuple[int, float]] = deque()
        self._spacing_s = MARK_SPACING_S

    def note_received(self, n_frames: int, now_s: float) -> None:
        """Note that n_frames have been received in all, more than at the last call."""
        marks = self._marks
        if not marks:
            self._spacing_s = MARK_SPACING_S
        elif now_s - marks[-1][1] < self._spacing_s:
            marks[-1] = n_frames, marks[-1][1]
            return
        marks.append((n_frames, now_s))
        if len(marks) > MAX_MARKS:
            self._thin()

    def note_reached(self, n_frames: int, now_s: float) -> None:
        """Note that the cursor has passed n_frames in all."""
        marks = self._marks
        while marks and self._measured < n_frames:
            end, since_s = marks[0]
            count = min(end, n_frames) - self._measured
            self._counts[bisect_left(LATENCY_BOUNDS_S, now_s - since_s)] += count
            self._sum_s += count * (now_s - since_s)
            self._measured += count
            if end <= n_frames:
                marks.popleft()

    def histogram(self) -> LatencyHistogram:
        return LatencyHistogram(counts=tuple(self._counts), sum_s=self._sum_s)

    def _thin(self) -> None:
        """Make one mark of two neighbours each, with the time of the earlier one."""
        marks = list(self._marks)
        ends = [end for end, _ in marks[1::2]]
        if len(marks) % 2:
            ends.append(marks[-1][0])
        self._marks = deque(zip(ends, (since_s for _, since_s in marks[::2]), strict=True))
        self._spacing_s *= 2


class FrameRhythm:
    """When frames come, also in bursts, as the stacks of a time lapse: a burst comes after a pause.

    A pause is at least half as long as the longest; the first one that is more than twice as long as all before it
    makes one burst of all frames before. Mean size, mean period and the duration of the last complete burst tell the
    end of a run to the frame. After twice the longest pause without another one, the mean interval does.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None  # when it came, and how many there were before it
        self._last = self._burst = (0.0, 0)  # likewise
        self._longest_s = self._duration_s = 0.0
        self._n_bursts = 0  # complete ones

    def note(self, n_before: int, now_s: float) -> None:
        """Note that frames have come, after n_before others."""
        if self._first is None:
            self._first = self._last = self._burst = now_s, n_before
            return
        pause_s = now_s - self._last[0]
        if pause_s > 2 * self._longest_s:
            self._n_bursts, self._burst = 0, self._first
        self._longest_s = max(self._longest_s, pause_s)
        if 2 * pause_s >= self._longest_s:
            self._duration_s = self._last[0] - self._burst[0]
            self._n_bursts += 1
            self._burst = now_s, n_before
        self._last = now_s, n_before

    def seconds_until(self, n_frames: int, n_received: int, now_s: float) -> float | None:
        """Seconds until n_frames more have come after n_received; None if it is not known yet, or for less than 0."""
        if n_frames <= 0 or self._first is None:
            return 0.0 if n_frames == 0 else None
        is_burst = self._last[0] - self._burst[0] < 2 * self._longest_s
        (at_s, n_before), (first_s, n_first) = self._burst if is_burst else self._last, self._first
        pause_s = now_s - self._last[0]
        if n_before <= n_first or pause_s > max(_UNSEEN * self._longest_s, _UNSEEN_S):
            return None  # nobody knows how long a pause lasts that is longer than all before
        n_bursts = self._n_bursts if is_burst else n_before - n_first
        size, period_s = (n_before - n_first) / n_bursts, (at_s - first_s) / n_bursts
        n_left = n_received + n_frames - n_before - 1  # up to the last one, after the first one of this burst
        n_periods = int(n_left / size + 1e-6)
        within_s = self._duration_s * (n_left - n_periods * size) / max(1.0, size - 1)
        delay_s = max(0.0, now_s - self._last[0] - self._longest_s)
        return max(0.0, at_s + n_periods * period_s + within_s + delay_s - now_s)


class FrameProgress:
    """Follows the counts of one log. Used by the loop only, which calls `look` in each turn.

    Nothing is done per frame: a turn of the loop takes many, and adds to the histograms once for each of its marks.
    sent: how many frame numbers the producer had assigned when it said so last; None if it never did.
    """

    def __init__(self, log: Log) -> None:
        self.sent: int | None = None
        self._log = log
        self._earlier = DaemonTotals()  # frames of earlier runs of a resumed dataset
        self._is_open = False
        self._opened_at_s = self._frame_at_s = time.monotonic()
        self._rhythm = FrameRhythm()
        self._n_received = self._n_published = self._n_durable = 0
        self._publish = LatencyMeter()
        self._durable = LatencyMeter()

    @property
    def running_s(self) -> float:
        """Seconds since the acquisition was opened or resumed."""
        return time.monotonic() - self._opened_at_s

    @property
    def seconds_since_frame(self) -> float:
        """Seconds since a frame was received; before the first one, since the acquisition was opened."""
        return time.monotonic() - self._frame_at_s

    def seconds_until(self, n_frames: int) -> float | None:
        """Seconds until so many more frames have come; None if unknown. See `FrameRhythm`."""
        return self._rhythm.seconds_until(n_frames, self._n_received, time.monotonic())

    def begin(self, now_s: float) -> None:
        """The log is open: what it has is of an earlier run."""
        self._earlier = self._counts()
        self._n_received = self._n_published = self._n_durable = self._earlier.frames_received
        self._publish, self._durable = LatencyMeter(self._n_received), LatencyMeter(self._n_received)
        self._opened_at_s = self._frame_at_s = now_s
        self._is_open = True

    def tick(self, now_s: float) -> None:
        """Take the log's counts over."""
        counts = self._log.counts
        published, durable = counts.stored, counts.forced.stored
        received = self._log.received_frames  # read last: never less than the others
        if received != self._n_received:
            self._rhythm.note(self._n_received, now_s)
            self._n_received, self._frame_at_s = received, now_s
            self._publish.note_received(received, now_s)
            self._durable.note_received(received, now_s)
        if published != self._n_published:
            self._n_published = published
            self._publish.note_reached(published, now_s)
        if durable != self._n_durable:
            self._n_durable = durable
            self._durable.note_reached(durable, now_s)

    def totals(self) -> DaemonTotals:
        """Return this acquisition's part of the daemon's totals, without those of its end."""
        notes, counts, earlier = self._log.notes, self._counts(), self._earlier
        if not self._is_open:
            counts = earlier
        warnings: dict[str, int] = {}
        for code, count in notes.warning_counts.copy().items():
            known = counted_code(code)
            warnings[known] = warnings.get(known, 0) + count
        return DaemonTotals(
            frames_received=counts.frames_received - earlier.frames_received,
            frames_published=counts.frames_published - earlier.frames_published,
            frames_durable=counts.frames_durable - earlier.frames_durable,
            frames_skipped=counts.frames_skipped - earlier.frames_skipped,
            payload_bytes=counts.payload_bytes - earlier.payload_bytes,
            stalls=notes.n_stalls,
            stall_s=notes.stall_s,
            warnings=warnings,
            publish_latency=self._publish.histogram(),
            durable_latency=self._durable.histogram(),
        )

    def _counts(self) -> DaemonTotals:
        counts = self._log.counts
        return DaemonTotals(
            frames_received=self._log.received_frames,
            frames_published=counts.stored,
            frames_durable=counts.forced.stored,
            frames_skipped=counts.skipped,
            payload_bytes=counts.payload_bytes,
        )
