"""The calls of fcntl(2) that macOS is given: commands, arguments, fall-backs. Nobody has run them there."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acqstream.storage.platform.macos_files import MacFiles

fcntl = pytest.importorskip("fcntl", reason="calls of POSIX systems")
FULL_SYNC, NO_CACHE, PREALLOCATE, GET_PATH = 51, 48, 42, 50


class Kernel:
    """Stands in for fcntl(2) of macOS."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []
        self.errors: dict[int, list[int]] = {}  # command -> errno of its next calls, 0 for none

    def fcntl(self, _fd: int, command: int, argument: Any = 0) -> Any:
        self.calls.append((command, argument))
        code = next(iter(self.errors.get(command, [])), 0)
        if self.errors.get(command):
            self.errors[command].pop(0)
        if code:
            raise OSError(code, os.strerror(code))
        return b"/Volumes/data/file" + bytes(1000) if command == GET_PATH else 0


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(fcntl, "fcntl", kernel.fcntl)
    return kernel


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_forcing_reaches_the_drive(kernel: Kernel, fd: int, tmp_path: Path) -> None:
    MacFiles().fdatasync(fd)
    MacFiles().sync_directory(str(tmp_path))
    assert [command for command, _ in kernel.calls] == [FULL_SYNC, FULL_SYNC]


def test_a_file_system_without_it_is_forced_as_elsewhere(
    kernel: Kernel, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    kernel.errors[FULL_SYNC] = [errno.ENOTSUP, errno.EIO]
    MacFiles().fdatasync(fd)
    assert forced == [fd]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):  # never hidden by a second call that succeeds
        MacFiles().fdatasync(fd)
    assert forced == [fd]


def test_direct_io_keeps_the_page_cache_out(kernel: Kernel, tmp_path: Path) -> None:
    files = MacFiles()
    for fd in (
        files.open(str(tmp_path / "file"), create=True, direct=True),
        files.open_for_reading(str(tmp_path / "file"), direct=True),
        files.open(str(tmp_path / "file"), create=False),
    ):
        files.close(fd)
    assert kernel.calls == [(NO_CACHE, 1), (NO_CACHE, 1)]
    kernel.errors[NO_CACHE] = [errno.ENOTSUP]
    with pytest.raises(OSError, match="no direct I/O") as caught:
        files.open(str(tmp_path / "file"), create=False, direct=True)
    assert caught.value.errno == errno.EINVAL


def test_space_is_reserved_beyond_the_blocks_of_the_file(kernel: Kernel, fd: int) -> None:
    os.pwrite(fd, bytes(8192), 0)
    os.fsync(fd)
    present = os.fstat(fd).st_blocks * 512
    assert MacFiles().reserve(fd, 4096, 2**20)
    flags, mode, offset, length, _ = struct.unpack("@Iiqqq", kernel.calls[0][1])
    assert (kernel.calls[0][0], flags, mode, offset, length) == (PREALLOCATE, 6, 3, 0, 4096 + 2**20 - present)
    kernel.calls.clear()
    assert MacFiles().reserve(fd, 0, 0)
    assert not kernel.calls


def test_space_in_several_pieces_will_do(kernel: Kernel, fd: int) -> None:
    kernel.errors[PREALLOCATE] = [errno.ENOSPC]
    assert MacFiles().reserve(fd, 0, 2**20)
    assert [struct.unpack("@Iiqqq", argument)[0] for _, argument in kernel.calls] == [6, 4]
    kernel.errors[PREALLOCATE] = [errno.ENOSPC, errno.ENOSPC]
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        MacFiles().reserve(fd, 0, 2**20)
    kernel.errors[PREALLOCATE] = [errno.ENOTSUP]
    assert not MacFiles().reserve(fd, 0, 2**20)


def test_the_real_place_is_that_of_the_open_file(kernel: Kernel, fd: int, tmp_path: Path) -> None:
    assert MacFiles().real_path(fd, str(tmp_path / "other")) == "/Volumes/data/file"
    kernel.errors[GET_PATH] = [errno.ENOENT]
    assert MacFiles().real_path(fd, str(tmp_path / "other")) == os.path.realpath(tmp_path / "other")
