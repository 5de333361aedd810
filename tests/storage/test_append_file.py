"""A file of whole entries: never a torn one, whatever fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from acqstream.errors import DatasetLocked, DiskFull, StorageError
from acqstream.storage.files.append_file import AppendFile
from tests.storage.scripted_disk import ScriptedDisk


def test_entries_follow_one_another(tmp_path: Path) -> None:
    file = AppendFile(ScriptedDisk(), str(tmp_path / "index"), create=True)
    file.append(b"one")
    file.append([b"two", b"", b"three"])
    file.append(b"")
    assert (tmp_path / "index").read_bytes() == b"onetwothree"
    assert file.end == 11
    file.rewrite(0, b"ONE")
    file.cut(6)
    file.append(b"!")
    file.sync()
    file.close()
    assert (tmp_path / "index").read_bytes() == b"ONEtwo!"


@pytest.mark.parametrize("most", [1, 4, 6])
@pytest.mark.parametrize(("code", "error"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFull)])
def test_a_failed_append_is_cut_off(tmp_path: Path, most: int, code: int, error: type[StorageError]) -> None:
    disk = ScriptedDisk()
    file = AppendFile(disk, str(tmp_path / "index"), create=True)
    file.append(b"good")
    disk.shorten(most)
    disk.fail("pwritev", 2, code)
    with pytest.raises(error) as caught:
        file.append([b"torn", b"entry"])
    assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / "index"))
    assert (tmp_path / "index").read_bytes() == b"good"
    file.append(b"next")
    file.close()
    assert (tmp_path / "index").read_bytes() == b"goodnext"


def test_an_end_that_cannot_be_cut_off_is_told_and_overwritten(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    file = AppendFile(disk, str(tmp_path / "index"), create=True)
    disk.shorten(2)
    disk.fail("pwritev", 2)
    disk.fail("truncate")
    with pytest.raises(StorageError) as caught:
        file.append(b"torn")
    assert caught.value.__cause__ is not None
    assert "cannot cut off" in caught.value.__cause__.__notes__[0]
    file.append(b"whole")
    file.close()
    assert (tmp_path / "index").read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("fdatasync", lambda file: file.sync()),
        ("truncate", lambda file: file.cut(0)),
        ("pwritev", lambda file: file.rewrite(0, b"a")),
    ],
)
def test_errors_name_the_file(tmp_path: Path, kind: str, action) -> None:
    disk = ScriptedDisk()
    file = AppendFile(disk, str(tmp_path / "index"), create=True)
    disk.fail(kind)
    with pytest.raises(StorageError) as caught:
        action(file)
    assert caught.value.filename == str(tmp_path / "index")
    file.close()


def test_a_missing_or_existing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        AppendFile(ScriptedDisk(), str(tmp_path / "index"), create=False)
    (tmp_path / "index").touch()
    with pytest.raises(StorageError):
        AppendFile(ScriptedDisk(), str(tmp_path / "index"), create=True)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first = AppendFile(ScriptedDisk(), str(tmp_path / "index"), create=True)
    first.lock()
    second = AppendFile(ScriptedDisk(), str(tmp_path / "index"), create=False)
    with pytest.raises(DatasetLocked):
        second.lock()
    first.close()
    second.lock()
    second.close()
