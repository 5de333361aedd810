"""Frames over HTTP, for real, a moment long: that it works and measures what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from acqstream.bench.comparison import DATASET, BenchSettings
from bench import http_client
from bench.http_frames import run_web_benchmark
from tests.waiting import until

KILLED = """
import sys, time
from pathlib import Path
sys.path.append(sys.argv[2])
from bench.http_client import sendfile_server, web_server

data = Path(sys.argv[1])
with web_server(data) as (_, web), sendfile_server(data, 4096) as (_, least):
    print(web.pid, least.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_frames_and_pieces_are_read(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=20 * 2**20, pairs=1, rows=("tcp",), daemon_memory_mb=64)
    report = run_web_benchmark(settings, lambda *news: None, shape=(1024, 1024))
    table, log = report.tables
    least, frames, pieces = table.rows
    assert (least["row"], least["requests"]) == ("sendfile alone", 10)
    assert (frames["row"], frames["requests"]) == ("whole frames", 10)
    assert (pieces["row"], pieces["requests"]) == ("pieces", 40)
    for row in table.rows:
        for name in ("GB_per_s", "requests_per_s", "server_CPU_s_per_GB"):
            value = row[name]
            assert isinstance(value, float)
            assert value >= 0
    (beside,) = log.rows
    assert beside["row"] == "log over tcp"
    for name in ("log_GB_per_s", "log_to_without", "clients_read_MB_per_s"):
        value = beside[name]
        assert isinstance(value, float)
        assert value > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_servers_do_not_outlive_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / DATASET).mkdir()
    (tmp_path / DATASET / "stack.tif").write_bytes(bytes(4096))
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(http_client.__file__).parents[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        servers = [psutil.Process(int(pid)) for pid in benchmark.stdout.readline().split()]
        assert len(servers) == 2
        benchmark.kill()
    until(lambda: not any(is_alive(one) for one in servers), "both have ended")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
