"""Calls that stand still are seen while they do, and told when they return; errors and results pass through."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from acqstream.storage.files.disk import SlowCall, WatchedDisk
from tests.storage.scripted_disk import ScriptedDisk


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> list[SlowCall]:
    monkeypatch.setattr("acqstream.storage.files.disk.STALL_S", 0.1)
    return []


def test_all_calls_do_what_they_did(tmp_path: Path, stalls: list[SlowCall]) -> None:
    disk = WatchedDisk(ScriptedDisk(), stalls.append)
    folder, path = str(tmp_path / "d"), str(tmp_path / "d" / "a")
    disk.mkdir(folder)
    fd = disk.open(path, create=True)
    assert disk.pwritev(fd, [b"abc", b"def"], 2) == 6
    assert disk.pread(fd, 3, 2) == b"abc"
    assert disk.size(fd) == 8
    disk.reserve(fd, 0, 4096)
    disk.truncate(fd, 4)
    disk.fdatasync(fd)
    disk.close(fd)
    disk.replace(path, path + ".b")
    disk.sync_directory(folder)
    assert Path(path + ".b").read_bytes() == b"\0\0ab"
    disk.unlink(path + ".b")
    assert disk.free_bytes(folder) > 0
    if sys.platform == "win32":  # where users make no links
        with pytest.raises(PermissionError):
            disk.link_folder("..", path)
    else:
        disk.link_folder("..", path)
        assert Path(path).resolve() == tmp_path
        disk.unlink(path)
    assert os.listdir(folder) == []
    assert disk.stalled_call() is None
    assert all(stall.seconds >= 0.1 for stall in stalls)


def test_a_call_that_stands_still(tmp_path: Path, stalls: list[SlowCall]) -> None:
    scripted = ScriptedDisk()
    disk = WatchedDisk(scripted, stalls.append)
    fd = disk.open(str(tmp_path / "a"), create=True)
    stall = scripted.stall("fdatasync")
    thread = threading.Thread(target=disk.fdatasync, args=(fd,))
    thread.start()
    assert stall.entered.wait(20)
    while (seen := disk.stalled_call()) is None:
        assert thread.is_alive()
    assert (seen.call, seen.file) == ("fdatasync", "a")
    assert seen.seconds >= 0.1
    stall.go.set()
    thread.join(20)
    assert disk.stalled_call() is None
    (told,) = [one for one in stalls if one.call == "fdatasync"]
    assert told.seconds >= seen.seconds
    disk.close(fd)


def test_a_call_that_fails_is_not_running_any_more(tmp_path: Path, stalls: list[SlowCall]) -> None:
    scripted = ScriptedDisk()
    disk = WatchedDisk(scripted, stalls.append)
    fd = disk.open(str(tmp_path / "a"), create=True)
    scripted.fail("fdatasync", code=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fdatasync(fd)
    assert disk._running == {}
    disk.close(fd)
