"""Check: do levels and mirrors have the compiled kernels?"""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, warning
from acqstream.grid import kernels

NAME = "kernels"
_COST = "levels and mirrors take about a third more processor time, for the same files"
_BUILD = "Install a wheel for this platform, or a C compiler and the headers of Python, and install acqstream again."
_RESTART = "Then restart the daemon."


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """name: "compiled" or "numpy", in this process; reason: of numpy. daemon: those of the running daemon's views, ""
    before the first view, or if no daemon answers."""

    name: str
    reason: str = ""
    daemon: str = ""


def gather(examination: Examination) -> KernelFacts:
    """Ask this process and the running daemon."""
    status = examination.status
    daemon = "" if status is None else status.views.kernels
    return KernelFacts(name=kernels.kernels_name(), reason=kernels.reason, daemon=daemon)


def judge(facts: KernelFacts) -> CheckVerdict:
    """Numpy gives the same files: so it is never a problem."""
    is_chosen = facts.reason.startswith(kernels.VARIABLE)
    unset = f"Remove {kernels.VARIABLE} from the environment."
    if facts.name == "numpy":
        what = f"numpy replaces the compiled kernels ({facts.reason}): {_COST}."
        return warning(what, unset if is_chosen else f"{_BUILD} {_RESTART}")
    if facts.daemon == "numpy":
        what = f"The daemon's views use numpy, this program has the compiled kernels: {_COST}."
        return warning(what, f"Remove {kernels.VARIABLE} from the environment of the daemon. {_RESTART}")
    return ok("Levels and mirrors have the compiled kernels.")
