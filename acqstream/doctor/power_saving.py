"""Check: does the PC slow down or sleep during a run?"""

from __future__ import annotations

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, unknown, warning
from acqstream.storage.platform.pc import power_facts
from acqstream.storage.platform.pc_facts import PowerFacts

NAME = "power saving"
_FAST = "Choose the performance plan (Linux: `cpupower frequency-set -g performance`; Windows: power options)."
_AWAKE = "Switch automatic suspend off, or run `systemd-inhibit` (docs/system-service.md)."


def gather(examination: Examination) -> PowerFacts:
    """Ask the system."""
    del examination
    return power_facts()


def judge(facts: PowerFacts) -> CheckVerdict:
    """The worst first: a PC that sleeps records nothing."""
    if facts.sleep_after_s and not facts.stays_awake_for_runs:
        return problem(f"The PC sleeps after {facts.sleep_after_s // 60} minutes without a user.", _AWAKE)
    if facts.on_battery:
        return warning("The PC runs on its battery.", "Connect it to mains power.")
    if facts.slows_down:
        return warning(f"The processors save power ({facts.plan}).", _FAST)
    if not facts.plan and facts.sleep_after_s is None:
        return unknown("The system does not report how it saves power.", "Look at its power settings.")
    parts = [f"plan {facts.plan}"] if facts.plan else []
    if facts.sleep_after_s and facts.stays_awake_for_runs:
        parts.append("the PC sleeps, but not during a run")
    elif facts.sleep_after_s == 0:
        parts.append("the PC does not sleep")
    return ok(f"Power: {', '.join(parts)}.")
