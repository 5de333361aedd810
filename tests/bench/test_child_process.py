from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from acqstream.bench.child_process import Child, run_measured, started_process
from acqstream.bench.measurement import UsageMeter, children_cpu_seconds, cpu_seconds, peak_memory_bytes
from acqstream.bench.workload import Workload
from acqstream.errors import AcquisitionFailed
from bench.block_peer import compress_blocks


def run_program(module: str, *arguments: str, timeout_s: float = 60.0) -> AbstractContextManager[Child]:
    return started_process(module, [sys.executable, "-m", module, *arguments], timeout_s=timeout_s)


def test_a_failing_child_says_why() -> None:
    with (
        pytest.raises(AcquisitionFailed, match=r"nosuchmodule ended with code 1: .*nosuchmodule"),
        run_program("nosuchmodule") as child,
    ):
        child.result()


def test_a_plan_names_what_is_run_and_its_arguments(tmp_path: Path) -> None:
    workload = Workload((32, 40), "uint16", 4)
    reserved = run_measured("lz4 blocks", compress_blocks, 0, workload=workload)
    assert (reserved.frames, reserved.payload_bytes) == (4, workload.payload_bytes)
    with pytest.raises(AcquisitionFailed, match="nothing of the kind ended with code 1: TypeError"):
        run_measured("nothing of the kind", compress_blocks, 0, folder=tmp_path)


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


@pytest.mark.skipif(sys.platform == "win32", reason="does not tell")
def test_children_that_have_ended_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    program = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}]); print('ended', flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ended\n"
        with psutil.Popen([sys.executable, "-c", "pass"]) as gone:  # between the list and the look
            monkeypatch.setattr(psutil.Process, "children", lambda *_, **how: [gone])
        assert children_cpu_seconds(parent.pid) >= 0.28  # in ticks
        assert cpu_seconds(parent.pid) >= children_cpu_seconds(parent.pid)
        parent.communicate("\n")


def test_a_hanging_child_is_ended() -> None:
    with (
        pytest.raises(AcquisitionFailed, match="timeit did not end within 1 s"),
        run_program("timeit", "-n", "1", "input()", timeout_s=1) as child,
    ):
        child.wait_until_ready()


def test_a_hanging_child_is_told_though_its_timer_has_not_ended_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    kill = subprocess.Popen.kill

    def kill_and_stay(process: subprocess.Popen[str]) -> None:
        kill(process)
        told.wait(50)

    monkeypatch.setattr(subprocess.Popen, "kill", kill_and_stay)
    with run_program("timeit", "-n", "1", "input()", timeout_s=0.1) as child:
        with pytest.raises(AcquisitionFailed, match="timeit did not end within 0 s"):
            child.wait_until_ready()
        told.set()


def test_one_that_ends_before_it_is_ready_says_why() -> None:
    with (
        pytest.raises(AcquisitionFailed, match="nosuchmodule ended with code 1"),
        run_program("nosuchmodule") as child,
    ):
        child.wait_until_ready()


def test_an_interrupt_as_soon_as_a_child_runs_is_not_held_up_by_its_time_limit() -> None:
    program = """if True:
        import subprocess, sys
        from acqstream.bench.child_process import Child

        Child("sleep", subprocess.Popen([sys.executable, "-c", "pass"]), timeout_s=3600.0)
        sys.exit(143)
    """
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 143


def test_children_do_not_outlive_their_block() -> None:
    with run_program("timeit", "-n", "1", "-r", "1", "input()", timeout_s=60) as child:
        process = child._process
        assert process.poll() is None
    assert process.poll() is not None
