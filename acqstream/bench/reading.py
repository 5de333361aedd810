"""Reading: opening a large dataset beside ndstorage, frames in order beside the disk, single frames beside pread."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from acqstream.bench.child_process import run_measured
from acqstream.bench.comparison import (
    DATASET,
    PEER,
    ROWS,
    BenchSettings,
    Observer,
    bench_folder,
    bench_report,
    run_folder,
)
from acqstream.bench.measurement import Measurement
from acqstream.bench.readers import FIRST_AXES
from acqstream.bench.report import LIMIT, BenchReport, RowReport, SituationReport, absent_row, rate_ratio, row_report
from acqstream.bench.workload import workload_of
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import NDTiffLayout

OPENED_FRAMES = 1_000_000
_CHANNELS = (FIRST_AXES["channel"], "GFP", "Cy5", "Brightfield")
_SLICES = 25
_FRAME_SIDE, _FRAME_STEP = 32, 4096  # of a million frames in one stack file; its pixels are a hole
_WRITER = "tcp"  # on every platform


def run_reading_benchmark(settings: BenchSettings, observe: Observer, *, frames: int = OPENED_FRAMES) -> BenchReport:
    """As `run_benchmark`, for reading; `frames` is rounded to complete stacks of `_SLICES` slices and four channels."""
    with bench_folder(settings) as folder:
        run = _Reading(settings, folder, observe)
        situations = [run.opening(frames)]
        for shape, dtype in settings.situations:
            situations += run.frames(shape, dtype)
    return bench_report(settings, situations=situations)


class _Reading:
    """One running benchmark of reading."""

    def __init__(self, settings: BenchSettings, folder: Path, observe: Observer) -> None:
        self._settings = settings
        self._folder = folder
        self._observe = observe
        self._total = 2 * settings.pairs + len(settings.situations) * (1 + 4 * settings.pairs)
        self._done = 0

    def opening(self, frames: int) -> SituationReport:
        path = write_large_index(self._folder, frames)
        has_peer = importlib.util.find_spec("ndstorage") is not None
        runs = self._in_turn("open", ("open", "open-ndstorage") if has_peer else ("open",), path)
        peer = row_report(PEER, runs["open-ndstorage"]) if has_peer else absent_row(PEER, "not installed")
        against = {PEER: rate_ratio(runs["open"], runs["open-ndstorage"])} if has_peer else {}
        rows = (peer, row_report("acqstream", runs["open"], to_peers=against))
        title = f"open {int(path.name):,} frames and read one; GB of the index"
        return _situation(title, rows, runs["open"][0], ((_FRAME_SIDE, _FRAME_SIDE), "uint8"))

    def frames(self, shape: tuple[int, ...], dtype: str) -> list[SituationReport]:
        workload = workload_of(shape, dtype, self._settings.payload_bytes, self._settings.max_frames)
        kind = f"{' x '.join(str(side) for side in shape)} {dtype}"
        with run_folder(self._folder, "written") as place:
            self._tell(f"{kind}: writing")
            ROWS[_WRITER].run(place, workload, self._settings.daemon_memory_mb)
            runs = self._in_turn(kind, ("limit", "frames", "pread", "read_frame"), place / "data" / DATASET)
        to_limit = rate_ratio(runs["frames"], runs["limit"])
        to_bare = {"pread": rate_ratio(runs["read_frame"], runs["pread"])}
        in_order = (row_report(LIMIT, runs["limit"]), row_report("frames", runs["frames"], to_limit=to_limit))
        alone = (
            row_report("pread", runs["pread"]),
            row_report("read_frame", runs["read_frame"], to_peers=to_bare),
        )
        return [
            _situation(f"all frames of {kind} in order", in_order, runs["frames"][0], (shape, dtype)),
            _situation(
                f"single frames of {kind} from the page cache", alone, runs["pread"][0], (shape, dtype), "pread"
            ),
        ]

    def _in_turn(self, title: str, measures: Sequence[str], path: Path) -> dict[str, list[Measurement]]:
        runs: dict[str, list[Measurement]] = {what: [] for what in measures}
        size = sum(file.stat().st_size for file in path.iterdir())
        for turn in range(self._settings.pairs):
            for what in measures if turn % 2 == 0 else measures[::-1]:  # the first may find an idle disk
                self._tell(f"{title}: {what}")
                runs[what].append(run_measured("reader", size, what=what, dataset=path))
        return runs

    def _tell(self, text: str) -> None:
        self._observe(text, self._done, self._total)
        self._done += 1


def _situation(
    title: str, rows: Sequence[RowReport], one: Measurement, kind: tuple[tuple[int, ...], str], peer: str = PEER
) -> SituationReport:
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
