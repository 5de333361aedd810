"""Frames over HTTP, for real, a moment long: that it works and measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings
from acqstream.bench.http_frames import run_web_benchmark


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
