"""Recording with mirrors, and mirrors of a finished dataset beside a copy of it: `acqstream bench --mirror`."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import DATASET, Bench, BenchSettings, Observer, in_order, started_bench
from acqstream.bench.limit import measure_copy, measure_limit
from acqstream.bench.measurement import (
    GIGA,
    BenchReport,
    Figures,
    Measurement,
    ProcessCost,
    Table,
    UsageMeter,
    children_cpu_seconds,
    cpu_seconds,
    reset_peak_memory,
    spread_of,
    watched_children,
)
from acqstream.bench.producer import MirroredRun, send_mirrored, transport_for
from acqstream.bench.workload import Workload, workload_of
from acqstream.errors import AcquisitionFailed, ConfigError
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_view import KEPT_BYTES
from acqstream.mirrors.view_worker import view_maker
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.platform import keep_large_blocks
from acqstream.storage.platform.capabilities import drop_from_cache
from acqstream.views.checkpoint import view_folder
from acqstream.views.view_run import ViewRun, ViewState

POOL_BYTES = 64 * 2**20  # of prepared frames
Z = 128  # frames of a stack, or all of them
DIM_BITS = 10  # of frames to compress; the noise of brighter frames has no high byte that repeats
MEMORY_MB = 1024  # the default of `acqstream mirror`
PEER_ROLE = "peer"
LIVE_ROWS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "n5": ({"format": "n5"},),
    "wkw": ({"format": "wkw"},),
    "n5 and wkw": ({"format": "n5"}, {"format": "wkw"}),
    "ome-zarr": ({"format": "ome-zarr"},),
    "ome-zarr raw one level": ({"format": "ome-zarr", "compression": "none", "levels": 1},),
    "hsds": ({"format": "hsds"},),
}
PACED_ROWS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    **{f"{name} paced": mirrors for name, mirrors in LIVE_ROWS.items()},
    "n5 one level paced": ({"format": "n5", "levels": 1},),
    "wkw one level paced": ({"format": "wkw", "levels": 1},),
}
_WITHOUT = "without"
_MAX_COPIES = 5  # the log, two mirrors with their levels, and what is reserved


@dataclass(frozen=True, slots=True)
class AloneTask:
    """dataset was written from `workload`, in stacks of z frames; a mirror with these settings is made of it."""

    dataset: Path
    workload: Workload
    z: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MirrorPeer:
    """run takes an empty folder. wanted: the part of its rate that the mirror has to reach; absent: as of a Row."""

    name: str
    run: Callable[[AloneTask, Path], Measurement]
    wanted: float | None = None
    absent: str = ""


def copy_beside(wanted: float | None = None) -> MirrorPeer:
    """A direct copy of the stack files."""

    def copy(task: AloneTask, folder: Path) -> Measurement:
        return measure_copy(sorted(task.dataset.glob("*.tif")), folder)

    return MirrorPeer("direct copy", copy, wanted)


@dataclass(frozen=True, slots=True)
class AloneRow:
    """A mirror of a finished dataset, and what runs beside it."""

    name: str
    settings: Mapping[str, Any]
    peers: tuple[MirrorPeer, ...] = (copy_beside(),)


def n5_alone(name: str, compression: Mapping[str, Any], *peers: MirrorPeer) -> AloneRow:
    """One level of N5, in blocks as mirrors have them."""
    settings = {"format": "n5", "levels": 1, "blocks": (16, 512, 512), "compression": compression}
    return AloneRow(f"n5 {name}", settings, peers or (copy_beside(),))


RAW, BLOSC = {"type": "raw"}, {"type": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 2}
ALONE_ROWS = (
    n5_alone("raw", RAW),
    n5_alone("blosc-lz4", BLOSC),
    AloneRow("wkw raw", {"format": "wkw", "levels": 1, "compression": "raw"}, (copy_beside(0.8),)),
    AloneRow("wkw lz4", {"format": "wkw", "levels": 1, "compression": "lz4"}),
    AloneRow("ome-zarr raw", {"format": "ome-zarr", "compression": "none", "levels": 1}, (copy_beside(0.8),)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """Frames of `shape` (Y, X) uint16 that are mirrored while they are recorded, at full speed by those of `live` and
    at `share` of the limit by those of `paced`; and of `alone_shape`, mirrored afterwards by those of `alone`."""

    shape: tuple[int, int] = (2048, 2048)
    alone_shape: tuple[int, int] = (1024, 1024)
    share: float = 0.4
    live: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=lambda: LIVE_ROWS)
    paced: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=lambda: PACED_ROWS)
    alone: tuple[AloneRow, ...] = ALONE_ROWS


def chosen_plan(names: Sequence[str]) -> MirrorPlan:
    """The mirrors of these names, by default all. Raises ConfigError for an unknown name."""
    if not names:
        return MirrorPlan()
    known = tuple(dict.fromkeys((*LIVE_ROWS, *PACED_ROWS, *(row.name for row in ALONE_ROWS))))
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"unknown mirrors {unknown}; there are {list(known)}")
    return MirrorPlan(
        live={name: LIVE_ROWS[name] for name in names if name in LIVE_ROWS},
        paced={name: PACED_ROWS[name] for name in names if name in PACED_ROWS},
        alone=tuple(row for row in ALONE_ROWS if row.name in names),
    )


def run_mirror_benchmark(
    settings: BenchSettings, observe: Observer, *, names: Sequence[str] = (), plan: MirrorPlan | None = None
) -> BenchReport:
    """Over the first transport of settings.rows that this platform has. names are those of `chosen_plan`.

    Raises ConfigError if there is no transport, for an unknown name, or too little space.
    """
    plan = plan or chosen_plan(names)
    transport = transport_for(settings.rows, "--mirror")
    steps = settings.pairs * (2 * (len(plan.live) + len(plan.paced)) + alone_steps(plan.alone)) + 1
    with started_bench(settings, observe, steps, _MAX_COPIES * settings.payload_bytes) as bench:
        live = _LiveBench(bench, transport, plan)
        tables = [live.full_speed()] if plan.live else []
        tables += [live.paced()] if plan.paced else []
        tables += [alone_table(bench, transport, plan.alone_shape, plan.alone)] if plan.alone else []
        return bench.report(tables=tables)


def stacks_of(shape: tuple[int, int], payload_bytes: int) -> Workload:
    """Whole stacks of Z frames, or less than one."""
    found = workload_of(shape, "uint16", payload_bytes)
    return replace(found, frames=max(found.frames // Z * Z, min(found.frames, Z)), pool_bytes=POOL_BYTES)


def _frames_text(workload: Workload) -> str:
    sides = " x ".join(str(side) for side in workload.shape)
    return f"{workload.frames} frames of {sides} uint16 ({workload.payload_bytes / GIGA:.2g} GB)"


def _send(
    endpoint: str,
    transport: str,
    workload: Workload,
    mirrors: Sequence[Mapping[str, Any]] = (),
    frames_per_s: float | None = None,
) -> MirroredRun:
    to = {"endpoint": endpoint, "name": DATASET, "transport": transport}
    how = {"workload": workload, "z": min(Z, workload.frames), "mirrors": mirrors, "frames_per_s": frames_per_s}
    timeout_s = timeout_for(_MAX_COPIES * workload.payload_bytes)
    with started_child("mirrored producer", send_mirrored, timeout_s, **to, **how) as producer:
        return producer.result_as(MirroredRun)


# ------------------------------------------------------------------------------------------------- beside a recording


@dataclass(frozen=True, slots=True)
class _Live:
    """One recording. views_peak_bytes: private memory of the views' process."""

    run: MirroredRun
    daemon_cpu_s: float
    views_cpu_s: float
    views_peak_bytes: int


