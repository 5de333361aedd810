"""The checks on this computer: what they gather, and that one that fails ends no other."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.daemon.config import DaemonConfig
from acqstream.doctor import recording_checks
from acqstream.doctor.checks import CHECKS, run_checks
from acqstream.doctor.pc_checks import COMPILED_KERNELS, MEMORY_LIMITS, PACKAGES
from acqstream.doctor.recording_checks import CONNECTIONS, DISK_SPEED, FILE_SYSTEM, FREE_SPACE, RUNNING_DAEMON
from acqstream.doctor.verdict import Check, Examination, PlannedCamera, Severity, ok
from acqstream.grid.kernels import kernels_name
from acqstream.model.status import AcquisitionStatus, DaemonStatus, UnfinishedViewStatus, ViewProcessStatus
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.platform import FILES
from tests.live.daemon_process import DaemonProcess


def examination(data: Path, **changes: Any) -> Examination:
    config = DaemonConfig(data=data, runtime=data.parent / "run", memory_mb=64)
    return Examination(**{"data": data, "camera": None, "config": config, "status": None, **changes})


def status(*acquisitions: AcquisitionStatus, **changes: Any) -> DaemonStatus:
    return DaemonStatus(endpoint="tcp://127.0.0.1:1", data="/data", acquisitions=acquisitions, **changes)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_checks, "FIRST_BYTES", 2**23)
    monkeypatch.setattr(recording_checks, "MAX_BYTES", 2**24)


def test_a_camera_s_rate() -> None:
    assert PlannedCamera((2048, 2048), 2, 100.0).bytes_per_s == 838_860_800
    assert PlannedCamera((10, 20, 3), 1, 2.0).bytes_per_s == 1200


@pytest.mark.usefixtures("quick")
def test_all_checks_run_here_and_leave_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    results = list(run_checks(examination(data, camera=PlannedCamera((64, 64), 2, 1.0))))
    assert [result.check for result in results] == [check.name for check in CHECKS]
    facts = {result.check: result.facts for result in results}
    assert facts["disk speed"]["bytes_per_s"] > 1e5
    assert facts["disk speed"]["wanted_bytes_per_s"] == 8192
    assert facts["packages"]["versions"]["numpy"] == np.__version__
    assert facts["kernels"]["name"] == kernels_name()
    assert json.loads(json.dumps(facts)).keys() == facts.keys()
    assert list(data.iterdir()) == []


def test_a_check_that_fails_is_unknown_and_the_next_ones_run(tmp_path: Path) -> None:
    def gather(_examination: Examination) -> None:
        raise OSError(errno.EIO, "Input/output error")

    broken = Check("broken", gather, ok)
    first, second = run_checks(examination(tmp_path), (broken, FREE_SPACE))
    assert (first.verdict.level, first.facts) == (Severity.UNKNOWN, {})
    assert "Input/output error" in first.verdict.what
    assert second.facts["free_bytes"] > 0


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_of_the_disk_that_fails_is_a_problem(tmp_path: Path, check: Check) -> None:
    def gather(_examination: Examination) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (result,) = run_checks(examination(tmp_path), (replace(check, gather=gather),))
    is_of_disk = check.name in ("disk speed", "free space", "file system")
    assert result.verdict.level is (Severity.PROBLEM if is_of_disk else Severity.UNKNOWN)


def test_the_disk_is_left_alone_while_something_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_checks, "_measure", lambda *_: pytest.fail("measured"))
    facts = DISK_SPEED.gather(examination(tmp_path, status=status(AcquisitionStatus(name="cells"))))
    assert (facts.bytes_per_s, facts.reason) == (None, "cells is being recorded")
    config = DaemonConfig(data=tmp_path, reserve_mb=10**9)
    assert "too little free space" in DISK_SPEED.gather(examination(tmp_path, config=config)).reason


@pytest.mark.usefixtures("quick")
def test_a_slow_disk_is_measured_as_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write takes as long as on a disk of 20 MB/s. The first, small measurement is enough."""
    clock = [0.0]
    write = LocalDisk.pwritev
    written: list[int] = []

    def slow(disk: LocalDisk, fd: int, buffers: Any, offset: int) -> int:
        count = write(disk, fd, buffers, offset)
        written.append(count)
        clock[0] += count / 20e6
        return count

    monkeypatch.setattr(LocalDisk, "pwritev", slow)
    monkeypatch.setattr("acqstream.bench.limit.time.perf_counter", lambda: clock[0])
    camera = PlannedCamera((2048, 2048), 2, 10.0)
    facts = DISK_SPEED.gather(examination(tmp_path, camera=camera))
    assert facts.bytes_per_s == pytest.approx(20e6, rel=0.01)
    assert sum(written) <= 6 * 2**23
    verdict = DISK_SPEED.judge(facts)
    assert verdict.level is Severity.PROBLEM
    assert "The disk takes 20 MB/s; the camera sends 84 MB/s, 419% of that" in verdict.what


def test_free_space_and_reserve(tmp_path: Path) -> None:
    facts = FREE_SPACE.gather(examination(tmp_path, camera=PlannedCamera((10, 10), 1, 1.0)))
    stats = os.statvfs(tmp_path) if hasattr(os, "statvfs") else None
    if stats is not None:
        assert facts.free_bytes == pytest.approx(stats.f_bavail * stats.f_frsize, rel=0.2)
    assert (facts.reserve_bytes, facts.low_s, facts.wanted_bytes_per_s) == (512 * 2**20, 600.0, 100.0)


