"""What a running acquisition means, in words: one sentence, its rates, and the one alarm. Pure.

Page, commands and `print(run)` show these words of the same status: nothing of them is decided a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus, SpaceLevel
from acqstream.model.units import count_text, duration_text, numbers_text, rate_text, size_text

SILENT_S = 5.0  # without a frame, at least, before a run counts as silent
SILENT_INTERVALS = 5
BEHIND_S = 5.0  # of frames that wait to be written, at least, before a run counts as behind
BAD, WARN = "bad", "warn"


@dataclass(frozen=True, slots=True)
class Alarm:
    """What keeps a run from recording, or will. level: BAD, WARN or "" (no alarm). action: what its user can do."""

    level: str = ""
    text: str = ""
    action: str = ""

    @property
    def sentence(self) -> str:
        """All of it in one line: "no frame for 40 s: look at the camera and at ..."."""
        return f"{self.text}: {self.action}" if self.text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in words. The sentence is safe_text, the local time of the end, and to_come_text.

    planned and safe count frames; safe are those with pixels that survive a power cut. safe_share is the share of the
    planned frames, or of those sent, that is safe or skipped. seconds_to_end and fits are None where unknown.
    frames_per_s (0: unknown) is the rate of the last minute, or of the last ten frames.
    """

    planned: int | None
    safe: int
    safe_share: float
    safe_text: str
    seconds_to_end: float | None
    to_come_text: str
    fits: bool | None
    frames_per_s: float
    rate_text: str
    frame_rate_text: str
    skipped_text: str
    alarm: Alarm

    def ends_at(self, now: datetime) -> datetime | None:
        """Return the time at which the last planned frame will have come, in the zone of `now`; None if unknown."""
        if self.seconds_to_end is None:
            return None
        try:
            return now + timedelta(seconds=self.seconds_to_end)
        except OverflowError:  # after the year 9999
            return None

    def sentence(self, now: datetime) -> str:
        """For example "577 of 699 frames safe · ends 18:40 · 11 GB to come, fits". now: with the reader's zone."""
        end = self.ends_at(now)
        form = "%H:%M" if end is not None and end.date() == now.date() else "%Y-%m-%d %H:%M"
        parts = (self.safe_text, f"ends {end.strftime(form)}" if end is not None else "", self.to_come_text)
        return " · ".join(filter(None, parts))


def run_summary(run: AcquisitionStatus) -> RunSummary:
    """Return the words for a status of a daemon of any version."""
    safe = run.safe if run.safe is not None else max(0, run.durable - run.skipped)
    total = run.known if run.expected is None else run.expected
    frame_bytes = run.payload_bytes / max(1, run.published - run.skipped)
    frames_per_s = run.bytes_per_s / frame_bytes if frame_bytes else 0.0
    return RunSummary(
        planned=run.expected,
        safe=safe,
        safe_share=min(1.0, run.durable / total) if total else 0.0,
        safe_text=_safe_text(run, safe),
        seconds_to_end=run.seconds_to_end,
        to_come_text=_to_come_text(run),
        fits=None if run.short_bytes is None else run.short_bytes == 0,
        frames_per_s=frames_per_s,
        rate_text=rate_text(run.bytes_per_s),
        frame_rate_text=_frame_rate_text(frames_per_s),
        skipped_text=_skipped_text(run),
        alarm=_alarm(run, frames_per_s),
    )


def _safe_text(run: AcquisitionStatus, safe: int) -> str:
    waiting = max(0, run.known - run.durable)  # also those in the producer's memory
    if run.expected and run.expected == safe and not waiting:
        return f"all {count_text(safe, 'frame')} safe" if safe > 1 else "1 frame safe"
    if run.expected and safe < run.expected:
        return f"{safe:,} of {count_text(run.expected, 'frame')} safe"
    more = f", {run.expected:,} planned" if run.expected else ""
    more += f", {waiting:,} not yet" if waiting else ""
    return f"{count_text(safe, 'frame')} safe{more}" if run.known else "no frame yet"


def _to_come_text(run: AcquisitionStatus) -> str:
    if run.to_come_bytes:
        fits = "" if run.short_bytes is None else ", does not fit" if run.short_bytes else ", fits"
        return f"{size_text(run.to_come_bytes)} to come{fits}"
    if run.to_come_bytes == 0 or run.seconds_left is None:
        return ""
    return f"space for {duration_text(run.seconds_left)}"