class _LiveBench:
    def __init__(self, bench: Bench, transport: str, plan: MirrorPlan) -> None:
        self._bench = bench
        self._transport = transport
        self._plan = plan
        self._workload = stacks_of(plan.shape, bench.settings.payload_bytes)
        self._size_gb = self._workload.payload_bytes / GIGA

    def full_speed(self) -> Table:
        """Pairs of runs without and with mirrors, in turn, because the first one may find an idle disk."""
        pairs: dict[str, list[dict[str, _Live]]] = {name: [] for name in self._plan.live}
        for turn in range(self._bench.settings.pairs):
            for name, mirrors in self._plan.live.items():
                wanted = {_WITHOUT: (), name: mirrors}
                order = in_order((_WITHOUT, name), turn)
                pairs[name].append({kind: self._live(f"full speed: {kind}", wanted[kind]) for kind in order})
        without = [pair[_WITHOUT] for some in pairs.values() for pair in some]
        rows = [{"row": _WITHOUT, **self._log_figures(without)}]
        for name, some in pairs.items():
            ratio = spread_of([pair[_WITHOUT].run.log.seconds / pair[name].run.log.seconds for pair in some])
            with_ = [pair[name] for pair in some]
            rows.append(
                {
                    "row": name,
                    "log_to_without": ratio.median,
                    "lowest": ratio.low,
                    "highest": ratio.high,
                    "mirrors_done_s": statistics.median(one.run.all_s for one in with_),
                    "mirrors_done_gb_per_s": statistics.median(self._size_gb / one.run.all_s for one in with_),
                    **self._log_figures(with_),
                    **self._mirror_figures(with_),
                }
            )
        title = f"full speed with mirrors, {self._what()}"
        note = "log: until the receipt; done: from the first frame until all mirrors are durable; medians of pairs"
        return Table(title=title, rows=tuple(rows), note=note)

    def paced(self) -> Table:
        """Each kind of mirror in turn, the limit right before it."""
        runs: dict[str, list[tuple[float, _Live]]] = {name: [] for name in self._plan.paced}
        share = f"{self._plan.share:g} of the limit"
        for _ in range(self._bench.settings.pairs):
            for name, mirrors in self._plan.paced.items():
                self._bench.tell(f"{share}: limit")
                limit = measure_limit(self._bench.folder, self._workload.payload_bytes)
                rate = self._plan.share * limit.bytes_per_s / self._workload.frame_bytes
                runs[name].append((rate, self._live(f"{share}: {name}", mirrors, rate)))
        title = f"a camera at {share} with mirrors, {self._what()}"
        note = (
            "behind: frames put, but not taken by the slowest mirror; done: until all are durable; medians of the runs"
        )
        return Table(title=title, rows=tuple(self._paced_row(name, some) for name, some in runs.items()), note=note)

    def _paced_row(self, name: str, runs: Sequence[tuple[float, _Live]]) -> Figures:
        finish = spread_of([live.run.finish_s for _, live in runs])
        rate = statistics.median(rate for rate, _ in runs)
        return {
            "row": name,
            "gb_per_s": rate * self._workload.frame_bytes / GIGA,
            "frames_per_s": rate,
            "behind_at_the_end_frames": statistics.median(live.run.behind_frames for _, live in runs),
            "behind_at_the_end_s": statistics.median(live.run.behind_frames / rate for rate, live in runs),
            "done_after_last_frame_s": finish.median,
            "earliest": finish.low,
            "latest": finish.high,
            **self._mirror_figures([live for _, live in runs]),
        }

    def _live(self, text: str, mirrors: Sequence[Mapping[str, Any]], frames_per_s: float | None = None) -> _Live:
        self._bench.tell(text)
        with self._bench.daemon(self._transport, "live") as daemon:
            before_s, views_before_s = cpu_seconds(daemon.pid), children_cpu_seconds(daemon.pid)
            with watched_children(daemon.pid) as watch:
                run = _send(daemon.endpoint, self._transport, self._workload, mirrors, frames_per_s)
                views_s = children_cpu_seconds(daemon.pid) - views_before_s
            return _Live(run, cpu_seconds(daemon.pid) - before_s - views_s, views_s, watch.peak_bytes)

    def _log_figures(self, runs: Sequence[_Live]) -> Figures:
        return {
            "log_gb_per_s": statistics.median(self._size_gb / one.run.log.seconds for one in runs),
            "daemon_cpu_s_per_gb": statistics.median(one.daemon_cpu_s for one in runs) / self._size_gb,
        }

    def _mirror_figures(self, runs: Sequence[_Live]) -> Figures:
        return {
            "mirror_cpu_s_per_gb": statistics.median(one.views_cpu_s for one in runs) / self._size_gb,
            "mirror_peak_mb": math.ceil(max(one.views_peak_bytes for one in runs) / 1e6),
            "computed_mb": math.ceil(max(one.run.memory_bytes for one in runs) / 1e6),
        }

    def _what(self) -> str:
        return f"{_frames_text(self._workload)}, over {self._transport}"


