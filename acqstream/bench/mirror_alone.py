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

from acqstream.bench.block_peer import ROLE
from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import run_folder
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
from acqstream.bench.mirror_peers import (
    ACQUIRE,
    COPY,
    LZ4,
    MIRROR_PEERS,
    TENSORSTORE,
    TENSORSTORE_FRAMES,
    TENSORSTORE_SHARDS,
    TENSORSTORE_VOLUMES,
    PeerTask,
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
_BLOCKS = (16, 512, 512)  # z, y, x: what N5 mirrors have by default
_BLOSC = {"type": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 2}  # what N5 mirrors have by default


@dataclass(frozen=True, slots=True)
class AloneRow:
    """A mirror, and what of MIRROR_PEERS stands beside with the part of its rate that it has to reach; None: no bound.

    is_extra: measured only if it is asked for by its name.
    """

    name: str
    settings: Mapping[str, Any]
    beside: Mapping[str, float | None]
    is_extra: bool = False


def _n5(name: str, compression: str | Mapping[str, Any]) -> AloneRow:
    settings = {"format": "n5", "levels": 1, "blocks": _BLOCKS, "compression": compression}
    return AloneRow(f"n5 {name}", settings, {TENSORSTORE: 1.0})


def _wkw(compression: str, beside: str) -> AloneRow:
    return AloneRow(f"wkw {compression}", {"format": "wkw", "levels": 1, "compression": compression}, {beside: 0.8})


def _ome_zarr(name: str, beside: Mapping[str, float | None], **settings: Any) -> AloneRow:
    raw = {"format": "ome-zarr", "compression": "none", "levels": 1, **settings}
    return AloneRow(f"ome-zarr raw{name}", raw, beside, is_extra=bool(name))


_WRITERS = {ACQUIRE: 3.0, TENSORSTORE_SHARDS: 3.0, TENSORSTORE_FRAMES: 3.0}
_UNBOUND = {COPY: None, TENSORSTORE_SHARDS: None}

ALONE_ROWS = (
    _n5("raw", {"type": "raw"}),
    _n5("blosc-lz4", _BLOSC),
    _wkw("raw", COPY),
    _ome_zarr("", {COPY: 0.8}),
    _wkw("lz4", LZ4),
    _ome_zarr(" beside writers", {COPY: 0.8, **_WRITERS}),
    _ome_zarr(" whole frames", {COPY: 0.8, **_WRITERS}, chunks=(1, 2**13, 2**13)),
    _ome_zarr(" 16 deep", _UNBOUND, chunks=(16, 512, 512)),
    _ome_zarr(" 64 deep", _UNBOUND, chunks=(64, 128, 128)),
    _ome_zarr(" all levels", _UNBOUND, levels="auto"),
    AloneRow("precomputed raw", {"format": "precomputed", "levels": 1}, {COPY: None, TENSORSTORE_VOLUMES: None}, True),
    AloneRow(
        "precomputed raw shards",
        {"format": "precomputed", "levels": 1, "shards": True},
        {COPY: None, TENSORSTORE_VOLUMES: 1.0},
        True,
    ),
)


class AloneBench:
    """dataset was written from `workload`, in stacks of z frames; mirrors are made below `folder`, and deleted."""

    def __init__(self, dataset: Path, folder: Path, workload: Workload, z: int, rows: Sequence[AloneRow]) -> None:
        self._dataset = dataset
        self._folder = folder
        self._workload = workload
        self._z = z
        self._rows = rows
        self._rounds: dict[str, list[tuple[AloneRun, dict[str, Measurement]]]] = {row.name: [] for row in rows}

    def measure(self, row: AloneRow, tell: Callable[[str], None], *, is_first: bool) -> None:
        """A round: the mirror and each of its peers; is_first: the mirror comes first, else last."""
        run: AloneRun | None = None
        peers: dict[str, Measurement] = {}
        task = PeerTask(self._dataset, self._workload, self._z, row.settings)
        names = ["", *(name for name in row.beside if not MIRROR_PEERS[name].absent())]
        for name in names if is_first else reversed(names):
            tell(f"{row.name} alone{name and f': {name}'}")
            with run_folder(self._folder, "alone") as place:
                if name:
                    peers[name] = MIRROR_PEERS[name].run(task, place)
                else:
                    run = self._mirror(row, place)
        assert run is not None
        self._rounds[row.name].append((run, peers))

    def table(self) -> Table:
        rows = [self._figures(row, beside) for row in self._rows for beside in row.beside]
        sides = " x ".join(str(side) for side in self._workload.shape)
        size = self._workload.payload_bytes / GIGA
        title = f"`acqstream mirror` of {self._workload.frames} frames of {sides} uint16 ({size:.2g} GB)"
        note = (
            "until durable, in turn with what stands beside; one level, if nothing else is said; checked: until every "
            "frame was compared, too; peak memory is what the process took beyond what it had"
        )
        for name in dict.fromkeys(name for row in self._rows for name in row.beside):
            if reason := MIRROR_PEERS[name].absent():
                note += f"; {name}: {reason}"
        return Table(title=title, rows=tuple(rows), note=note)

    def _mirror(self, row: AloneRow, place: Path) -> AloneRun:
        places = {"dataset": self._dataset, "out": place / "mirror"}
        timeout_s = timeout_for(2 * self._workload.payload_bytes)
        how = {"settings": row.settings, "memory_mb": MEMORY_MB}
        with started_child("mirror", timeout_s=timeout_s, **places, **how) as child:
            return AloneRun.from_document(child.result())

    def _figures(self, row: AloneRow, beside: str) -> dict[str, str | float | None]:
        rounds = self._rounds[row.name]
        mirrors = [run.mirror for run, _ in rounds]
        pairs = [(run.mirror, peers[beside]) for run, peers in rounds if beside in peers]
        size = self._workload.payload_bytes / GIGA
        peaks = [cost.peak_bytes for run in mirrors if (cost := run.processes["mirror"]).peak_bytes is not None]
        found: dict[str, str | float | None] = {
            "row": row.name,
            "gb_per_s": statistics.median(run.bytes_per_s for run in mirrors) / GIGA,
            "beside": beside,
            "beside_gb_per_s": None,
            "ratio": None,
            "lowest": None,
            "highest": None,
            "wanted": row.beside[beside],
            "checked_gb_per_s": statistics.median(size / (run.mirror.seconds + run.check_s) for run, _ in rounds),
            "cpu_s_per_gb": statistics.median(run.cpu_s_per_gb("mirror") for run in mirrors),
            "check_cpu_s_per_gb": statistics.median(run.check_cpu_s for run, _ in rounds) / size,
            "beside_cpu_s_per_gb": None,
            "peak_mb": math.ceil(max(peaks) / 1e6) if peaks else None,
            "computed_mb": math.ceil(max(run.memory_bytes for run, _ in rounds) / 1e6),
        }
        if pairs:
            ratio = spread_of([mirror.bytes_per_s / peer.bytes_per_s for mirror, peer in pairs])
            found |= {
                "beside_gb_per_s": statistics.median(peer.bytes_per_s for _, peer in pairs) / GIGA,
                "ratio": ratio.median,
                "lowest": ratio.low,
                "highest": ratio.high,
                "beside_cpu_s_per_gb": statistics.median(peer.cpu_s_per_gb(ROLE) for _, peer in pairs),
            }
        return found
