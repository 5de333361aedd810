"""The doctor, and the receipt of a run, on real file systems: what direct writes are there, and disks that refuse."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from acqstream.cli.main import main
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.machine_watch import DiskSpace
from acqstream.doctor import recording_checks
from acqstream.doctor.checks import run_checks
from acqstream.doctor.recording_checks import DISK_SPEED, FILE_SYSTEM, FREE_SPACE
from acqstream.doctor.verdict import Examination, Severity
from acqstream.storage.files.disk import LocalDisk
from tests.faults.loop_disk import LoopDisk, why_not
from tests.live.other_user import STRANGER, result_as, shared_folder
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
    facts = FILE_SYSTEM.gather(examination(place))
    verdict = FILE_SYSTEM.judge(facts)
    assert (bool(facts.cached_reason), why in verdict.what, remedy in verdict.remedy) == (io == "buffered", True, True)
    log = write_log(place / "cells", frames_of(3))
    assert log.receipt is not None
    assert (log.receipt.settings["io"], why in log.stacks.io_why) == (io, True)


def test_a_read_only_disk_is_a_problem_in_each_check_of_it(tmp_path: Path) -> None:
    if why := why_not("ext4"):
        pytest.skip(why)
    with LoopDisk("ext4", tmp_path / "image", tmp_path / "disk", 2**30) as loop:
        subprocess.run(["mount", "-o", "remount,ro", loop.place], check=True)
        speed, _, system = run_checks(examination(loop.place), (DISK_SPEED, FREE_SPACE, FILE_SYSTEM))
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
        facts = recording_checks.FileSystemFacts(kind=kind, has_direct=False)
        assert name not in FILE_SYSTEM.judge(facts).remedy


QUOTAS = {
    "btrfs": ("qgroup 0/256", "btrfs quota enable {disk}", "btrfs qgroup limit {size} {disk}/data"),
    "usrquota": (f"user {STRANGER}", "setquota -u {user} 0 {blocks} 0 0 {disk}"),
    "grpquota": (f"group {STRANGER}", "setquota -g {user} 0 {blocks} 0 0 {disk}"),
    "prjquota": ("", "chattr -p 7 +P {disk}/data", "setquota -P 7 0 {blocks} 0 0 {disk}"),
}
QUOTA_BYTES = 256 * 2**20


@pytest.fixture(params=["btrfs", *(f"{kind} {quota}" for kind in ("ext4", "xfs") for quota in list(QUOTAS)[1:])])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """The kind of quota, its name, and a folder of a stranger that it limits."""
    kind, _, quota = request.param.partition(" ")
    name, *commands = QUOTAS[quota or kind]
    if why := why_not(kind):
        pytest.skip(why)
    for command in commands:
        if not shutil.which(command.split()[0]):
            pytest.skip(f"{command.split()[0]} is not installed")
    with shared_folder() as folder, ExitStack() as stack:
        disk = folder / "disk"
        try:
            stack.enter_context(LoopDisk(kind, tmp_path / "image", disk, 2**30, quota))
        except AssertionError as error:
            pytest.skip(f"the system has no {request.param}: {error}")
        making = ["btrfs", "subvolume", "create"] if kind == "btrfs" else ["mkdir"]
        subprocess.run([*making, disk / "data"], check=True)
        for command in commands:
            text = command.format(disk=disk, user=STRANGER, size=QUOTA_BYTES, blocks=QUOTA_BYTES // 1024)
            subprocess.run(text.split(), check=True)
        os.chown(disk / "data", STRANGER, STRANGER)
        yield quota or kind, name, disk / "data"


@pytest.mark.promise("free-space")
def test_free_space_is_what_a_quota_leaves(limited: tuple[str, str, Path]) -> None:
    quota, name, place = limited

    def look() -> tuple[int | None, str, str]:
        space = DiskSpace(DaemonConfig(data=place), LocalDisk(), lambda: None)
        space.measure()
        free, system = run_checks(examination(place), (FREE_SPACE, FILE_SYSTEM))
        return space.free_bytes, free.verdict.what, f"{system.verdict.level.name} {system.verdict.what}"

    def write() -> None:
        (place / "unforced").write_bytes(bytes(2**25))

    def fill() -> None:
        with (place / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(2**20)):
                os.fsync(file.fileno())

    free, said, _ = literal_eval(result_as(STRANGER, look))
    assert QUOTA_BYTES - 2**21 < free <= QUOTA_BYTES
    assert f"quota of {name}" in said or not name
    result_as(STRANGER, write)
    assert literal_eval(result_as(STRANGER, look))[0] <= QUOTA_BYTES - 2**25
    assert "[Errno" in result_as(STRANGER, fill)
    free, said, system = literal_eval(result_as(STRANGER, look))
    assert free < 2**21
    assert said.startswith("0.0 GB can be recorded")
    assert system.startswith("PROBLEM")
    assert "quota" in system or quota == "prjquota"  # xfs says there that the disk is full
    assert f"quota of {name}" in system or not name


def test_quotas_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_not("btrfs"):
        pytest.skip(why)
    with LoopDisk("btrfs", tmp_path / "image", tmp_path / "disk", 2**30) as loop:
        for command in (
            "quota enable {}",
            "qgroup create 1/7 {}",
            "qgroup limit 64M 1/7 {}",
            "subvolume create {}/other",
            "qgroup limit 64M {}/other",
        ):
            subprocess.run(["btrfs", *command.format(loop.place).split()], check=True)
        (free,) = run_checks(examination(loop.place), (FREE_SPACE,))
    assert "(there are quotas that cannot be read here: qgroup 1/7)" in free.verdict.what
    # An older kernel does not answer; the options of the mount say that there are some.
    monkeypatch.setattr(recording_checks, "_mount", lambda _: ("ext4", ["rw", "usrjquota=aquota.user", "jqfmt=vfsv1"]))
    assert recording_checks.quota_text(tmp_path).endswith("cannot be read here: usrjquota")


@pytest.mark.skipif(sys.platform != "linux", reason="quotas of Linux")
@pytest.mark.parametrize(
    ("hard", "soft", "used", "grace_end_s", "left"),
    [
        (0, 0, 5000, 0, sys.maxsize),
        (4, 0, 1000, 0, 3096),
        (4, 0, 5000, 0, 0),
        (0, 4, 5000, 2**40, sys.maxsize),
        (8, 4, 5000, 1, 0),
        (8, 4, 4000, 1, 4192),
    ],
)
def test_what_a_quota_leaves(hard: int, soft: int, used: int, grace_end_s: int, left: int) -> None:
    from acqstream.storage.platform.linux_files import bytes_left

    assert bytes_left(struct.pack("=8QI4x", hard, soft, used, 0, 0, 0, grace_end_s, 0, 0)) == left