def test_what_the_file_system_lacks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalDisk.open

    def without_direct(disk: LocalDisk, path: str, *, create: bool, direct: bool = False) -> int:
        if direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(disk, path, create=create)

    monkeypatch.setattr(LocalDisk, "open", without_direct)
    monkeypatch.setattr(LocalDisk, "reserve", lambda *_: False)
    facts = FILE_SYSTEM.gather(examination(tmp_path))
    assert (facts.has_direct, facts.has_reservation) == (False, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("open", "create a file"),
        ("reserve", "reserve space"),
        ("pwritev", "write"),
        ("fdatasync", "force a file to the disk"),
        ("replace", "rename a file"),
        ("sync_directory", "force the names in a folder"),
        ("truncate", "cut a file"),
        ("pread", "read"),
    ],
)
def test_a_disk_that_fails_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, step: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalDisk, call, fail)
    facts = FILE_SYSTEM.gather(examination(tmp_path))
    assert facts.failure == f"cannot {step}: Input/output error"
    assert FILE_SYSTEM.judge(facts).level is Severity.PROBLEM
    assert list(tmp_path.iterdir()) == []


def test_other_bytes_and_locks_that_hold_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "pread", lambda *_: bytes(4096))
        assert "other bytes" in FILE_SYSTEM.gather(examination(tmp_path)).failure
    monkeypatch.setattr(type(FILES), "try_lock", lambda *_: True)
    assert "locks do not work" in FILE_SYSTEM.gather(examination(tmp_path)).failure


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/cells", ("xfs", False)),
        ("/database", ("ext4", False)),
        ("/mnt/nas/x", ("cifs", True)),
        ("/", ("ext4", False)),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_the_innermost_mount_is_that_of_the_folder(
    path: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    mounts = [("/", "ext4"), ("/data", "xfs"), ("/mnt/nas", "cifs")]
    parts = [SimpleNamespace(mountpoint=mountpoint, fstype=kind, opts="rw") for mountpoint, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)  # noqa: A006 - the library's name
    monkeypatch.setattr(os.path, "realpath", str)
    assert recording_checks._kind(Path(path)) == expected


def test_the_runtime_folder_is_tried_as_the_daemon_does(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    facts = CONNECTIONS.gather(examination(data))
    assert (facts.runtime, facts.runtime_problem) == (str(tmp_path / "run"), "")
    (tmp_path / "file").write_text("")
    config = DaemonConfig(data=data, runtime=tmp_path / "file")
    assert "runtime directory" in CONNECTIONS.gather(examination(data, config=config)).runtime_problem


def test_memory_is_that_of_the_configuration(tmp_path: Path) -> None:
    config = DaemonConfig(data=tmp_path, memory_mb=64, pyramid_memory_mb=10, mirror_memory_mb=20)
    facts = MEMORY_LIMITS.gather(examination(tmp_path, config=config))
    assert facts.needed_bytes == (64 + 10 + 20 + 1024) * 2**20
    assert facts.available_bytes > 0


def test_the_oldest_versions_are_those_of_the_package(tmp_path: Path) -> None:
    facts = PACKAGES.gather(examination(tmp_path))
    assert facts.oldest["pyzmq"] == "26.4"
    assert "napari" not in facts.oldest  # an extra
    assert facts.acqstream == acqstream.__version__


@pytest.mark.parametrize("value", ["0", ""])
def test_the_environment_chooses_the_kernels(value: str) -> None:
    program = (
        "import json, types; from acqstream.doctor.pc_checks import COMPILED_KERNELS as check;"
        "facts = check.gather(types.SimpleNamespace(status=None));"
        "print(json.dumps([facts.name, check.judge(facts).level, facts.reason]))"
    )
    environment = {**os.environ, "ACQSTREAM_KERNELS": value}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    name, level, reason = json.loads(found.stdout)
    if value == "0":
        assert (name, level, reason) == ("numpy", "warning", "ACQSTREAM_KERNELS=0")
    else:  # whether this environment was built with a compiler or not
        assert (name, level, reason) in {("compiled", "ok", ""), ("numpy", "warning", reason or "a reason")}


def test_the_kernels_of_a_daemon_are_its_own(tmp_path: Path) -> None:
    answer = status(views=ViewProcessStatus(kernels="numpy"))
    assert COMPILED_KERNELS.gather(examination(tmp_path, status=answer)).daemon == "numpy"
    assert COMPILED_KERNELS.gather(examination(tmp_path)).daemon == ""


def test_states_of_a_daemon_become_lines(tmp_path: Path) -> None:
    failed = UnfinishedViewStatus(path="/data/a", mirror="n5", state="failed", reason="full")
    answer = status(
        AcquisitionStatus(name="a", paused="disk full"),
        AcquisitionStatus(name="b", stall="fdatasync for 3 s"),
        version="0.0",
        views=ViewProcessStatus(mirrors=(failed, UnfinishedViewStatus(mirror="wkw", state="running"))),
    )
    facts = RUNNING_DAEMON.gather(examination(tmp_path, status=answer))
    assert (facts.paused, facts.stalled) == (("a: disk full",), ("b: fdatasync for 3 s",))
    assert facts.failed_views == ("n5 of /data/a: full",)
    assert (facts.version, facts.acquisitions) == ("0.0", 2)


def test_a_real_daemon_is_seen(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as process:
        with acqstream.create("cells", endpoint=process.endpoint) as run:
            run.put(np.zeros((4, 4), np.uint16), time=0)
            asked = examination(process.data, status=fetch_status(process.endpoint))
            assert asked.running == ("cells",)
            assert RUNNING_DAEMON.judge(RUNNING_DAEMON.gather(asked)).level is Severity.OK
            assert DISK_SPEED.gather(asked).bytes_per_s is None
