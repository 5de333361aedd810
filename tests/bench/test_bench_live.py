"""All rows for real, tiny: that they work, not how fast."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acqstream.bench.comparison import PEERS, ROWS, BenchSettings, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout_s(180)
@pytest.mark.skipif(sys.platform == "win32", reason="needs ipc")
def test_every_row_runs(tmp_path: Path) -> None:
    settings = BenchSettings(
        directory=tmp_path,
        payload_bytes=2_000_000,
        rows=tuple(ROWS),
        pairs=1,
        situations=(((128, 128), "uint16"),),
        daemon_memory_mb=64,
    )
    report = run_benchmark(settings, lambda *news: None)
    assert [situation.frames for situation in report.situations] == [61]
    for situation in report.situations:
        assert [row.name for row in situation.rows] == ["limit", *ROWS]
        for row in situation.rows[1:]:
            assert row.absent == ""
            assert set(row.cpu_s_per_gb) == ({"producer"} if row.name in PEERS else {"daemon", "producer"})
            assert set(row.to_peers) == (set() if row.name in PEERS else set(PEERS))
            assert row.to_limit is not None
            assert row.to_limit.median > 0
    assert list(tmp_path.iterdir()) == []
