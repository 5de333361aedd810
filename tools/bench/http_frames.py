"""Frames and pieces of frames over HTTP.

A client on loopback reads a finished run from `acqstream web`. CPU seconds are those of the server's process alone.
Beside it, in the same run, a program that does nothing but send parts of the same file to the same client.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from dataclasses import dataclass

import psutil

from acqstream.bench.comparison import ROWS, Bench, BenchSettings, Observer, started_bench
from acqstream.bench.measurement import BenchReport, Figures, Table
from acqstream.bench.workload import Workload, workload_of
from acqstream.errors import ConfigError
from acqstream.extras import install_command
from bench.http_client import CLIENTS, frame_paths, piece_paths, read_frames, sendfile_server, web_server
from bench.http_log import log_beside_clients

PIECE_SIDE = 512
MAX_CPU_S_PER_GB = 0.4
MIN_PIECES_PER_S = 600
_SHAPE = (2048, 2048)
FRAMES, SENDFILE, PIECES = "whole frames", "sendfile alone", "pieces"
_KINDS = (SENDFILE, FRAMES, PIECES)  # the first one takes the file into memory, for the next one as well


@dataclass(frozen=True, slots=True)
class HttpFigures:
    """Figures of one kind of request."""

    requests: int
    payload_bytes: int
    wall_s: float
    server_cpu_s: float


def run_web_benchmark(settings: BenchSettings, observe: Observer, *, shape: tuple[int, int] = _SHAPE) -> BenchReport:
    """Whole frames of `shape` (Y, X) uint16 beside what sending them costs at least, then pieces of 512 x 512 of them,
    settings.pairs times each, then the log of a run beside clients.
    """
    if importlib.util.find_spec("aiohttp") is None:
        raise ConfigError(f"web needs more packages: {install_command('web')}")
    workload = workload_of(shape, "uint16", settings.payload_bytes, settings.max_frames)
    steps = 2 + (1 + len(_KINDS)) * settings.pairs
    with started_bench(settings, observe, steps, 2 * settings.payload_bytes) as bench:
        return bench.report(tables=[_finished_run(bench, workload), log_beside_clients(bench, workload)])


def _finished_run(bench: Bench, workload: Workload) -> Table:
    rows: list[Figures] = []
    with bench.run_folder("written") as folder:
        bench.tell("writing")
        ROWS["tcp"].run(folder, workload, bench.settings.daemon_memory_mb)
        data, frame_bytes = folder / "data", workload.frame_bytes
        with web_server(data) as ours, sendfile_server(data, frame_bytes) as least:
            for _ in range(bench.settings.pairs):
                for kind in _KINDS:
                    bench.tell(kind)
                    port, process = least if kind == SENDFILE else ours
                    rows.append(_row(kind, _measure(kind, port, process, workload)))
    sides = " x ".join(str(side) for side in workload.shape)
    note = f"wanted: at most {MAX_CPU_S_PER_GB} CPU s per GB for whole frames, at least {MIN_PIECES_PER_S} pieces/s"
    title = f"over HTTP on loopback: {sides} uint16, {CLIENTS} clients; CPU of the server"
    return Table(title=title, rows=tuple(rows), note=note)


def _measure(kind: str, port: int, process: psutil.Process, workload: Workload) -> HttpFigures:
    paths = piece_paths(workload, PIECE_SIDE) if kind == PIECES else frame_paths(workload)
    counts: list[int] = []
    threads = [
        threading.Thread(target=read_frames, args=(port, paths[first::CLIENTS], counts), name=f"http-client-{first}")
        for first in range(CLIENTS)
    ]
    before, began_s = process.cpu_times(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s, after = time.perf_counter() - began_s, process.cpu_times()
    if len(counts) < len(paths):
        raise ConfigError(f"web: {len(paths) - len(counts)} of {len(paths)} requests failed")
    cpu_s = (after.user - before.user) + (after.system - before.system)  # never below 0, as sums of all four may be
    return HttpFigures(len(counts), sum(counts), wall_s, cpu_s)


def _row(kind: str, figures: HttpFigures) -> Figures:
    gigabytes = figures.payload_bytes / 1e9
    return {
        "row": kind,
        "requests": figures.requests,
        "GB_per_s": gigabytes / figures.wall_s,
        "requests_per_s": figures.requests / figures.wall_s,
        "server_CPU_s_per_GB": figures.server_cpu_s / gigabytes,
    }
