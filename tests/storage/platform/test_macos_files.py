"""The call of fcntl(2) that macOS is given, and its fall-back. Nobody has run them there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acqstream.storage.platform.posix_files import MacFiles

fcntl = pytest.importorskip("fcntl", reason="calls of POSIX systems")
FULL_SYNC = 51


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
        return 0


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
