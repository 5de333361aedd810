"""The doctor, and the receipt of a run, on real file systems: what direct writes are there, and disks that refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from acqstream.cli.main import main
from acqstream.daemon.config import DaemonConfig
from acqstream.doctor import disk_speed, file_system, free_space
from acqstream.doctor.checks import run_checks
from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import Severity
from tests.faults.loop_disk import LoopDisk, why_not
from tests.log.make_frames import frames_of, write_log

KINDS = {
    "ext4": ("direct", "", ""),
    "xfs": ("direct", "", ""),
    "btrfs": ("buffered", "page cache for its checksums", "`chattr +C`"),
    "btrfs +C": ("direct", "", ""),
    "bindfs": ("buffered", "(FUSE)", "Use a local disk with"),
}


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    kind, _, attribute = request.param.partition(" ")
    with ExitStack() as stack:
        if kind == "bindfs":
            if os.name == "nt" or os.geteuid() or not (shutil.which(kind) and Path("/dev/fuse").exists()):
                pytest.skip("bindfs is not installed, or cannot mount")
            (tmp_path / "below").mkdir()
            (tmp_path / "disk").mkdir()
            subprocess.run([kind, tmp_path / "below", tmp_path / "disk"], check=True)
            stack.callback(lambda: subprocess.run(["umount", tmp_path / "disk"], check=True))
        else:
            if why := why_not(kind):
                pytest.skip(why)
            stack.enter_context(LoopDisk(kind, tmp_path / "image", tmp_path / "disk", 2**30))
        place = tmp_path / "disk" / "data"
        place.mkdir()
        if attribute:
            subprocess.run(["chattr", attribute, place], check=True)
        yield request.param, place


def examination(data: Path) -> Examination:
    return Examination(data=data, camera=None, config=DaemonConfig(data=data), status=None)


def test_direct_is_said_where_it_is(disk: tuple[str, Path]) -> None:
    kind, place = disk
    if kind == "btrfs" and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 14):
        pytest.skip("this kernel writes past the page cache, and computes checksums of memory that may change")
    io, why, remedy = KINDS[kind]
    facts = file_system.gather(examination(place))
    verdict = file_system.judge(facts)
    assert (bool(facts.cached_reason), why in verdict.what, remedy in verdict.remedy) == (io == "buffered", True, True)
    log = write_log(place / "cells", frames_of(3))
    assert log.receipt is not None
    assert (log.receipt.settings["io"], why in log.metrics.io_why) == (io, True)


def test_a_read_only_disk_is_a_problem_in_each_check_of_it(tmp_path: Path) -> None:
    if why := why_not("ext4"):
        pytest.skip(why)
    with LoopDisk("ext4", tmp_path / "image", tmp_path / "disk", 2**30) as loop:
        subprocess.run(["mount", "-o", "remount,ro", loop.place], check=True)
        speed, _, system = run_checks(examination(loop.place), (disk_speed, free_space, file_system))
    assert [speed.verdict.level, system.verdict.level] == [Severity.PROBLEM] * 2
    assert "Read-only file system" in speed.verdict.what


@pytest.mark.parametrize("options", [["--data", "missing"], ["--fps", "5"], ["--config", "missing.toml"]])
def test_wrong_arguments_give_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--json", *options])
    document = json.loads(capsys.readouterr().out)
    assert end.value.code
    assert (document["worst"], document["checks"][0]["check"]) == ("problem", "arguments")
    assert "missing" in document["checks"][0]["what"] or "--fps" in document["checks"][0]["what"]


def test_no_remedy_names_the_file_system_in_use() -> None:
    for kind, name in {"fuseblk": "NTFS", "fuse.ntfs-3g": "NTFS", "xfs": "xfs", "ext4": "ext4"}.items():
        facts = file_system.FileSystemFacts(kind=kind, has_direct=False)
        assert name not in file_system.judge(facts).remedy
