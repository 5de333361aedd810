"""Replacing a file: the old content or the new, whatever fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from acqstream.errors import StorageError
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import LocalDisk
from tests.storage.scripted_disk import ANY, ScriptedDisk

OLD, NEW = b"old content", b"the new and longer content"
CALLS = ["unlink", "create", "pwritev", "fdatasync", "close", "replace", "sync_directory"]


def test_calls_are_in_the_only_right_order(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    replace_file(disk, str(tmp_path / "state"), NEW)
    assert [call.kind for call in disk.calls] == CALLS
    assert (tmp_path / "state").read_bytes() == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("nth", range(1, len(CALLS) + 1))
@pytest.mark.parametrize("exists", [True, False])
def test_a_failure_leaves_the_old_or_the_new(tmp_path: Path, nth: int, code: int, exists: bool) -> None:
    path = tmp_path / "state"
    if exists:
        path.write_bytes(OLD)
    disk = ScriptedDisk()
    disk.fail(ANY, nth, code, for_good=True)
    with pytest.raises(StorageError) as caught:
        replace_file(disk, str(path), NEW)
    assert (caught.value.errno, caught.value.filename) == (code, str(path))
    expected = NEW if CALLS[nth - 1] == "sync_directory" else OLD
    assert path.exists() == (exists or expected == NEW)
    if path.exists():
        assert path.read_bytes() == expected
    replace_file(LocalDisk(), str(path), NEW)  # what a failure left is no obstacle
    assert path.read_bytes() == NEW


def test_short_writes(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.shorten(3, 1, 10)
    replace_file(disk, str(tmp_path / "state"), NEW)
    assert (tmp_path / "state").read_bytes() == NEW
