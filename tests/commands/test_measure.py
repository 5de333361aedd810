"""`tools/measure.py`: what a developer asks for reaches the measurement, and what cannot work ends before it begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import measure
from acqstream.bench.comparison import BenchSettings
from acqstream.bench.measurement import BenchReport, Table
from acqstream.cli.output import ExitCode
from bench.delay import DelayPlan
from bench.steady import SteadyPlan

REPORT = BenchReport(
    version="0.1.0",
    date="2026-11-21T12:00:00+00:00",
    versions={},
    machine={"system": "Linux", "python": "3.11", "processors": 2, "file_system": "ext4", "kernels": "numpy"},
    directory="/data",
    pairs=1,
    tables=(Table(title="put to readable", rows=({"row": "ipc", "p99_ms": 12.345},)),),
)


@pytest.mark.parametrize(
    ("arguments", "function", "given"),
    [
        (["latency"], "run_delay_benchmark", {"plan": DelayPlan(seconds=20)}),
        (["latency", "--seconds", "3"], "run_delay_benchmark", {"plan": DelayPlan(seconds=3)}),
        (["steady"], "run_steady_benchmark", {"plan": SteadyPlan(seconds=60)}),
        (["growth"], "run_growth_benchmark", {}),
        (["pyramid"], "run_pyramid_benchmark", {}),
        (["web"], "run_web_benchmark", {}),
        (["peers", "--mirrors", "n5 raw, wkw lz4"], "run_peers_benchmark", {"names": ("n5 raw", "wkw lz4")}),
        (["plot", "--out", "a.png"], "run_plotted_benchmark", {"path": Path("a.png")}),
    ],
)
def test_each_measurement_gets_its_settings(
    arguments: list[str],
    function: str,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: dict[str, Any] = {}

    def run(settings: BenchSettings, observe: Any, **more: Any) -> BenchReport:
        observe("limit", 0, 2)
        seen.update(more, settings=settings)
        return REPORT

    monkeypatch.setattr(measure, function, run)
    assert measure.main([*arguments, "--bytes", "500MB", "--pairs", "3", "--rows", "ipc, tcp"]) == 0
    settings = seen.pop("settings")
    assert (settings.payload_bytes, settings.pairs, settings.rows) == (500_000_000, 3, ("ipc", "tcp"))
    assert seen == given
    assert "put to readable" in capsys.readouterr().out
    assert measure.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["rows"][0]["p99_ms"] == 12.345


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["latency", "--bytes", "1000000GB", "--seconds", "1e9"], "are free"),
        (["latency", "--rows", "ndstorage"], "needs one of the rows shm, ipc, tcp"),
        (["steady", "--rows", "ndstorage"], "needs one of the rows shm, ipc, tcp"),
        (["growth", "--rows", "ndstorage"], "needs one of the rows shm, ipc, tcp"),
        (["peers", "--mirrors", "n6"], "unknown mirrors ['n6']"),
        (["plot", "--out", "rates.gif"], ".svg or .png"),
    ],
)
def test_what_cannot_work_ends_before_it_begins(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure.main([*arguments, "--dir", str(tmp_path)]) == ExitCode.CONFIGURATION
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_it_runs_as_a_program() -> None:
    """With the search path of a script: the one that its child processes get."""
    command = [sys.executable, str(Path(measure.__file__)), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "latency" in done.stdout
