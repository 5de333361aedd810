from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings, Observer
from acqstream.bench.measurement import (
    LIMIT,
    BenchReport,
    Latency,
    Measurement,
    Pair,
    ProcessCost,
    SituationReport,
    Spread,
    absent_row,
    measured_row,
    row_report,
)
from acqstream.errors import ConfigError
from bench import plot
from bench.plot import check_plot, draw, rates_by_size, run_plotted_benchmark


def measured(gb_per_s: float) -> Measurement:
    return Measurement(
        payload_bytes=10**9,
        frames=10,
        seconds=1 / gb_per_s,
        latency=Latency(1, 2, 3, 4),
        processes={"producer": ProcessCost(0.5, None)},
    )


def situation(shape: tuple[int, int]) -> SituationReport:
    pairs = [Pair(measured(3), measured(2)), Pair(measured(4), measured(1))]
    rows = (
        row_report(LIMIT, [pair.limit for pair in pairs]),
        absent_row("tensorstore", "not measured"),
        measured_row("ipc", pairs, {}),
    )
    return SituationReport(shape=shape, dtype="uint16", payload_bytes=10**9, frames=10, peers=(), rows=rows)


REPORT = BenchReport(
    version="0.1.0",
    date="2026-11-21T12:00:00+00:00",
    machine={"processors": 2, "file_system": "ext4"},
    versions={},
    directory="/data",
    pairs=2,
    situations=(situation((64, 64)), situation((2048, 2048))),
)


def test_rates_are_by_the_size_of_a_frame() -> None:
    assert rates_by_size(REPORT) == {
        "limit": {8192: Spread(3.5e9, 3e9, 4e9), 8388608: Spread(3.5e9, 3e9, 4e9)},
        "ipc": {8192: Spread(1.5e9, 1e9, 2e9), 8388608: Spread(1.5e9, 1e9, 2e9)},
    }


def test_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(REPORT, tmp_path / "a.svg")
    draw(REPORT, tmp_path / "b.svg")
    draw(REPORT, tmp_path / "a.png")
    text = (tmp_path / "a.svg").read_text("utf-8")
    for words in ("ipc", "limit of the disk", "8 KiB", "8 MiB"):
        assert f"<!-- {words} -->" in text
    assert "tensorstore" not in text
    assert text == (tmp_path / "b.svg").read_text("utf-8")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_measures_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")

    def run(settings: BenchSettings, observe: Observer) -> BenchReport:
        return replace(REPORT, situations=tuple(situation((shape[0], shape[1])) for shape, _ in settings.situations))

    monkeypatch.setattr(plot, "run_benchmark", run)
    settings = BenchSettings(directory=tmp_path, payload_bytes=1, pairs=1)
    report = run_plotted_benchmark(settings, lambda *news: None, path=tmp_path / "rates.svg")
    assert list(rates_by_size(report)["ipc"]) == [2**size for size in (13, 15, 17, 19, 21, 23, 26)]
    assert (tmp_path / "rates.svg").exists()


def test_refuses_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"\.svg or \.png"):
        check_plot(tmp_path / "rates.gif")
    with pytest.raises(ConfigError, match="does not exist"):
        check_plot(tmp_path / "nowhere" / "rates.svg")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        check_plot(tmp_path / "rates.svg")


def test_nothing_else_loads_matplotlib() -> None:
    modules = "acqstream.cli.main, acqstream.bench.comparison, bench.plot"
    tools = str(Path(plot.__file__).parents[1])
    code = f"import sys; sys.path.append({tools!r}); import {modules}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=50).returncode == 0
