from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.bench import comparison
from acqstream.bench.comparison import Bench, BenchSettings, Row, run_benchmark
from acqstream.bench.measurement import Latency, Measurement, ProcessCost, file_system_of
from acqstream.bench.workload import Workload
from acqstream.errors import AcquisitionFailed, ConfigError


def measured(workload_bytes: int, frames: int, gb_per_s: float) -> Measurement:
    return Measurement(
        payload_bytes=workload_bytes,
        frames=frames,
        seconds=workload_bytes / gb_per_s / 1e9,
        latency=Latency(1, 2, 3, 4),
        processes={"producer": ProcessCost(0.5, None)},
    )


class Rows:
    """Rows that write one small file, and the order in which they ran."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.rows = {
            "ndstorage": Row("ndstorage", self.runner("ndstorage", 1.0), lambda: ""),
            "ipc": Row("ipc", self.runner("ipc", 3.0), lambda: ""),
            "tcp": Row("tcp", self.runner("tcp", 2.0), lambda: "not today"),
        }

    def runner(self, name: str, gb_per_s: float):
        def run(directory: Path, workload: Workload, memory_mb: int | None) -> Measurement:
            assert list(directory.iterdir()) == []
            (directory / "stack").write_bytes(b"pixels")
            self.order.append(name)
            return measured(workload.payload_bytes, workload.frames, gb_per_s)

        return run

    def limit(self, directory: Path, payload_bytes: int) -> Measurement:
        self.order.append("limit")
        return measured(payload_bytes, 1, 4.0)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    fake = Rows()
    monkeypatch.setattr(comparison, "ROWS", fake.rows)
    monkeypatch.setattr(comparison, "measure_limit", fake.limit)
    return fake


def settings(tmp_path: Path) -> BenchSettings:
    return BenchSettings(
        directory=tmp_path,
        payload_bytes=10_000,
        pairs=2,
        rows=("ndstorage", "ipc", "tcp"),
        situations=(((16, 16), "uint16"),),
    )


def test_rows_run_in_turn_with_the_limit(tmp_path: Path, rows: Rows) -> None:
    told: list[tuple[str, int, int]] = []
    report = run_benchmark(settings(tmp_path), lambda *news: told.append(news))
    assert rows.order == ["limit", "ndstorage", "limit", "ipc"] * 2
    assert told[0] == ("16x16 uint16: limit", 0, 8)
    assert told[-1] == ("16x16 uint16: ipc", 7, 8)
    (situation,) = report.situations
    by_name = {row.name: row for row in situation.rows}
    assert list(by_name) == ["limit", "ndstorage", "ipc", "tcp"]
    assert by_name["ipc"].to_limit is not None
    assert by_name["ipc"].to_limit.median == pytest.approx(0.75)
    assert by_name["ipc"].to_peers["ndstorage"].median == pytest.approx(3)
    assert by_name["ndstorage"].to_peers == {}
    assert by_name["tcp"].absent == "not today"
    assert len(by_name["limit"].runs) == 4
    assert list(tmp_path.iterdir()) == []
    assert json.loads(json.dumps(report.as_dict()))["machine"]["processors"] >= 1
    assert datetime.now(UTC) - datetime.fromisoformat(report.date) < timedelta(minutes=5)
    assert report.versions["numpy"] == np.__version__


def test_deletes_its_files_when_a_row_fails(tmp_path: Path, rows: Rows) -> None:
    def fail(directory: Path, workload: Workload, memory_mb: int | None) -> Measurement:
        (directory / "stack").write_bytes(b"half")
        raise AcquisitionFailed("the daemon died")

    rows.rows["ipc"] = replace(rows.rows["ipc"], run=fail)
    with pytest.raises(AcquisitionFailed, match="died"):
        run_benchmark(settings(tmp_path), lambda *news: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"payload_bytes": 10**18}, "are free"),
        ({"directory": Path("/nowhere")}, "not a directory"),
        ({"rows": ("ipc", "zip")}, "zip"),
    ],
)
def test_refuses_before_anything_runs(tmp_path: Path, rows: Rows, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        run_benchmark(replace(settings(tmp_path), **changes), lambda *news: None)
    assert rows.order == []


def test_names_the_file_system(tmp_path: Path) -> None:
    assert file_system_of(tmp_path)


def test_rounds_go_in_one_order_and_then_in_the_other(tmp_path: Path) -> None:
    """The first run of a round may find an idle disk."""
    told: list[tuple[str, int, int]] = []
    bench = Bench(replace(settings(tmp_path), pairs=3), tmp_path, lambda *news: told.append(news), 6)
    assert bench.in_turn("reading", ("a", "b"), str.upper) == {"a": ["A"] * 3, "b": ["B"] * 3}
    assert [text for text, _, _ in told] == [f"reading: {name}" for name in "abbaab"]
    assert [done for _, done, _ in told] == [0, 1, 2, 3, 4, 5]