# ------------------------------------------------------------------------------------------------ of a finished dataset


@dataclass(frozen=True, slots=True)
class AloneRun:
    """mirror: until all of it is durable, role "mirror"; the peak is beyond what the process had before. check_s: for
    comparing every frame after, with check_cpu_s of processor time. memory_bytes: what it had computed to take."""

    mirror: Measurement
    check_s: float
    check_cpu_s: float
    memory_bytes: int


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
    costs = {"mirror": ProcessCost(cost.cpu_s, peak)}
    mirror = Measurement.of(count * frame_bytes, [int(seconds * 1e9)], seconds, costs, frames=count)
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    found = compare(dataset, run.folder, count)
    if found.different or found.frames != count:
        raise AcquisitionFailed(f"{out}: of {count} frames {found.frames} were compared, {found.text}")
    check_s, check_cpu_s = time.perf_counter() - started, meter.cost().cpu_s
    return AloneRun(mirror, check_s, check_cpu_s, int(run.view.summary()["memory_bytes"]))


def _finish(run: ViewRun) -> None:
    try:
        while (wait_s := run.step()) is not None:
            time.sleep(wait_s)
        if run.progress().state is not ViewState.COMPLETE:
            raise AcquisitionFailed(f"{run.folder}: is {run.progress().state} {run.reason}")
    finally:
        run.close()


