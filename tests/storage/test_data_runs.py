"""Which parts of a file hold data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acqstream.errors import StorageError
from acqstream.storage.files.disk import DryDisk
from acqstream.storage.files.read_file import data_runs


def test_holes_lie_between_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        for start in (0, 2**20, 2**30):
            file.seek(start)
            file.write(b"x" * 5000)
        file.truncate(2**32)
    runs = data_runs(path)
    if len(runs) == 1:
        pytest.skip("no sparse files here")
    assert [start for start, _ in runs] == [0, 2**20, 2**30]
    assert all(5000 <= end - start <= 2**17 for start, end in runs)


def test_files_without_holes_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert data_runs(path) == [(0, 10)]
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    os.truncate(path, 2**20)
    assert data_runs(path) == [(0, 2**20)]
    os.truncate(path, 0)
    assert data_runs(path) == []
    with pytest.raises(StorageError, match="holes"):
        data_runs(tmp_path / "absent")


def test_a_dry_disk_reads_and_changes_nothing(tmp_path: Path) -> None:
    path, disk = tmp_path / "file", DryDisk()
    path.write_bytes(b"content")
    before = path.stat()
    fd = disk.open(str(path), create=False)
    assert disk.pwritev(fd, [b"other", b"s"], 0) == 6
    assert not disk.reserve(fd, 0, 100)
    disk.truncate(fd, 0)
    disk.fdatasync(fd)
    assert disk.pread(fd, 7, 0) == b"content"
    disk.close(fd)
    new = disk.open(str(tmp_path / "new"), create=True)
    assert disk.pwritev(new, [b"more"], 0) == 4
    disk.close(new)
    disk.replace(str(tmp_path / "new"), str(path))
    disk.unlink(str(path))
    disk.mkdir(str(tmp_path / "folder"))
    disk.sync_directory(str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (b"content", before.st_mtime_ns)
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "absent"), create=False)
