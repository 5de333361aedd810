"""The load of the machine and of the daemon: real values are plausible, and follow what happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from acqstream.daemon import machine_watch
from acqstream.daemon.machine_watch import LoadWatch, disk_of
from acqstream.model.status import LoadStatus
from tests.waiting import until

BLOCK_BYTES = 2**20


@pytest.fixture
def watch(tmp_path: Path) -> LoadWatch:
    return LoadWatch(tmp_path)


def measured(watch: LoadWatch, is_reached: Callable[[LoadStatus], bool], what: str) -> LoadStatus:
    """Measure until a measurement is so."""

    def look() -> LoadStatus | None:
        watch.measure()
        return watch.status if is_reached(watch.status) else None

    found: LoadStatus = until(look, what)
    return found


@pytest.fixture
def _busy_child() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        yield
        child.kill()


@pytest.mark.usefixtures("_busy_child")
def test_a_busy_child_raises_the_share_of_the_machine(watch: LoadWatch) -> None:
    """To what one processor is of all: where the child is kept off them, others keep them as busy."""
    one_processor = 100 / (psutil.cpu_count() or 1)
    measured(watch, lambda status: (status.processor_percent or 0) > one_processor / 2, "the machine is busy")
    assert (watch.status.processor_percent or 0) <= 100
    assert watch.status.processors == psutil.cpu_count()


def test_work_of_this_process_counts_as_the_daemon_s(watch: LoadWatch) -> None:
    watch.measure()
    assert watch.status.daemon_processor_percent is None, "a share needs two measurements"
    ticks = 5 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.1
    began_s = psutil.Process().cpu_times().user
    while psutil.Process().cpu_times().user - began_s < ticks:
        sum(range(10_000))
    watch.measure()
    assert (watch.status.daemon_processor_percent or 0) > 0


def test_memory_and_priority_are_those_of_this_process(watch: LoadWatch) -> None:
    block = bytearray(os.urandom(64 * BLOCK_BYTES))
    watch.measure()
    status = watch.status
    assert len(block) < status.daemon_memory_bytes < status.total_memory_bytes
    assert 0 < status.available_memory_bytes <= status.total_memory_bytes
    if sys.platform != "win32":
        assert status.priority == f"nice {os.nice(0)}"


def test_what_is_written_counts_as_the_disk_s(watch: LoadWatch, tmp_path: Path) -> None:
    if not disk_of(tmp_path):
        pytest.skip("no block device of its own under the temporary folder")
    with (tmp_path / "file").open("wb", buffering=0) as file:

        def is_written(status: LoadStatus) -> bool:
            file.write(bytes(BLOCK_BYTES))
            os.fsync(file.fileno())
            return bool(status.disk_write_bytes_per_s) and bool(status.disk_busy_percent)

        status = measured(watch, is_written, "the disk has written")
    assert 0 < (status.disk_busy_percent or 0) <= 100


def test_a_folder_without_a_disk_has_no_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_watch, "_BLOCK_DEVICES", tmp_path)
    watch = LoadWatch(tmp_path)
    for _ in range(2):
        watch.measure()
    status = watch.status
    assert (status.disk, status.disk_write_bytes_per_s, status.disk_busy_percent) == ("", None, None)


def test_counters_of_a_scripted_machine(watch: LoadWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 s later: 3 of 8 s of two processors were busy, 1 s of it by the daemon; 40 MB in 2 s of the disk's time."""
    now: dict[str, Any] = {"s": 100.0, "user": 50.0, "idle": 50.0, "own": 5.0, "written": 0, "busy": 0}
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    machine = psutil.cpu_times()
    empty = machine._replace(**dict.fromkeys(machine._fields, 0.0))
    monkeypatch.setattr(psutil, "cpu_times", lambda: empty._replace(user=now["user"], idle=now["idle"]))
    disks = {"vdz": SimpleNamespace(write_bytes=0, busy_time=0)}
    monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: dict(disks))
    own: Any = SimpleNamespace(
        cpu_times=lambda: SimpleNamespace(user=now["own"], system=1.0),
        memory_info=lambda: SimpleNamespace(rss=7),
        nice=lambda: -5,
    )
    watch._process, watch._disk = own, "vdz"
    watch.measure()
    now.update(s=104.0, user=53.0, idle=55.0, own=6.0)
    disks["vdz"] = SimpleNamespace(write_bytes=40_000_000, busy_time=2000)
    watch.measure()
    status = watch.status
    assert (status.processor_percent, status.daemon_processor_percent) == (37.5, 25.0)
    assert (status.disk, status.disk_write_bytes_per_s, status.disk_busy_percent) == ("vdz", 10_000_000, 50.0)
    assert (status.daemon_memory_bytes, status.priority) == (7, "nice -5" if sys.platform != "win32" else "-5")


def test_a_machine_that_cannot_be_measured_is_reported_once(
    watch: LoadWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine_watch.logger, "disabled", False)  # a test of the import rules turns all loggers off

    def refuse() -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    watch.start()
    watch._thread.join()
    watch.close()
    assert watch.status == LoadStatus()
    assert caplog.text.count("cannot measure the load") == 1
