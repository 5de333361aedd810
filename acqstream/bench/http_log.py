"""Recording at full speed beside clients that read an earlier run over HTTP: a table of `acqstream bench --web`.

`acqstream web` bounds the rate of its answers; the clients read as fast as it lets them.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acqstream.bench.child_process import run_measured
from acqstream.bench.comparison import DATASET, BenchSettings, run_folder
from acqstream.bench.daemon import Served, serving, transport_absent, transports_of
from acqstream.bench.http_client import CLIENTS, frame_paths, read_frames, web_server
from acqstream.bench.measurement import GIGA, Measurement, spread_of
from acqstream.bench.report import Table
from acqstream.bench.workload import Workload
from acqstream.errors import ConfigError
from acqstream.storage.platform.capabilities import sync_all

_RECORDED = "recorded"
READ_MB_S = 50  # the bound while the daemon records; here from the start, as a run of the benchmark lasts seconds


@dataclass(frozen=True, slots=True)
class _Recording:
    """Rates: of the log, and of all clients together while they read."""

    log_bytes_per_s: float
    read_bytes_per_s: float


def log_beside_clients(settings: BenchSettings, folder: Path, workload: Workload, tell: Callable[[str], None]) -> Table:
    """Pairs of recordings without and with clients, in turn. Raises ConfigError if there is no transport."""
    there = [one for one in transports_of(settings.rows, "--web") if not transport_absent(one)]
    if not there:
        raise ConfigError("--web needs a transport that this platform has")
    pairs: list[dict[bool, _Recording]] = []
    with run_folder(folder, "beside") as place, serving(there[0], place, settings.daemon_memory_mb) as daemon:
        tell("a run for clients to read")
        _record(daemon, DATASET, workload, there[0])
        with web_server(daemon.data, daemon.endpoint, READ_MB_S) as (port, _):
            for turn in range(settings.pairs):
                tell("the log without and beside clients")
                order = (None, port) if turn % 2 == 0 else (port, None)
                pairs.append({at is not None: _recording(daemon, workload, there[0], at) for at in order})
    ratio = spread_of([pair[True].log_bytes_per_s / pair[False].log_bytes_per_s for pair in pairs])
    row: dict[str, str | float | None] = {
        "row": f"log over {there[0]}",
        "log_GB_per_s": statistics.median(pair[True].log_bytes_per_s for pair in pairs) / GIGA,
        "log_to_without": ratio.median,
        "lowest": ratio.low,
        "highest": ratio.high,
        "clients_read_MB_per_s": statistics.median(pair[True].read_bytes_per_s for pair in pairs) / 1e6,
    }
    note = "wanted: 0.95; the clients read frames of an earlier run as fast as the bound of the web face lets them"
    return Table(title=f"the log at full speed beside {CLIENTS} clients over HTTP", rows=(row,), note=note)


def _recording(daemon: Served, workload: Workload, transport: str, port: int | None) -> _Recording:
    """Record a run while clients read from this port, and delete it. port: None for no clients."""
    began_s = time.perf_counter()
    with _clients(port, workload) as counts:
        run = _record(daemon, _RECORDED, workload, transport)
        found = _Recording(run.bytes_per_s, sum(counts) / (time.perf_counter() - began_s))
    shutil.rmtree(daemon.data / _RECORDED)
    sync_all()
    return found


def _record(daemon: Served, name: str, workload: Workload, transport: str) -> Measurement:
    how = {"endpoint": daemon.endpoint, "name": name, "transport": transport}
    return run_measured("producer", workload.payload_bytes, workload=workload, **how)


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
