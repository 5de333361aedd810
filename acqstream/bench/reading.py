"""Reading: opening a large dataset beside ndstorage, frames in order beside the disk, single frames beside pread."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from numpy.typing import NDArray

from acqstream.bench.child_process import run_measured
from acqstream.bench.comparison import DATASET, ROWS, Bench, BenchSettings, Observer, started_bench
from acqstream.bench.limit import measure_direct_reads
from acqstream.bench.measurement import (
    LIMIT,
    BenchReport,
    Measurement,
    RowReport,
    SituationReport,
    UsageMeter,
    absent_row,
    rate_ratio,
    row_report,
)
from acqstream.bench.workload import workload_of
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.storage.platform.capabilities import drop_from_cache

OPENED_FRAMES = 1_000_000
ROLE = "reader"
FIRST_AXES: dict[str, Any] = {"time": 0, "channel": "DAPI", "z": 0}
"""Axes of the first frame of the dataset to open."""

_CHANNELS = (FIRST_AXES["channel"], "GFP", "Cy5", "Brightfield")
_SLICES = 25
_FRAME_SIDE, _FRAME_STEP = 32, 4096  # of a million frames in one stack file; its pixels are a hole
_WRITER = "tcp"  # on every platform
_PEER, _BARE = "ndstorage", "pread"
_WARM_BYTES = 200 * 2**20  # frames of so many bytes, from the page cache, in random order
_ROUNDS = 5
_IN_ORDER = ("frames", "read_frames")
_TOGETHER_BYTES = 2**28


def run_reading_benchmark(settings: BenchSettings, observe: Observer, *, frames: int = OPENED_FRAMES) -> BenchReport:
    """As `run_benchmark`, for reading; `frames` is rounded to complete stacks of `_SLICES` slices and four channels."""
    steps = 2 * settings.pairs + len(settings.situations) * (1 + 5 * settings.pairs)
    with started_bench(settings, observe, steps) as bench:
        situations = [_opening_report(bench, frames)]
        for shape, dtype in settings.situations:
            situations += _frame_reports(bench, shape, dtype)
        return bench.report(situations=situations)


def _opening_report(bench: Bench, frames: int) -> SituationReport:
    path = write_large_index(bench.folder, frames)
    has_peer = importlib.util.find_spec(_PEER) is not None
    runs = _in_turn(bench, "open", ("open", "open-ndstorage") if has_peer else ("open",), path)
    peer = row_report(_PEER, runs["open-ndstorage"]) if has_peer else absent_row(_PEER, "not installed")
    against = {_PEER: rate_ratio(runs["open"], runs["open-ndstorage"])} if has_peer else {}
    rows = (peer, row_report("acqstream", runs["open"], to_peers=against))
    title = f"open {int(path.name):,} frames and read one; GB of the index"
    return _situation(title, rows, ((_FRAME_SIDE, _FRAME_SIDE), "uint8"), _PEER)


def _frame_reports(bench: Bench, shape: tuple[int, ...], dtype: str) -> list[SituationReport]:
    workload = workload_of(shape, dtype, bench.settings.payload_bytes, bench.settings.max_frames)
    kind = f"{' x '.join(str(side) for side in shape)} {dtype}"
    with bench.run_folder("written") as folder:
        bench.tell(f"{kind}: writing")
        ROWS[_WRITER].run(folder, workload, bench.settings.daemon_memory_mb)
        runs = _in_turn(bench, kind, (LIMIT, *_IN_ORDER, _BARE, "read_frame"), folder / "data" / DATASET)
    to_bare = rate_ratio(runs["read_frame"], runs[_BARE])
    in_order = [row_report(LIMIT, runs[LIMIT])]
    in_order += [row_report(name, runs[name], to_limit=rate_ratio(runs[name], runs[LIMIT])) for name in _IN_ORDER]
    single = (row_report(_BARE, runs[_BARE]), row_report("read_frame", runs["read_frame"], to_peers={_BARE: to_bare}))
    return [
        _situation(f"all frames of {kind} in order", in_order, (shape, dtype), _PEER),
        _situation(f"single frames of {kind} from the page cache", single, (shape, dtype), _BARE),
    ]


def _in_turn(bench: Bench, title: str, names: Sequence[str], path: Path) -> dict[str, list[Measurement]]:
    size = sum(file.stat().st_size for file in path.iterdir())
    return bench.in_turn(title, names, lambda name: run_measured("reader", measure, size, what=name, dataset=path))


def _situation(title: str, rows: Sequence[RowReport], kind: tuple[tuple[int, ...], str], peer: str) -> SituationReport:
    one = rows[-1].runs[0]
    return SituationReport(
        shape=kind[0],
        dtype=kind[1],
        payload_bytes=one.payload_bytes,
        frames=one.frames,
        peers=(peer,),
        rows=tuple(rows),
        title=title,
    )


def write_large_index(folder: Path, frames: int) -> Path:
    """A dataset of about `frames` small black frames (time x channel x z), in a new folder named by their number."""
    times = max(1, frames // (len(_CHANNELS) * _SLICES))
    count = times * len(_CHANNELS) * _SLICES
    path = folder / str(count)
    path.mkdir()
    layout = NDTiffLayout(DATASET, {})
    name = layout.stack_name(0).encode("ascii")
    header = layout.stack_header(("time", "channel", "z"))
    with (path / name.decode("ascii")).open("wb") as stack:
        stack.write(header)
        os.truncate(stack.fileno(), len(header) + count * _FRAME_STEP)
    with (path / INDEX_NAME).open("wb") as index:
        keys = itertools.product(range(times), _CHANNELS, range(_SLICES))
        for number, (time, channel, z) in enumerate(keys):
            axes = json.dumps({"time": time, "channel": channel, "z": z}, separators=(",", ":")).encode()
            offset = len(header) + number * _FRAME_STEP
            numbers = (offset, _FRAME_SIDE, _FRAME_SIDE, 0, 0, offset + _FRAME_SIDE**2, 2, 0)
            lengths = struct.pack("<I", len(axes)), struct.pack("<I", len(name))
            index.write(lengths[0] + axes + lengths[1] + name + struct.pack("<IiiiiIii", *numbers))
    return path


def measure_opening(path: Path) -> Measurement:
    """Until the first frame was read. The dataset's folder is named by its number of frames."""

    def run() -> Any:
        dataset = open_dataset(path)
        dataset.read_frame(FIRST_AXES)
        return dataset

    return _opening(path, run)


