from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings
from acqstream.bench.measurement import Latency, Measurement, ProcessCost
from acqstream.bench.report import BenchReport, Pair, SituationReport, absent_row, limit_row, measured_row, row_report
from acqstream.cli.main import main


def measurement(seconds: float, **peaks: int) -> Measurement:
    return Measurement(
        payload_bytes=10**9,
        frames=100,
        seconds=seconds,
        latency=Latency(1.0, 2.0, 3.0, 30.0),
        processes={role: ProcessCost(0.4, peak) for role, peak in peaks.items()},
    )


PAIR = Pair(measurement(0.5, producer=10**8), measurement(1.0, producer=2 * 10**8, daemon=3 * 10**8))
REPORT = BenchReport(
    version="0.1.0",
    date="2026-11-21T12:00:00+00:00",
    versions={"numpy": "2.4.6"},
    machine={"system": "Linux", "python": "3.11", "processors": 2, "memory_bytes": 1, "file_system": "ext4"},
    directory="/data",
    pairs=1,
    situations=(
        SituationReport(
            shape=(2048, 2048),
            dtype="uint16",
            payload_bytes=10**9,
            frames=100,
            peers=("ndstorage",),
            rows=(
                limit_row([PAIR]),
                absent_row("ndstorage", "not installed"),
                measured_row("ipc", [PAIR], {"ndstorage": [PAIR]}),
            ),
        ),
    ),
)


class Benchmark:
    def __init__(self, report: BenchReport = REPORT) -> None:
        self.settings: BenchSettings | None = None
        self._report = report

    def __call__(self, settings: BenchSettings, observe: Callable[[str, int, int], None]) -> BenchReport:
        self.settings = settings
        observe("limit", 0, 2)
        return self._report


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    fake = Benchmark()
    monkeypatch.setattr("acqstream.bench.comparison.run_benchmark", fake)
    return fake


def run(*options: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["bench", *options])
    return int(end.value.code or 0)


def test_table(benchmark: Benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    for text in ("2048 x 2048 uint16", "ext4", "not installed", "0.50 [0.50, 0.50]", "0.40 / 0.40", "300 / 200"):
        assert text in out


def test_reading(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    noted = replace(measurement(1.0, reader=10**8), note="77 bytes per frame")
    rows = (row_report("ndstorage", [measurement(2.0, reader=10**9)]), row_report("acqstream", [noted]))
    situation = replace(REPORT.situations[0], rows=rows, title="open 100 frames")
    fake = Benchmark(replace(REPORT, situations=(situation,)))
    monkeypatch.setattr("acqstream.bench.reading.run_reading_benchmark", fake)
    assert run("--reading", "--quick") == 0
    assert fake.settings is not None
    out = capsys.readouterr().out
    for text in ("open 100 frames", "acqstream: 77 bytes per frame", "CPU s/GB reader", "1,000"):
        assert text in out
    assert "durable" not in out


def test_json(benchmark: Benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["situations"][0]["rows"][2]["to_limit"]["median"] == 0.5


@pytest.mark.parametrize(
    ("options", "payload_bytes", "pairs"),
    [
        ([], 8 * 10**9, 5),
        (["--quick"], 1_500_000_000, 3),
        (["--bytes", "2.5GB", "--pairs", "1"], 2_500_000_000, 1),
        (["--quick", "--bytes", "64 mb"], 64_000_000, 3),
        (["--bytes", "1e6"], 1_000_000, 5),
    ],
)
def test_settings(benchmark: Benchmark, options: list[str], payload_bytes: int, pairs: int) -> None:
    run(*options, "--rows", "ipc, tcp", "--dir", "/tmp", "--memory-mb", "64")
    settings = benchmark.settings
    assert settings is not None
    assert (settings.payload_bytes, settings.pairs) == (payload_bytes, pairs)
    assert settings.rows == ("ipc", "tcp")
    assert settings.directory == Path("/tmp")
    assert settings.daemon_memory_mb == 64


@pytest.mark.parametrize("options", [["--bytes", "much"], ["--bytes", "0"], ["--rows", "ipc,zip"], ["--pairs", "0"]])
def test_wrong_usage(options: list[str]) -> None:
    assert run(*options) == 2
