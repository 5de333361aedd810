"""File systems that cannot force names, or that keep reserved space which a cut should free."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from acqstream.integrity.changes import KEPT_SUFFIX
from acqstream.integrity.recover import recover
from acqstream.storage.files.disk import LocalDisk
from tests.faults.loop_disk import LoopDisk, why_not
from tests.host_system import allocated_bytes
from tests.log.crashed import crash
from tests.log.make_frames import MIB, frames_of, write_log
from tests.log.read_back import check_dataset, stack_paths
from tests.storage.scripted_disk import ScriptedDisk

LARGE = frames_of(8, (512, 1024))  # 8 MiB


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def disk_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    why = why_not(request.param)
    if why:
        pytest.skip(why)
    with ExitStack() as stack:
        yield stack.enter_context(LoopDisk(request.param, tmp_path / "image", tmp_path / "disk", 4096 * MIB)).place


@pytest.mark.promise("odd-file-systems")
@pytest.mark.parametrize("code", ["EINVAL", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EBADF"])
def test_names_that_cannot_be_forced_are_a_warning(tmp_path: Path, code: str) -> None:
    disk = ScriptedDisk()
    disk.fail("sync_directory", code=getattr(errno, code), for_good=True)
    log = write_log(tmp_path / "cells", frames_of(5), disk=disk)
    assert log.receipt is not None
    assert log.receipt.status == "completed"
    assert log.receipt.settings["names_forced"] is False
    assert [warning[0] for warning in log.notes.warnings] == ["names_unforced"]
    check_dataset(tmp_path / "cells", frames_of(5), complete=True)


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="this system forces no folder")
def test_the_disk_itself_may_answer_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_disk: object, _fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    assert write_log(tmp_path / "cells", frames_of(5)).receipt.settings["names_forced"] is True  # type: ignore[union-attr]
    monkeypatch.setattr(LocalDisk, "_force", refuse)
    log = write_log(tmp_path / "more", frames_of(5))
    assert [warning[0] for warning in log.notes.warnings] == ["names_unforced"]
    crash(tmp_path / "died", frames_of(5))
    assert recover(tmp_path / "died") is not None


def test_another_error_of_a_folder_ends_the_run(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.fail("sync_directory", code=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_log(tmp_path / "cells", frames_of(5), disk=disk)


@pytest.mark.promise("odd-file-systems")
def test_a_run_takes_the_space_of_its_files(disk_folder: Path) -> None:
    used = used_bytes(disk_folder)
    for number in range(4):
        write_log(disk_folder / f"cells{number}", LARGE)
    files = [path for path in disk_folder.rglob("*") if path.is_file()]
    assert used_bytes(disk_folder) - used <= 1.1 * sum(path.stat().st_size for path in files) + 2 * MIB


def test_a_stack_put_aside_takes_the_space_of_its_bytes(disk_folder: Path) -> None:
    folder = crash(disk_folder / "cells", frames_of(5, (320, 512)))
    stack = stack_paths(folder)[0]
    unpublished = stack.with_name("cells_NDTiffStack_1.tif")
    shutil.copy(stack, unpublished)
    content = stack.read_bytes()
    disk = LocalDisk()
    fd = disk.open(str(unpublished), create=False)
    step = min(disk.reserve_step(fd), 128 * MIB)
    assert not step or disk.reserve(fd, unpublished.stat().st_size, step)
    disk.close(fd)
    assert recover(folder) is not None
    aside = unpublished.with_name(unpublished.name + KEPT_SUFFIX)
    os.sync()
    assert aside.read_bytes() == content
    assert allocated_bytes(aside) <= aside.stat().st_size + MIB


def used_bytes(folder: Path) -> int:
    os.sync()
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
