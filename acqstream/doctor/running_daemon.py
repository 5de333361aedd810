"""Check: is the daemon that runs well?"""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.model.units import count_text

NAME = "daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemonFacts:
    """endpoint: empty if none runs. paused, stalled, buffered: one line for each acquisition in that state."""

    endpoint: str = ""
    data: str = ""
    version: str = ""
    own_version: str = ""
    acquisitions: int = 0
    paused: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()
    failed_views: tuple[str, ...] = ()


def gather(examination: Examination) -> RunningDaemonFacts:
    """Take what the daemon has answered."""
    from acqstream import __version__

    status = examination.status
    if status is None:
        return RunningDaemonFacts()
    return RunningDaemonFacts(
        endpoint=status.endpoint,
        data=status.data,
        version=status.version,
        own_version=__version__,
        acquisitions=len(status.acquisitions),
        paused=tuple(f"{one.name}: {one.paused}" for one in status.acquisitions if one.paused),
        stalled=tuple(f"{one.name}: {one.stall}" for one in status.acquisitions if one.stall),
        failed_views=tuple(
            f"{one.mirror} of {one.path}: {one.reason}" for one in status.views.mirrors if one.state == "failed"
        ),
    )


def judge(facts: RunningDaemonFacts) -> CheckVerdict:
    """The worst first."""
    if not facts.endpoint:
        return ok("No daemon answers; create(data=DIR) starts one.")
    if facts.stalled:
        return problem(f"The disk stalls: {'; '.join(facts.stalled)}.", "Look at the disk and its cable.")
    if facts.paused:
        return problem(f"Recording is paused: {'; '.join(facts.paused)}.", "Free some space on the disk.")
    if facts.failed_views:
        return warning(f"Copies have failed: {'; '.join(facts.failed_views)}.", "Make them again: `acqstream mirror`.")
    if facts.version != facts.own_version:
        text = f"The daemon at {facts.endpoint} is of version {facts.version}, this program of {facts.own_version}."
        return warning(text, "Restart the daemon when nothing is recorded: `acqstream shutdown`.")
    return ok(
        f"The daemon at {facts.endpoint} writes to {facts.data}; "
        f"{count_text(facts.acquisitions, 'acquisition', 'are')} open."
    )
