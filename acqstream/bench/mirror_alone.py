"""Mirrors of a dataset that is there already, each in turn with what stands beside it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acqstream.bench import block_peer
from acqstream.bench.block_peer import ROLE
from acqstream.bench.child_process import run_measured, started_child, timeout_for
from acqstream.bench.comparison import run_folder
from acqstream.bench.copy_limit import measure_copy
from acqstream.bench.measurement import GIGA, Measurement, spread_of
from acqstream.bench.mirror_process import AloneRun
from acqstream.bench.report import Table
from acqstream.bench.workload import Workload

MEMORY_MB = 1024  # the default of `acqstream mirror`
TENSORSTORE, COPY, LZ4 = "tensorstore", "direct copy", "lz4.block"
_BLOCKS = (16, 512, 512)  # z, y, x: what N5 mirrors have by default
_BLOSC = {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}


@dataclass(frozen=True, slots=True)
class AloneRow:
    """A mirror without lower levels, and what stands beside: it has to reach `wanted` of its rate."""

    name: str
    settings: Mapping[str, Any]
    beside: str
    wanted: float


def _n5(name: str, compression: str | Mapping[str, Any]) -> AloneRow:
    settings = {"format": "n5", "levels": 1, "blocks": _BLOCKS, "compression": compression}
    return AloneRow(f"n5 {name}", settings, TENSORSTORE, 1.0)


ALONE_ROWS = (
    _n5("raw", {"type": "raw"}),
    _n5("blosc-lz4", _BLOSC),
    AloneRow("wkw raw", {"format": "wkw", "levels": 1, "compression": "raw"}, COPY, 0.8),
    AloneRow("wkw lz4", {"format": "wkw", "levels": 1, "compression": "lz4"}, LZ4, 0.8),
)


class AloneBench:
    """dataset was written from `workload`; mirrors are made below `folder`, and deleted."""

    def __init__(self, dataset: Path, folder: Path, workload: Workload, rows: Sequence[AloneRow]) -> None:
        self._dataset = dataset
        self._folder = folder
        self._workload = workload
        self._rows = rows
        self._pairs: dict[str, list[tuple[AloneRun, Measurement | None]]] = {row.name: [] for row in rows}

    def measure(self, row: AloneRow, tell: Callable[[str], None], *, is_first: bool) -> None:
        """A pair; is_first: the mirror comes first."""
        run: AloneRun | None = None
        peer: Measurement | None = None
        for is_mirror in (is_first, not is_first):
            tell(f"{row.name} alone{'' if is_mirror else f': {row.beside}'}")
            with run_folder(self._folder, "alone") as place:
                if is_mirror:
                    run = self._mirror(row, place)
                else:
                    peer = self._beside(row, place)
        assert run is not None
        self._pairs[row.name].append((run, peer))

    def table(self) -> Table:
        rows = [self._figures(row) for row in self._rows]
        sides = " x ".join(str(side) for side in self._workload.shape)
        size = self._workload.payload_bytes / GIGA
        title = f"`acqstream mirror` of {self._workload.frames} frames of {sides} uint16 ({size:.2g} GB), one level"
        note = (
            "until durable, in turn with what stands beside; checked: until every frame was compared, too; peak memory "
            "is what the process took beyond what it had"
        )
        if reason := block_peer.absent():
            note += f"; {TENSORSTORE}: {reason}"
        return Table(title=title, rows=tuple(rows), note=note)

    def _mirror(self, row: AloneRow, place: Path) -> AloneRun:
        how = json.dumps({"settings": row.settings, "memory_mb": MEMORY_MB})
        arguments = [str(self._dataset), str(place / "mirror"), how]
        timeout_s = timeout_for(2 * self._workload.payload_bytes)
        with started_child("acqstream.bench.mirror_process", arguments, timeout_s=timeout_s) as child:
            return AloneRun.from_document(child.result())

    def _beside(self, row: AloneRow, place: Path) -> Measurement | None:
        if row.beside == COPY:
            return measure_copy(sorted(self._dataset.glob("*.tif")), place)
        if row.beside == TENSORSTORE and block_peer.absent():
            return None
        sides = (self._workload.frames, *self._workload.shape)
        blocks = [min(pair) for pair in zip(row.settings.get("blocks", ()), sides, strict=False)]
        how = {"blocks": blocks, "compression": row.settings["compression"]}
        what = "lz4" if row.beside == LZ4 else "tensorstore"
        arguments = [what, str(place), self._workload.as_argument(), json.dumps(how)]
        return run_measured("acqstream.bench.block_peer", arguments, self._workload.payload_bytes)

    def _figures(self, row: AloneRow) -> dict[str, str | float | None]:
        pairs = self._pairs[row.name]
        mirrors, peers = [run.mirror for run, _ in pairs], [peer for _, peer in pairs if peer is not None]
        size = self._workload.payload_bytes / GIGA
        peaks = [cost.peak_bytes for run in mirrors if (cost := run.processes["mirror"]).peak_bytes is not None]
        found: dict[str, str | float | None] = {
            "row": row.name,
            "gb_per_s": statistics.median(run.bytes_per_s for run in mirrors) / GIGA,
            "beside": row.beside,
            "beside_gb_per_s": None,
            "ratio": None,
            "lowest": None,
            "highest": None,
            "wanted": row.wanted,
            "checked_gb_per_s": statistics.median(size / (run.mirror.seconds + run.check_s) for run, _ in pairs),
            "cpu_s_per_gb": statistics.median(run.cpu_s_per_gb("mirror") for run in mirrors),
            "check_cpu_s_per_gb": statistics.median(run.check_cpu_s for run, _ in pairs) / size,
            "beside_cpu_s_per_gb": None,
            "peak_mb": math.ceil(max(peaks) / 1e6) if peaks else None,
            "computed_mb": math.ceil(max(run.memory_bytes for run, _ in pairs) / 1e6),
        }
        if peers:
            ratio = spread_of([run.mirror.bytes_per_s / peer.bytes_per_s for run, peer in pairs if peer is not None])
            found |= {
                "beside_gb_per_s": statistics.median(peer.bytes_per_s for peer in peers) / GIGA,
                "ratio": ratio.median,
                "lowest": ratio.low,
                "highest": ratio.high,
                "beside_cpu_s_per_gb": statistics.median(peer.cpu_s_per_gb(ROLE) for peer in peers),
            }
        return found
