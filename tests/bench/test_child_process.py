from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acqstream.bench.child_process import run_measured
from acqstream.bench.process_usage import UsageMeter, cpu_seconds, peak_memory_bytes
from acqstream.bench.workload import Workload
from acqstream.errors import AcquisitionFailed


@pytest.mark.slow
def test_ndstorage_measures_itself(tmp_path: Path) -> None:
    pytest.importorskip("ndstorage")
    workload = Workload((64, 64), "uint16", 20)
    measured = run_measured(
        "acqstream.bench.ndstorage_writer", [str(tmp_path), workload.as_argument()], workload.payload_bytes
    )
    assert measured.frames == 20
    assert measured.processes["producer"].cpu_s >= 0
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.tif")) > workload.payload_bytes


def test_a_failing_child_says_why() -> None:
    with pytest.raises(AcquisitionFailed, match=r"nosuchmodule ended with code 1: .*nosuchmodule"):
        run_measured("nosuchmodule", [], 0)


def test_usage_of_this_process() -> None:
    meter = UsageMeter(os.getpid())
    sum(range(200_000))
    cost = meter.cost()
    assert cost.cpu_s > 0
    assert cost.peak_bytes is None or cost.peak_bytes > 10**6


def test_usage_of_another_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert cpu_seconds(child.pid) >= 0
        peak = peak_memory_bytes(child.pid)
        assert peak is None or peak > 0
    finally:
        child.communicate(b"\n")
