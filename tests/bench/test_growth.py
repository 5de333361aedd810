from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings
from acqstream.errors import ConfigError
from bench.growth import GrowthPlan, _Cost, on_paper, run_growth_benchmark


def test_on_paper_each_further_frame_costs_the_same() -> None:
    fewer = _Cost(1000, 8_000_000, 1.0, 0.5, 5000, 70_000, 4096 + 64_000)
    more = _Cost(2000, 16_000_000, 1.5, 0.7, 7000, 140_000, 4096 + 128_000)
    row = on_paper(fewer, more, 1_002_000)
    assert row["frames"] == "1,002,000 (on paper)"
    assert row["seconds"] == pytest.approx(501.5)
    assert row["daemon_cpu_us_per_frame"] == pytest.approx(200.7 * 1e6 / 1_002_000)
    assert row["index_bytes_per_frame"] == pytest.approx(70)
    assert row["journal_bytes_per_frame"] == pytest.approx(64, rel=1e-3)
    assert row["daemon_grew_mb"] == pytest.approx(2.007)


def test_needs_a_transport(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=10**6, pairs=1, rows=("ndstorage",))
    with pytest.raises(ConfigError, match="shm, ipc, tcp"):
        run_growth_benchmark(settings, lambda *news: None)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_all_tables(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=1_600_000, pairs=1, rows=("tcp",), daemon_memory_mb=64)
    plan = GrowthPlan(counts=(50, 1000), shapes=((128, 128),), producers=(2,))
    counts, sizes, producers = run_growth_benchmark(settings, lambda *news: None, plan=plan).tables
    assert [row["frames"] for row in counts.rows] == ["50", "195", "100,000,000 (on paper)"]  # 195 fill the bytes
    assert counts.rows[1]["journal_bytes_per_frame"] == pytest.approx(64 + 4096 / 195)
    index = counts.rows[1]["index_bytes_per_frame"]
    assert isinstance(index, float)
    assert 50 < index < 100
    assert [row["frame"] for row in sizes.rows] == ["32 KiB"]
    assert [(row["producers"], row["frames"]) for row in producers.rows] == [(2, 2)]
    assert list(tmp_path.iterdir()) == []
