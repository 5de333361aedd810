"""Disk calls, and writing all of something through calls that do less."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acqstream.storage.files.disk import Disk, LocalDisk, write_all
from acqstream.storage.platform import Files
from acqstream.storage.platform.posix_files import PosixFiles
from tests.host_system import allocated_bytes
from tests.storage.scripted_disk import ScriptedDisk

BLOCK = 4096
posix = pytest.mark.skipif(os.name != "posix", reason="calls of POSIX systems")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def parts(*lengths: int) -> list[bytes]:
    counter = itertools.count()
    return [bytes(next(counter) % 251 for _ in range(length)) for length in lengths]


@pytest.mark.parametrize("most", [(), (1,), (10,), (11, 1, 300), (40, 60), (99,)])
def test_short_writes_are_continued(path: str, most: tuple[int, ...]) -> None:
    disk = ScriptedDisk()
    disk.shorten(*most)
    fd = disk.open(path, create=True)
    buffers = parts(10, 0, 30, 60)
    assert write_all(disk, fd, [memoryview(buffer) for buffer in buffers], 7) == 107
    disk.close(fd)
    assert Path(path).read_bytes()[7:] == b"".join(buffers)
    assert len(disk.of("pwritev")) == len(most) + (sum(most) < 100)


@pytest.mark.parametrize("most", [(BLOCK,), (5000,), (100,), (4095, 8191), (2 * BLOCK + 1,)])
def test_a_continued_direct_write_starts_on_a_block(path: str, most: tuple[int, ...]) -> None:
    disk = ScriptedDisk()
    disk.shorten(*most)
    fd = disk.open(path, create=True)
    buffers = parts(2 * BLOCK, BLOCK, 3 * BLOCK)
    assert write_all(disk, fd, buffers, BLOCK, step=BLOCK) == 7 * BLOCK
    disk.close(fd)
    assert Path(path).read_bytes()[BLOCK:] == b"".join(buffers)
    assert all(call.offset % BLOCK == call.length % BLOCK == 0 for call in disk.of("pwritev"))


@pytest.mark.parametrize(("most", "step"), [((0,), 1), ((10, 0), 1), ((-1,), 1), ((100, 100), BLOCK)])
def test_a_disk_that_takes_nothing_is_an_error(path: str, most: tuple[int, ...], step: int) -> None:
    disk = ScriptedDisk()
    disk.shorten(*most)
    fd = disk.open(path, create=True)
    with pytest.raises(OSError, match="took no bytes"):
        write_all(disk, fd, [bytes(BLOCK)], 0, step=step)
    disk.close(fd)


def test_an_error_in_a_continued_write_comes_out(path: str) -> None:
    disk = ScriptedDisk()
    disk.shorten(10)
    disk.fail("pwritev", 2, errno.ENOSPC)
    fd = disk.open(path, create=True)
    with pytest.raises(OSError, match="No space left"):
        write_all(disk, fd, [bytes(100)], 0)
    disk.close(fd)


def test_more_buffers_than_one_call_takes(path: str) -> None:
    disk = LocalDisk()
    fd = disk.open(path, create=True)
    buffers = parts(*[3] * 3000)
    write_all(disk, fd, buffers, 0)
    assert disk.pread(fd, 10_000, 0) == b"".join(buffers)
    disk.close(fd)


def test_creating_never_takes_an_existing_file(path: str) -> None:
    disk = LocalDisk()
    disk.close(disk.open(path, create=True))
    with pytest.raises(FileExistsError):
        disk.open(path, create=True)
    disk.close(disk.open(path, create=False))
    with pytest.raises(FileNotFoundError):
        disk.open(path + "x", create=False)


def test_reserving_does_not_change_the_length(path: str) -> None:
    disk = LocalDisk()
    fd = disk.open(path, create=True)
    if not disk.reserve(fd, 0, 2**20):
        pytest.skip("this file system cannot reserve")
    assert disk.size(fd) == 0
    assert allocated_bytes(path) >= 2**20
    disk.truncate(fd, 0)
    assert allocated_bytes(path) == 0
    disk.close(fd)


def test_where_reserving_fails_for_want_of_space_it_says_so(path: str) -> None:
    disk = LocalDisk()
    fd = disk.open(path, create=True)
    try:
        with pytest.raises(OSError, match=r"No space left|File too large"):
            if not disk.reserve(fd, 0, 2**50):
                pytest.skip("this file system cannot reserve")
    finally:
        disk.truncate(fd, 0)
        disk.close(fd)


@pytest.mark.parametrize("kind", [Files, pytest.param(PosixFiles, marks=posix)])
def test_files_of_each_system_write_and_read_at_places(path: str, kind: Callable[[], Disk]) -> None:
    disk = kind()
    fd = disk.open(path, create=True)
    assert write_all(disk, fd, [b"abc", b"", b"defg"], 2) == 9
    disk.fdatasync(fd)
    assert disk.pread(fd, 100, 0) == b"\0\0abcdefg"
    disk.close(fd)


@posix
def test_a_link_to_a_folder_is_relative_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a").write_bytes(b"a")
    (tmp_path / "mirror").mkdir()
    disk, link = LocalDisk(), tmp_path / "mirror" / "link"
    disk.link_folder("../cells", str(link))
    assert (link / "a").read_bytes() == b"a"
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("cells", "mirror"):
        (tmp_path / name).rename(moved / name)
    assert (moved / "mirror" / "link" / "a").read_bytes() == b"a"
    with pytest.raises(FileExistsError):
        disk.link_folder("../other", str(moved / "mirror" / "link"))


def test_windows_makes_no_links() -> None:
    from acqstream.storage.platform.windows_files import WindowsFiles

    with pytest.raises(PermissionError, match="administrators only"):
        WindowsFiles().link_folder("../cells", "link")