def measure_opening_ndstorage(path: Path) -> Measurement:
    """The same with ndstorage."""
    from ndstorage import NDTiffDataset

    def run() -> Any:
        dataset = NDTiffDataset(str(path))
        dataset.read_image(**FIRST_AXES)
        return dataset

    return _opening(path, run)


def _opening(path: Path, run: Callable[[], Any]) -> Measurement:
    frames = int(path.name)
    before = psutil.Process().memory_info().rss
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    dataset = run()
    seconds = time.perf_counter() - started
    grown = psutil.Process().memory_info().rss - before
    del dataset
    size, note = (path / INDEX_NAME).stat().st_size, f"{grown / frames:.0f} bytes per frame"
    return Measurement.of(size, [int(seconds * 1e9)], seconds, {ROLE: meter.cost()}, frames=frames, note=note)


def _measure_in_order(path: Path, read: Callable[[Dataset], Iterable[int]]) -> Measurement:
    """All frames in order, nothing of them in the page cache. read: yields the bytes of each call."""
    for stack in path.glob("*.tif"):
        drop_from_cache(stack)
    total, durations_ns = 0, array("q")
    meter, started_ns = UsageMeter(os.getpid()), time.perf_counter_ns()
    before_ns = started_ns
    with open_dataset(path) as dataset:
        count = dataset.levels[0].item_count
        for size in read(dataset):
            total += size
            now_ns = time.perf_counter_ns()
            durations_ns.append(now_ns - before_ns)
            before_ns = now_ns
    seconds = (time.perf_counter_ns() - started_ns) / 1e9
    return Measurement.of(total, durations_ns, seconds, {ROLE: meter.cost()}, frames=count)


def _read_together(dataset: Dataset) -> Iterator[int]:
    """All frames with `read_frames`, _TOGETHER_BYTES at a time into the same memory."""
    count = dataset.levels[0].item_count
    memory: NDArray[Any] | None = None
    step = max(1, _TOGETHER_BYTES // (dataset.dtype.itemsize * _pixels(dataset.shape)))
    for first in range(0, count, step):
        there = min(step, count - first)
        frames = dataset.read_frames(slice(first, first + step), out=None if memory is None else memory[:there])
        memory = frames if memory is None else memory
        yield frames.nbytes


def measure_read_frame(path: Path) -> Measurement:
    """Frames in random order from the page cache, by their axes."""
    with open_dataset(path) as dataset:
        keys = list(dataset.keys())
        return _at_random(
            len(keys), dataset.dtype.itemsize * _pixels(dataset.shape), lambda n: dataset.read_frame(keys[n])
        )


def measure_pread(path: Path) -> Measurement:
    """The same bytes with bare reads at known offsets."""
    reader, *_ = open_readers(path)
    frames = [reader.stored_frame(row) for row in range(len(reader))]
    descriptors = {name: os.open(path / name, os.O_RDONLY) for name in {name for name, _ in frames}}
    plain = [(descriptors[name], frame.payload_bytes, frame.pixels) for name, frame in frames]
    try:
        return _at_random(len(plain), plain[0][1], lambda n: os.pread(*plain[n]))
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _pixels(shape: tuple[int, ...]) -> int:
    return shape[-1] * shape[-2]


def _at_random(count: int, frame_bytes: int, read: Callable[[int], object]) -> Measurement:
    chosen = list(range(min(count, max(1, _WARM_BYTES // frame_bytes))))
    for number in chosen:
        read(number)
    random.Random(0).shuffle(chosen)
    durations_ns = array("q")
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    for _ in range(_ROUNDS):
        for number in chosen:
            before_ns = time.perf_counter_ns()
            read(number)
            durations_ns.append(time.perf_counter_ns() - before_ns)
    seconds = time.perf_counter() - started
    return Measurement.of(frame_bytes * len(durations_ns), durations_ns, seconds, {ROLE: meter.cost()})


_MEASURES: Mapping[str, Callable[[Path], Measurement]] = {
    "open": measure_opening,
    "open-ndstorage": measure_opening_ndstorage,
    LIMIT: lambda path: measure_direct_reads(sorted(path.glob("*.tif"))),
    "frames": lambda path: _measure_in_order(path, lambda data: (frame.nbytes for _, frame in data.frames())),
    "read_frames": lambda path: _measure_in_order(path, _read_together),
    "read_frame": measure_read_frame,
    _BARE: measure_pread,
}


def measure(what: str, dataset: Path) -> Measurement:
    """One of the measurements of a finished dataset, by its name; in a child process."""
    return _MEASURES[what](dataset)
