"""Mirrors of a finished dataset, as `acqstream mirror` makes them, in turn with their baselines."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench import block_peer
from acqstream.bench.block_peer import ROLE
from acqstream.bench.child_process import run_measured, started_child, timeout_for
from acqstream.bench.comparison import run_folder
from acqstream.bench.limit import measure_copy
from acqstream.bench.measurement import (
    GIGA,
    Measurement,
    ProcessCost,
    UsageMeter,
    latency_of,
    measurement_from,
    reset_peak_memory,
    spread_of,
)
from acqstream.bench.report import Table
from acqstream.bench.workload import Workload
from acqstream.errors import AcquisitionFailed
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_view import KEPT_BYTES
from acqstream.mirrors.view_maker import view_maker
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.platform import keep_large_blocks
from acqstream.storage.platform.capabilities import drop_from_cache
from acqstream.views.checkpoint import view_folder
from acqstream.views.view import ViewRun
from acqstream.views.view_progress import ViewState


@dataclass(frozen=True, slots=True)
class AloneRun:
    """mirror: until all of it is durable, role "mirror"; the peak is beyond what the process had before. check_s: for
    comparing every frame after, with check_cpu_s of processor time. memory_bytes: what it had computed to take."""

    mirror: Measurement
    check_s: float
    check_cpu_s: float
    memory_bytes: int

    @staticmethod
    def from_document(values: Mapping[str, Any]) -> AloneRun:
        return AloneRun(**{**values, "mirror": measurement_from(values["mirror"])})


def measure_mirror(dataset: Path, out: Path, settings: Mapping[str, Any], memory_mb: float) -> AloneRun:
    """Mirror a dataset that is not in the page cache, in this process.

    Raises AcquisitionFailed if a frame of the mirror is not that of the dataset.
    """
    keep_large_blocks(KEPT_BYTES)
    reader, *_ = open_readers(dataset)
    count, frame_bytes = len(reader), reader.stored_frame(0)[1].payload_bytes
    reader.close()
    for stack in dataset.glob("*.tif"):
        drop_from_cache(stack)
    name = str(settings["format"])
    make = view_maker(ViewSpec(name, settings), container=out, memory_mb=memory_mb)
    reset_peak_memory()
    before = psutil.Process().memory_info().rss
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    run = ViewRun(dataset, name, make, folder=view_folder(out, "view"))
    _finish(run)
    seconds, cost = time.perf_counter() - started, meter.cost()
    peak = None if cost.peak_bytes is None else max(0, cost.peak_bytes - before)
    measured = Measurement(
        payload_bytes=count * frame_bytes,
        frames=count,
        seconds=seconds,
        latency=latency_of([int(seconds * 1e9)]),
        processes={"mirror": ProcessCost(cost.cpu_s, peak)},
    )
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    found = compare(dataset, run.folder, count)
    if found.different or found.frames != count:
        raise AcquisitionFailed(f"{out}: of {count} frames {found.frames} were compared, {found.text}")
    check_s, check_cpu_s = time.perf_counter() - started, meter.cost().cpu_s
    return AloneRun(measured, check_s, check_cpu_s, int(run.view.summary()["memory_bytes"]))


def _finish(run: ViewRun) -> None:
    try:
        while (wait_s := run.step()) is not None:
            time.sleep(wait_s)
        if run.progress().state is not ViewState.COMPLETE:
            raise AcquisitionFailed(f"{run.folder}: is {run.progress().state} {run.reason}")
    finally:
        run.close()


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
    AloneRow("ome-zarr raw", {"format": "ome-zarr", "levels": 1, "compression": "none"}, COPY, 0.8),
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
        places = {"dataset": self._dataset, "out": place / "mirror"}
        timeout_s = timeout_for(2 * self._workload.payload_bytes)
        how = {"settings": row.settings, "memory_mb": MEMORY_MB}
        with started_child("mirror", timeout_s=timeout_s, **places, **how) as child:
            return AloneRun.from_document(child.result())

    def _beside(self, row: AloneRow, place: Path) -> Measurement | None:
        if row.beside == COPY:
            return measure_copy(sorted(self._dataset.glob("*.tif")), place)
        if row.beside == TENSORSTORE and block_peer.absent():
            return None
        sides = (self._workload.frames, *self._workload.shape)
        blocks = [min(pair) for pair in zip(row.settings.get("blocks", ()), sides, strict=False)]
        size = self._workload.payload_bytes
        if row.beside == LZ4:
            return run_measured("lz4 blocks", size, workload=self._workload)
        how = {"blocks": blocks, "compression": row.settings["compression"]}
        return run_measured("tensorstore blocks", size, folder=place, workload=self._workload, **how)

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
