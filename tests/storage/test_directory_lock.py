"""One writer per data directory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acqstream.errors import DatasetLocked, DiskFull, StorageError
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock, LockHolder, holder_of, is_locked
from acqstream.storage.platform import FILES

HOLD = """
import sys
from acqstream.storage.files.directory_lock import DirectoryLock
with DirectoryLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
ASK = """
import sys
from acqstream.errors import DatasetLocked
from acqstream.storage.files.directory_lock import DirectoryLock
try:
    DirectoryLock(sys.argv[1])
except DatasetLocked as error:
    print(error)
"""


def test_another_process_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    with DirectoryLock(str(tmp_path)):
        asked = subprocess.run([sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"{tmp_path} is in use by acqstream pid {os.getpid()} on" in asked.stdout


def test_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DatasetLocked, match=f"pid {holder.pid} "):
            DirectoryLock(str(tmp_path))
        holder.kill()
        holder.wait()
    with DirectoryLock(str(tmp_path)):
        assert f"pid {os.getpid()} " in (tmp_path / LOCK_NAME).read_text()


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    first = DirectoryLock(str(tmp_path))
    with pytest.raises(DatasetLocked):
        DirectoryLock(str(tmp_path))
    first.close()
    DirectoryLock(str(tmp_path)).close()


def test_a_missing_directory_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        DirectoryLock(str(tmp_path / "missing"))


def test_where_its_holder_cannot_be_noted_nobody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_fd: int, _content: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DiskFull, match="No space left"):
        patch.setattr(FILES, "pwritev", no_space)
        DirectoryLock(str(tmp_path))
    DirectoryLock(str(tmp_path)).close()  # there is space again


def test_a_held_file_is_seen_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / LOCK_NAME
    with DirectoryLock(str(tmp_path)):
        assert is_locked(str(path))
    assert not is_locked(str(path))
    DirectoryLock(str(tmp_path)).close()  # asking left no lock behind
    with pytest.raises(FileNotFoundError):
        is_locked(str(tmp_path / "absent"))


def test_whoever_asks_does_not_keep_a_holder_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_locked` has the lock for an instant, and the holder happens to come just then."""
    answers = iter([False, False, True])
    monkeypatch.setattr(FILES, "try_lock", lambda _: next(answers))
    DirectoryLock(str(tmp_path)).close()
    assert next(answers, None) is None


def test_the_holder_and_its_note_are_read_while_it_holds_the_lock(tmp_path: Path) -> None:
    assert holder_of(str(tmp_path)) is None  # without a file
    with DirectoryLock(str(tmp_path)) as lock:
        holder = holder_of(str(tmp_path))
        assert holder is not None
        assert holder.name.startswith(f"acqstream pid {os.getpid()} on ")
        assert holder.note == ""
        with (tmp_path / LOCK_NAME).open("ab") as file:
            file.write(b"half a no")
        assert holder_of(str(tmp_path)) == LockHolder(holder.name)
        lock.write_note("a note, longer than what was there")
        assert holder_of(str(tmp_path)) == LockHolder(holder.name, "a note, longer than what was there")
        with pytest.raises(DatasetLocked) as refused:
            DirectoryLock(str(tmp_path))
        assert f"in use by {holder.name};" in str(refused.value)
    assert holder_of(str(tmp_path)) is None  # its text is still in the file
    with DirectoryLock(str(tmp_path)):
        assert holder_of(str(tmp_path)) == LockHolder(holder.name)  # nothing is left of the last holder's note


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_a_lock_file_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).touch(mode=0o644)  # of an earlier version
    with DirectoryLock(str(tmp_path)):
        assert (tmp_path / LOCK_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_a_disk_without_modes_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """exFAT, as on USB disks: all files have one mode, and no call changes it."""

    def refuse(_fd: int, _mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / LOCK_NAME).touch(mode=0o644)
    monkeypatch.setattr(os, "fchmod", refuse)
    with DirectoryLock(str(tmp_path)) as lock:
        lock.write_note("here")
        lock.refresh()
