"""A file that a library writes appears complete, or not at all."""

from __future__ import annotations

import errno
import gc
import io
import weakref
from pathlib import Path

import pytest

from acqstream.errors import DatasetError, DatasetExists, DiskFull, StorageError
from acqstream.storage.files.new_file import new_file
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk


def test_an_error_of_the_disk_keeps_no_file_alive(tmp_path: Path) -> None:
    """Nor the buffers of a library that writes it: Python 3.14 warns when they go together, as rubbish."""
    disk, files = ScriptedDisk(UnforcedDisk()), []

    def write() -> None:
        with new_file(disk, tmp_path / "cells.h5") as file:
            files.append(weakref.ref(file))
            file.write(b"0123456789")

    disk.fail("pwritev", 1, errno.ENOSPC)
    gc.disable()
    try:
        with pytest.raises(DiskFull):
            write()
        assert files[0]() is None
    finally:
        gc.enable()


def test_the_name_appears_when_the_file_is_complete(tmp_path: Path) -> None:
    disk, path = ScriptedDisk(), tmp_path / "cells.h5"
    with new_file(disk, path) as file:
        assert file.write(b"0123456789") == 10
        assert not path.exists()
        assert len(list(tmp_path.iterdir())) == 1
    assert path.read_bytes() == b"0123456789"
    assert [entry.name for entry in tmp_path.iterdir()] == ["cells.h5"]
    kinds = [call.kind for call in disk.calls]
    assert kinds.index("fdatasync") < kinds.index("replace") < kinds.index("sync_directory")


def test_it_is_read_and_written_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5"
    with new_file(UnforcedDisk(), path) as file:
        assert file.readable()
        assert file.writable()
        assert file.seekable()
        file.write(b"abcdef")
        assert file.seek(-4, io.SEEK_END) == 2
        assert file.read(2) == b"cd"
        assert file.seek(-3, io.SEEK_CUR) == 1
        file.write(b"X")
        assert file.tell() == 2
        assert file.seek(8) == 8
        file.write(b"ij")
        assert file.truncate(9) == 9
        with pytest.raises(ValueError, match="position -1 lies before"):
            file.seek(-1)
    assert path.read_bytes() == b"aXcdef\0\0i"


def test_an_existing_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5"
    path.write_bytes(b"old")
    with pytest.raises(DatasetExists, match="already exists"), new_file(UnforcedDisk(), path):
        pass
    with new_file(UnforcedDisk(), path, is_replaced=True) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_a_name_that_is_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5"
    with pytest.raises(DatasetExists), new_file(UnforcedDisk(), path) as file:
        file.write(b"ours")
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["cells.h5"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is a folder"), new_file(UnforcedDisk(), tmp_path, is_replaced=True):
        pass


@pytest.mark.parametrize("kind", ["create", "pwritev", "fdatasync", "replace"])
def test_a_failed_call_leaves_nothing(tmp_path: Path, kind: str) -> None:
    disk, path = ScriptedDisk(), tmp_path / "cells.h5"
    disk.fail(kind, code=errno.ENOSPC)
    with pytest.raises(DiskFull, match=r"cells\.h5"), new_file(disk, path) as file:
        file.write(b"content")
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_the_library_keeps_to_itself_is_raised(tmp_path: Path) -> None:
    disk, path = ScriptedDisk(), tmp_path / "cells.h5"
    disk.fail("pwritev", code=errno.EIO)
    with pytest.raises(StorageError) as raised, new_file(disk, path) as file:
        try:
            file.write(b"content")
        except OSError:
            pass  # as a library may do
    assert raised.value.errno == errno.EIO
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_another_kind_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(UnforcedDisk(), tmp_path / "cells.h5") as file:
        file.write(b"content")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_the_space_is_not_filled(tmp_path: Path) -> None:
    free_bytes = UnforcedDisk().free_bytes(str(tmp_path))
    with pytest.raises(DiskFull, match=r"it needs [0-9,]+ bytes, and [0-9,]+ are free"):
        with new_file(UnforcedDisk(), tmp_path / "cells.h5", min_bytes=2 * free_bytes):
            pytest.fail("the file was opened")
    assert list(tmp_path.iterdir()) == []
