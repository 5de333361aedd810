from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from acqstream.bench.comparison import BenchSettings
from acqstream.bench.measurement import (
    LIMIT,
    BenchReport,
    Latency,
    Measurement,
    Pair,
    ProcessCost,
    SituationReport,
    Table,
    absent_row,
    measured_row,
    row_report,
)
from acqstream.cli.bench import last_line, print_bench_report
from acqstream.cli.output import ExitCode
from tests.command import command


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
    machine={"system": "Linux", "python": "3.11", "processors": 2, "file_system": "ext4", "kernels": "numpy"},
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
                row_report(LIMIT, [PAIR.limit]),
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
    return command("bench", *options)


def test_table(benchmark: Benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    for text in (
        "2048 x 2048 uint16",
        "2 processors, numpy kernels, ext4",
        "not installed",
        "0.50 [0.50, 0.50]",
        "0.40 / 0.40",
        "300 / 200",
    ):
        assert text in out


def test_the_last_line_is_the_rate_of_full_frames(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer, slow, fast = (
        row_report(name, [measurement(s)]) for name, s in (("ndstorage", 0.1), ("tcp", 2.0), ("shm", 0.25))
    )
    full = replace(REPORT.situations[0], rows=(row_report(LIMIT, [measurement(0.01)]), peer, slow, fast))
    small = replace(full, shape=(64, 64), rows=(row_report("shm", [measurement(0.01)]),))
    benchmark = Benchmark(replace(REPORT, situations=(full, small)))
    monkeypatch.setattr("acqstream.bench.comparison.run_benchmark", benchmark)
    assert run("--quick") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2048 x 2048 at up to 400 frames a second here"
    for report in (replace(REPORT, situations=(small,)), replace(REPORT, situations=(replace(full, rows=(peer,)),))):
        assert last_line(report) == ""


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
        (["--quick"], 1_000_000_000, 1),
        (["--bytes", "2.5GB", "--pairs", "1"], 2_500_000_000, 1),
        (["--quick", "--bytes", "64 mb"], 64_000_000, 1),
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


def test_quick_says_what_it_flatters(benchmark: Benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--quick") == 0
    assert "flatter" in capsys.readouterr().out
    assert benchmark.settings is not None
    assert set(benchmark.settings.rows) == {"ndstorage", "acquire-zarr", "shm", "ipc", "tcp"}
    assert benchmark.settings.max_frames == 50_000


class OtherBenchmark(Benchmark):
    """With the plan or the file that it was given."""

    given: ClassVar[dict[str, Any]] = {}

    def __call__(self, settings: BenchSettings, observe: Callable[[str, int, int], None], **given: Any) -> BenchReport:
        self.given.update(given)
        return super().__call__(settings, observe)


@pytest.mark.parametrize(
    ("options", "function", "given"),
    [
        (["--mirror"], "mirror.run_mirror_benchmark", {"names": ()}),
        (
            ["--mirror", "--mirrors", "n5, ome-zarr raw"],
            "mirror.run_mirror_benchmark",
            {"names": ("n5", "ome-zarr raw")},
        ),
    ],
)
def test_other_figures(
    options: list[str],
    function: str,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table(
        title="put to readable",
        rows=({"row": "ipc", "p99_ms": 12.345, "frames": 2000}, {"row": "shm", "note": "not on this platform"}),
        note="how",
    )
    report = replace(REPORT, situations=(), tables=(table,))
    fake = OtherBenchmark(report)
    fake.given.clear()
    monkeypatch.setattr(f"acqstream.bench.{function}", fake)
    assert run(*options) == 0
    assert fake.given == given
    out = capsys.readouterr().out
    for text in ("put to readable", "p99 ms", "12.3", "2,000", "not on this platform", "how", "2026-11-21T12:00"):
        assert text in out
    assert run(*options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["rows"][0]["p99_ms"] == 12.345


def test_a_table_of_many_figures_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {f"figure_{number}_ms": 1000.5 + number for number in range(12)}
    table = Table(title="many", rows=({"row": "ipc", **figures}, {"row": "tcp", **figures}))
    print_bench_report(replace(REPORT, situations=(), tables=(table,)), 1)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "figure" in line]
    assert lines[11] == ["figure", "11", "ms", "1,012", "1,012"]


@pytest.mark.parametrize(
    "options",
    [
        ["--bytes", "much"],
        ["--bytes", "0"],
        ["--rows", "ipc,zip"],
        ["--pairs", "0"],
        ["--mirrors", "n5"],
        ["--reading", "--mirror"],
    ],
)
def test_wrong_usage(options: list[str]) -> None:
    assert run(*options) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--bytes", "1000000GB"], "are free"),
        (["--mirror", "--rows", "ndstorage"], "needs one of the rows shm, ipc, tcp"),
        (["--mirror", "--mirrors", "n6"], "unknown mirrors ['n6']"),
    ],
)
def test_what_cannot_work_ends_before_it_begins(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options, "--dir", str(tmp_path)) == ExitCode.CONFIGURATION
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def has_begun(folder: Path, begun: str) -> bool:
    try:
        return any(folder.glob(f"acqstream-bench-*/{begun}"))
    except FileNotFoundError:  # deleted while it is listed
        return False


@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
@pytest.mark.parametrize(
    ("options", "number", "begun"),
    [
        (["--rows", "tcp", "--pairs", "50"], signal.SIGINT, "tcp/data/bench/*.tif"),
        (["--rows", "tcp", "--pairs", "50", "--mirror"], signal.SIGTERM, "live/data/bench.n5/**/attributes.json"),
    ],
)
def test_a_signal_leaves_nothing_behind(tmp_path: Path, options: list[str], number: signal.Signals, begun: str) -> None:
    command = [sys.executable, "-m", "acqstream", "bench", *options]
    command += ["--bytes", "60MB", "--memory-mb", "256", "--dir", str(tmp_path)]
    # A test run in the background of a shell has the signal ignored, and its children with it.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, preexec_fn=heed)  # noqa: PLW1509
    try:
        # Between two runs it deletes what one has written, and has no processes.
        while not (has_begun(tmp_path, begun) and (children := psutil.Process(bench.pid).children(recursive=True))):
            assert bench.poll() is None
            time.sleep(0.005)
        if number is signal.SIGINT:
            os.killpg(bench.pid, number)  # as a terminal does: to its children too
        else:
            bench.send_signal(number)
        assert bench.wait(50) == 128 + number
    finally:
        bench.kill()
        bench.wait()
    assert list(tmp_path.iterdir()) == []
    assert not psutil.wait_procs(children, timeout=10)[1]