def alone_steps(rows: Sequence[AloneRow]) -> int:
    """The runs of a round of `alone_table`, which sends a dataset before the first one."""
    return sum(1 + len(row.peers) for row in rows)


def alone_table(bench: Bench, transport: str, shape: tuple[int, int], rows: Sequence[AloneRow]) -> Table:
    """Mirrors of a finished dataset, as `acqstream mirror` makes them, in turn with what runs beside each."""
    workload = replace(stacks_of(shape, bench.settings.payload_bytes), bits=DIM_BITS)
    bench.tell("a dataset to mirror")
    rounds: dict[str, list[tuple[AloneRun, dict[str, Measurement]]]] = {row.name: [] for row in rows}
    with bench.daemon(transport, "source") as daemon:
        _send(daemon.endpoint, transport, workload)
        for turn in range(bench.settings.pairs):
            for row in rows:
                task = AloneTask(daemon.data / DATASET, workload, min(Z, workload.frames), row.settings)
                rounds[row.name].append(_round(bench, row, task, turn))
    note = (
        "until durable, in turn with what stands beside; one level, if nothing else is said; checked: until every "
        "frame was compared, too; peak memory is what the process took beyond what it had"
    )
    for name, reason in {peer.name: peer.absent for row in rows for peer in row.peers if peer.absent}.items():
        note += f"; {name}: {reason}"
    figures = [_alone_figures(row, peer, rounds[row.name], workload) for row in rows for peer in row.peers]
    return Table(title=f"`acqstream mirror` of {_frames_text(workload)}", rows=tuple(figures), note=note)


def _round(bench: Bench, row: AloneRow, task: AloneTask, turn: int) -> tuple[AloneRun, dict[str, Measurement]]:
    """The mirror and each of its peers; in every second turn the mirror comes last."""
    measured: dict[str, Measurement] = {}
    peers = {peer.name: peer for peer in row.peers if not peer.absent}
    run: AloneRun | None = None
    for name in in_order(("", *peers), turn):
        bench.tell(f"{row.name} alone{name and f': {name}'}")
        with bench.run_folder("alone") as folder:
            if name:
                measured[name] = peers[name].run(task, folder)
            else:
                run = _mirror(task, folder / "mirror")
    assert run is not None
    return run, measured


def _mirror(task: AloneTask, out: Path) -> AloneRun:
    how = {"dataset": task.dataset, "out": out, "settings": task.settings, "memory_mb": MEMORY_MB}
    with started_child("mirror", measure_mirror, timeout_for(2 * task.workload.payload_bytes), **how) as child:
        return child.result_as(AloneRun)


def _alone_figures(
    row: AloneRow, peer: MirrorPeer, rounds: Sequence[tuple[AloneRun, Mapping[str, Measurement]]], workload: Workload
) -> Figures:
    mirrors = [run.mirror for run, _ in rounds]
    pairs = [(run.mirror, peers[peer.name]) for run, peers in rounds if peer.name in peers]
    ratio = spread_of([mirror.bytes_per_s / other.bytes_per_s for mirror, other in pairs]) if pairs else None
    size_gb = workload.payload_bytes / GIGA
    peaks = [cost.peak_bytes for run in mirrors if (cost := run.processes["mirror"]).peak_bytes is not None]
    return {
        "row": row.name,
        "gb_per_s": statistics.median(run.bytes_per_s for run in mirrors) / GIGA,
        "beside": peer.name,
        "beside_gb_per_s": statistics.median(other.bytes_per_s for _, other in pairs) / GIGA if pairs else None,
        "ratio": ratio.median if ratio else None,
        "lowest": ratio.low if ratio else None,
        "highest": ratio.high if ratio else None,
        "wanted": peer.wanted,
        "checked_gb_per_s": statistics.median(size_gb / (run.mirror.seconds + run.check_s) for run, _ in rounds),
        "cpu_s_per_gb": statistics.median(run.cpu_s_per_gb("mirror") for run in mirrors),
        "check_cpu_s_per_gb": statistics.median(run.check_cpu_s for run, _ in rounds) / size_gb,
        "beside_cpu_s_per_gb": statistics.median(o.cpu_s_per_gb(PEER_ROLE) for _, o in pairs) if pairs else None,
        "peak_mb": math.ceil(max(peaks) / 1e6) if peaks else None,
        "computed_mb": math.ceil(max(run.memory_bytes for run, _ in rounds) / 1e6),
    }
