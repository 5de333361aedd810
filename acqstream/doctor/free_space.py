"""Check: how long does the free space last?"""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.file_system import quota_text
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.storage.platform import FILES

NAME = "free space"
_LOW_BYTES, _WARN_BYTES = 2e9, 20e9  # without a planned camera
_GOOD_S = 3600.0
_REMEDY = "Delete or move datasets, or use another disk."


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpaceFacts:
    """free_bytes: for this user; reserve_bytes: of those, what the daemon keeps free; low_s: where it warns;
    quota: `quota_text`."""

    free_bytes: int
    reserve_bytes: int = 0
    low_s: float = 600.0
    wanted_bytes_per_s: float | None = None
    quota: str = ""


def gather(examination: Examination) -> FreeSpaceFacts:
    """Ask the system for the free space. Raises OSError."""
    return FreeSpaceFacts(
        free_bytes=FILES.free_bytes(str(examination.data)),
        reserve_bytes=examination.config.reserve_mb * 2**20,
        low_s=60 * examination.config.low_space_minutes,
        wanted_bytes_per_s=examination.camera.bytes_per_s if examination.camera is not None else None,
        quota=quota_text(examination.data),
    )


def judge(facts: FreeSpaceFacts) -> CheckVerdict:
    """Compare the space with the camera, or with what a short run needs."""
    usable = max(0, facts.free_bytes - facts.reserve_bytes)
    what = f"{usable / 1e9:,.1f} GB can be recorded{facts.quota and f' ({facts.quota})'}"
    if facts.wanted_bytes_per_s:
        lasts_s = usable / facts.wanted_bytes_per_s
        what = f"{what}, {_duration(lasts_s)} of this camera."
        if lasts_s < facts.low_s:
            return problem(what, _REMEDY)
        return warning(what, _REMEDY) if lasts_s < _GOOD_S else ok(what)
    if usable < _LOW_BYTES:
        return problem(f"{what}.", _REMEDY)
    return warning(f"{what}.", _REMEDY) if usable < _WARN_BYTES else ok(f"{what}.")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:,.0f} h"
