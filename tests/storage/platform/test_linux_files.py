"""What Linux has beyond other POSIX systems: forcing without the times of a file, and direct I/O."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from acqstream.storage.platform.linux_files import LinuxFiles
from acqstream.storage.platform.posix_files import PosixFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")


def test_data_are_forced_and_folders_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append(("fdatasync", fd)))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("fsync", os.fstat(fd).st_ino)))
    LinuxFiles().fdatasync(7)
    LinuxFiles().sync_directory(str(tmp_path))
    assert calls == [("fdatasync", 7), ("fsync", tmp_path.stat().st_ino)]


def test_a_system_without_direct_io_refuses_it_as_a_file_system_does(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    for opening in (
        lambda: PosixFiles().open(path, create=True, direct=True),
        lambda: PosixFiles().open_for_reading(path, direct=True),
    ):
        with pytest.raises(OSError, match="no direct I/O") as caught:
            opening()
        assert caught.value.errno == errno.EINVAL


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    files = LinuxFiles()
    fd = files.open_for_reading(str(tmp_path / "pipe"))
    assert not files.status(fd).is_regular
    files.close(fd)


def test_the_real_place_of_an_open_file_follows_its_name(tmp_path: Path) -> None:
    files = LinuxFiles()
    fd = files.open(str(tmp_path / "file"), create=True)
    files.replace(str(tmp_path / "file"), str(tmp_path / "new"))
    assert files.real_path(fd, str(tmp_path / "file")) == os.path.realpath(tmp_path / "new")
    files.close(fd)
