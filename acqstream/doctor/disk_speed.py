"""Check: does the disk keep up with the camera?"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, unknown, warning
from acqstream.storage.platform import FILES

NAME = "disk speed"
_MIB = 2**20
FIRST_BYTES = 32 * _MIB
MAX_BYTES = 1024 * _MIB
WANTED_S = 1.5
_MAX_SHARE = 0.8  # of what the disk takes: the daemon reaches 0.80 to 0.84 over sockets (docs/performance.md)
_GOOD_SHARE = 0.6
_SLOW_BYTES_PER_S = 100e6
_BENCH = "`acqstream bench --quick` measures it longer"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpeedFacts:
    """bytes_per_s: what the disk took, None if not measured, with the reason; wanted_bytes_per_s: of the camera."""

    bytes_per_s: float | None = None
    reason: str = ""
    wanted_bytes_per_s: float | None = None


def gather(examination: Examination) -> DiskSpeedFacts:
    """Write for some seconds into the data directory, unless something is being recorded. Raises OSError."""
    camera = examination.camera
    wanted = camera.bytes_per_s if camera is not None else None
    if examination.running:
        reason = f"{', '.join(examination.running)} is being recorded"
        return DiskSpeedFacts(reason=reason, wanted_bytes_per_s=wanted)
    free = FILES.free_bytes(str(examination.data)) - examination.config.reserve_mb * _MIB
    if free < 4 * FIRST_BYTES:
        return DiskSpeedFacts(reason="there is too little free space", wanted_bytes_per_s=wanted)
    with tempfile.TemporaryDirectory(prefix=".acqstream-doctor-", dir=examination.data) as folder:
        return DiskSpeedFacts(bytes_per_s=_measure(Path(folder), free), wanted_bytes_per_s=wanted)


def _measure(folder: Path, free: int) -> float:
    """Bytes per second: of a small file first, so that a slow disk takes seconds and not minutes."""
    from acqstream.bench.limit import measure_limit

    first = measure_limit(folder, FIRST_BYTES).bytes_per_s
    size = int(min(first * WANTED_S, MAX_BYTES, free // 4)) // FIRST_BYTES * FIRST_BYTES
    return first if size <= FIRST_BYTES else measure_limit(folder, size).bytes_per_s


def judge(facts: DiskSpeedFacts) -> CheckVerdict:
    """Compare the disk with the camera."""
    if facts.bytes_per_s is None:
        return unknown(f"The speed of the disk was not measured, because {facts.reason}.", "Run this again later.")
    speed, wanted = facts.bytes_per_s, facts.wanted_bytes_per_s
    takes = f"The disk takes {_mb(speed)}"
    if wanted is None:
        if speed < _SLOW_BYTES_PER_S:
            return warning(
                f"{takes}, which is slow.", "Use a local SSD, or name the camera (--frame, --fps) to be sure."
            )
        return ok(f"{takes} in a short measurement.")
    share = f"{takes}; the camera sends {_mb(wanted)}, {100 * wanted / speed:.0f}% of that"
    if wanted > _MAX_SHARE * speed:
        remedy = "Use a faster local disk, fewer frames per second, smaller frames or binning."
        return problem(f"{share}: more than the {100 * _MAX_SHARE:.0f}% that can be stored.", remedy)
    if wanted > _GOOD_SHARE * speed:
        return warning(f"{share}: little reserve.", f"Keep the PC free of other work; {_BENCH}.")
    return ok(f"{share}.")


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.0f} MB/s"
