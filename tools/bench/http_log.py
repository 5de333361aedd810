"""Recording at full speed beside clients that read an earlier run over HTTP.

`acqstream web` bounds the rate of its answers; the clients read as fast as it lets them.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from acqstream.bench.child_process import run_measured
from acqstream.bench.comparison import DATASET, Bench, in_order
from acqstream.bench.measurement import GIGA, Figures, Measurement, Table, spread_of
from acqstream.bench.producer import BenchDaemon, send, transport_for
from acqstream.bench.workload import Workload
from acqstream.storage.platform.capabilities import sync_all
from bench.http_client import CLIENTS, frame_paths, read_frames, web_server

_RECORDED, _WITHOUT, _BESIDE = "recorded", "without", "beside"
READ_MB_S = 50  # the bound while the daemon records; here from the start, as a run of the benchmark lasts seconds


@dataclass(frozen=True, slots=True)
class _Recording:
    """Rates: of the log, and of all clients together while they read."""

    log_bytes_per_s: float
    read_bytes_per_s: float


def log_beside_clients(bench: Bench, workload: Workload) -> Table:
    """Pairs of recordings without and with clients, in turn. Raises ConfigError if there is no transport."""
    transport = transport_for(bench.settings.rows, "web")
    pairs: list[dict[str, _Recording]] = []
    with bench.daemon(transport, "beside") as daemon:
        bench.tell("a run for clients to read")
        _record(daemon, DATASET, workload, transport)
        with web_server(daemon.data, daemon.endpoint, READ_MB_S) as (port, _):
            for turn in range(bench.settings.pairs):
                bench.tell("the log without and beside clients")
                ports = {_WITHOUT: None, _BESIDE: port}
                order = in_order((_WITHOUT, _BESIDE), turn)
                pairs.append({name: _recording(daemon, workload, transport, ports[name]) for name in order})
    ratio = spread_of([pair[_BESIDE].log_bytes_per_s / pair[_WITHOUT].log_bytes_per_s for pair in pairs])
    row: Figures = {
        "row": f"log over {transport}",
        "log_GB_per_s": statistics.median(pair[_BESIDE].log_bytes_per_s for pair in pairs) / GIGA,
        "log_to_without": ratio.median,
        "lowest": ratio.low,
        "highest": ratio.high,
        "clients_read_MB_per_s": statistics.median(pair[_BESIDE].read_bytes_per_s for pair in pairs) / 1e6,
    }
    note = "wanted: 0.95; the clients read frames of an earlier run as fast as the bound of the web face lets them"
    return Table(title=f"the log at full speed beside {CLIENTS} clients over HTTP", rows=(row,), note=note)


def _recording(daemon: BenchDaemon, workload: Workload, transport: str, port: int | None) -> _Recording:
    """Record a run while clients read from this port, and delete it. port: None for no clients."""
    began_s = time.perf_counter()
    with _clients(port, workload) as counts:
        run = _record(daemon, _RECORDED, workload, transport)
        found = _Recording(run.bytes_per_s, sum(counts) / (time.perf_counter() - began_s))
    shutil.rmtree(daemon.data / _RECORDED)
    sync_all()
    return found


def _record(daemon: BenchDaemon, name: str, workload: Workload, transport: str) -> Measurement:
    how = {"endpoint": daemon.endpoint, "name": name, "transport": transport}
    return run_measured("producer", send, workload.payload_bytes, workload=workload, **how)


@contextmanager
def _clients(port: int | None, workload: Workload) -> Iterator[list[int]]:
    """Clients that read frames again and again while the block lasts; the list gets the bytes of each frame."""
    counts: list[int] = []
    end = threading.Event()
    paths = frame_paths(workload)

    def read(first: int) -> None:
        while port is not None and not end.is_set():
            read_frames(port, paths[first::CLIENTS], counts, end)

    threads = [threading.Thread(target=read, args=(n,), name=f"http-client-{n}") for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        end.set()
        for thread in threads:
            thread.join()
