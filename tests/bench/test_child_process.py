from __future__ import annotations

import os
import subprocess
import sys

import pytest

from acqstream.bench.child_process import run_measured
from acqstream.bench.process_usage import UsageMeter, cpu_seconds, peak_memory_bytes
from acqstream.errors import AcquisitionFailed


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
