"""`acqstream doctor` on a real disk that is slow: a loop device with a limit of the kernel (blkio, io)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.loop_disk import LoopDisk, why_not

LIMIT_BYTES_PER_S = 30_000_000
GROUPS = Path("/sys/fs/cgroup")
JOIN = "echo $$ > {}/cgroup.procs && exec "


@contextmanager
def limited_writes(device: str) -> Iterator[Path]:
    """A group of processes that may write so many bytes a second to the device; skips the test without one."""
    old, new = GROUPS / "blkio", GROUPS / "cgroup.controllers"
    if (old / "blkio.throttle.write_bps_device").exists():
        group, name, line = old, "blkio.throttle.write_bps_device", f"{device} {LIMIT_BYTES_PER_S}"
    elif new.exists() and "io" in new.read_text().split():
        group, name, line = GROUPS, "io.max", f"{device} wbps={LIMIT_BYTES_PER_S}"
    else:
        pytest.skip("this kernel limits no writes")
    own = group / f"acqstream-test-{os.getpid()}"
    try:
        own.mkdir()
        (own / name).write_text(line)
    except OSError as error:
        if own.exists():
            own.rmdir()
        pytest.skip(f"writes cannot be limited here: {error}")
    try:
        yield own
    finally:
        own.rmdir()


@pytest.mark.slow
def test_a_slow_disk_is_a_problem_for_a_fast_camera_and_none_for_a_slow_one(tmp_path: Path) -> None:
    if reason := why_not("ext4"):
        pytest.skip(reason)
    disk = LoopDisk("ext4", tmp_path / "image", tmp_path / "disk", 2 * 2**30)
    disk.mount()
    try:
        number = os.stat(disk.place).st_dev
        with limited_writes(f"{os.major(number)}:{os.minor(number)}") as group:
            documents = []
            for fps in ("10", "0.5"):
                doctor = [sys.executable, "-m", "acqstream", "doctor", "--data", str(disk.place), "--json"]
                doctor += ["--frame", "2048,2048", "--fps", fps]
                shell = ["sh", "-c", JOIN.format(group) + '"$@"', "sh", *doctor]
                done = subprocess.run(shell, capture_output=True, text=True, check=False)
                (speed,) = (one for one in json.loads(done.stdout)["checks"] if one["check"] == "disk speed")
                documents.append((done.returncode, speed))
    finally:
        disk.unmount()
    code, fast = documents[0]
    assert (code, fast["level"]) == (1, "problem")
    assert fast["facts"]["bytes_per_s"] < 1.5 * LIMIT_BYTES_PER_S
    assert "the camera sends 84 MB/s" in fast["what"]
    assert "Use a faster local disk" in fast["remedy"]
    assert documents[1][1]["level"] == "ok"