def _frame_rate_text(frames_per_s: float) -> str:
    if frames_per_s >= 1:
        return f"{frames_per_s:.1f} fps"
    for unit, seconds in (("minute", 60), ("hour", 3600)):
        if frames_per_s * seconds >= 1:
            return f"{frames_per_s * seconds:.1f} frames a {unit}"
    return f"{frames_per_s * 86400:.1f} frames a day" if frames_per_s else ""


def _skipped_text(run: AcquisitionStatus) -> str:
    """For example "6 frames skipped: 12, 40 to 44"; refused frames, which have no pixels either, change the words."""
    named = sum(gap.count for gap in run.gaps)
    if not run.skipped and not named:
        return ""
    what = "skipped" if run.skipped >= named else "without pixels"
    last = "last " if run.skipped > named else ""
    numbers = ", ".join(numbers_text(gap.first, gap.count) for gap in run.gaps)
    return f"{count_text(max(run.skipped, named), 'frame')} {what}{f': {last}{numbers}' if numbers else ''}"


def _alarm(run: AcquisitionStatus, frames_per_s: float) -> Alarm:
    """The worst that is known: one alarm for one run."""
    if run.paused or run.state == AcquisitionState.PAUSED:
        why = f"{run.paused}. " if run.paused else ""
        return Alarm(BAD, "PAUSED: disk full", f"{why}Free space on this disk: the run then continues by itself")
    if run.stall:
        return Alarm(BAD, f"STALLED: {run.stall}", "frames wait in memory; look for what else uses this disk")
    if run.state == AcquisitionState.ORPHANED:
        action = "look at that program; if it is dead, resume the run with resume=True"
        return Alarm(BAD, "the program that sends its frames is silent", action)
    if run.short_bytes and run.state == AcquisitionState.RUNNING:
        left = f" in {duration_text(run.seconds_left)}" if run.seconds_left is not None else ""
        text = f"the disk will be full{left}, before the end"
        return Alarm(WARN, text, f"free at least {size_text(run.short_bytes)} on the disk of {run.path}")
    if is_silent(run, frames_per_s):
        return silence(run)
    return _lag(run, frames_per_s)


def _lag(run: AcquisitionStatus, frames_per_s: float) -> Alarm:
    """The alarm of a run whose frames take half of the daemon's memory, for more than a short burst."""
    waiting = run.known - run.published
    if run.state != AcquisitionState.RUNNING or not frames_per_s or not run.memory_bytes:
        return Alarm()
    lag_s = waiting / frames_per_s
    if lag_s < BEHIND_S or lag_s * run.bytes_per_s < run.memory_bytes / 2:
        return Alarm()
    text = f"the disk is behind by {count_text(waiting, 'frame')}, {duration_text(lag_s)}"
    return Alarm(WARN, text, "stop what else uses this disk, or send fewer frames: soon the camera has to wait")


def silence(run: AcquisitionStatus) -> Alarm:
    """The alarm of a run without frames, however long that may be."""
    text = f"no frame for {duration_text(run.seconds_since_frame or 0)}"
    return Alarm(WARN, text, "look at the camera and at the program that sends its frames")


def space_alarm(daemon: DaemonStatus) -> Alarm:
    """The alarm of a daemon whose disk is full, or will be soon; none while there is space."""
    if daemon.space not in (SpaceLevel.LOW, SpaceLevel.FULL):
        return Alarm()
    left = "unknown" if daemon.free_bytes is None else size_text(daemon.free_bytes)
    action = f"free space on the disk of {daemon.data}"
    if daemon.space == SpaceLevel.FULL:
        return Alarm(BAD, f"the disk is full: {left} left", action)
    lasts = "" if daemon.seconds_left is None else f" for {duration_text(daemon.seconds_left)}"
    return Alarm(WARN, f"disk space is low: {left} left{lasts}", action)


def is_silent(run: AcquisitionStatus, frames_per_s: float) -> bool:
    """Return True if a run that had frames has had none for five times their usual interval.

    Frames lately and frames of the whole run count: a time lapse has minutes between them. A run that has all planned
    frames is not silent, nor one before its first frame, or before the first since it was resumed.
    """
    since_s, running_s = run.seconds_since_frame, run.running_s
    if run.state != AcquisitionState.RUNNING or not run.received or since_s is None or running_s is None:
        return False
    is_done = run.expected is not None and run.received >= run.expected
    if is_done or since_s >= running_s:
        return False
    usual_s = max((running_s - since_s) / run.received, 1 / frames_per_s if frames_per_s else 0.0)
    return since_s > max(SILENT_S, SILENT_INTERVALS * usual_s)
