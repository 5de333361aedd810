"""Frames and pieces of frames over HTTP: `acqstream bench --web`.

A client on loopback reads a finished run from `acqstream web`. CPU seconds are those of the server's process alone.
"""

from __future__ import annotations

import http.client
import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from acqstream.bench.comparison import DATASET, ROWS, BenchSettings, Observer, bench_folder, bench_report, run_folder
from acqstream.bench.report import BenchReport, Table
from acqstream.bench.workload import Workload, workload_of
from acqstream.errors import ConfigError

PIECE_SIDE = 512
MAX_CPU_S_PER_GB = 0.4
MIN_PIECES_PER_S = 600
_CLIENTS = 2
_SHAPE = (2048, 2048)
_END_S = 10.0
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HttpFigures:
    """Figures of one kind of request."""

    requests: int
    payload_bytes: int
    wall_s: float
    server_cpu_s: float


def run_web_benchmark(settings: BenchSettings, observe: Observer, *, shape: tuple[int, int] = _SHAPE) -> BenchReport:
    """Whole frames of `shape` (Y, X) uint16, then pieces of 512 x 512 of them, settings.pairs times each."""
    if importlib.util.find_spec("aiohttp") is None:
        raise ConfigError("bench --web needs more packages: pip install 'acqstream[web]'")
    workload = workload_of(shape, "uint16", settings.payload_bytes, settings.max_frames)
    rows: list[dict[str, str | float | None]] = []
    with bench_folder(settings) as folder, run_folder(folder, "written") as place:
        observe("writing", 0, 1 + 2 * settings.pairs)
        ROWS["tcp"].run(place, workload, settings.daemon_memory_mb)
        with _web_server(place / "data") as (port, process):
            for done in range(settings.pairs):
                for number, kind in enumerate(("whole frames", "pieces")):
                    observe(kind, 1 + 2 * done + number, 1 + 2 * settings.pairs)
                    rows.append(_row(kind, _measure(kind, port, process, workload)))
    sides = " x ".join(str(side) for side in shape)
    note = f"wanted: at most {MAX_CPU_S_PER_GB} CPU s per GB for whole frames, at least {MIN_PIECES_PER_S} pieces/s"
    title = f"over HTTP on loopback: {sides} uint16, {_CLIENTS} clients; CPU of the server"
    return bench_report(settings, tables=[Table(title=title, rows=tuple(rows), note=note)])


@contextmanager
def _web_server(data: Path) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "acqstream", "web", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield int(line.rpartition(":")[2]), psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _measure(kind: str, port: int, process: psutil.Process, workload: Workload) -> HttpFigures:
    paths = _paths(kind, workload)
    counts: list[int] = []
    threads = [
        threading.Thread(target=_read_all, args=(port, paths[first::_CLIENTS], counts), name=f"http-client-{first}")
        for first in range(_CLIENTS)
    ]
    before, began_s = process.cpu_times(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s, after = time.perf_counter() - began_s, process.cpu_times()
    if len(counts) < len(paths):
        raise ConfigError(f"bench --web: {len(paths) - len(counts)} of {len(paths)} requests failed")
    return HttpFigures(len(counts), sum(counts), wall_s, after.user + after.system - before.user - before.system)


def _paths(kind: str, workload: Workload) -> Sequence[str]:
    """Each frame once; of each frame all complete pieces."""
    if kind == "whole frames":
        return [f"/data/{DATASET}/ome.zarr/0/c/{time}/0/0" for time in range(workload.frames)]
    rows, columns = (max(1, side // PIECE_SIDE) for side in workload.shape[:2])
    base = f"/data/{DATASET}@chunk={PIECE_SIDE}/ome.zarr/0/c"
    return [
        f"{base}/{time}/{row}/{column}"
        for time in range(workload.frames)
        for row in range(rows)
        for column in range(columns)
    ]


def _read_all(port: int, paths: Sequence[str], counts: list[int]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    buffer = bytearray(2**20)
    for path in paths:
        connection.request("GET", path)
        answer = connection.getresponse()
        count = 0
        while received := answer.readinto(buffer):
            count += received
        if answer.status == 200:
            counts.append(count)
    connection.close()


def _row(kind: str, figures: HttpFigures) -> dict[str, str | float | None]:
    gigabytes = figures.payload_bytes / 1e9
    return {
        "row": kind,
        "requests": figures.requests,
        "GB_per_s": gigabytes / figures.wall_s,
        "requests_per_s": figures.requests / figures.wall_s,
        "server_CPU_s_per_GB": figures.server_cpu_s / gigabytes,
    }
