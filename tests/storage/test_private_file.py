"""Files with secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from acqstream.storage.files import atomic_file
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.platform import FILES

POSIX = pytest.mark.skipif(not hasattr(os, "getuid"), reason="access lists are not modes")


@POSIX
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_only_the_owner_reads_it_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "secret"
    before = os.umask(mask)
    try:
        write_private(path, b"abc")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@POSIX
def test_what_was_there_is_replaced_and_never_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "secret", tmp_path / "other"
    other.write_bytes(b"keep")
    path.symlink_to(other)
    write_private(path, b"abc")
    assert (path.read_bytes(), other.read_bytes(), path.is_symlink()) == (b"abc", b"keep", False)
    path.chmod(0o666)
    write_private(path, b"def")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"def", 0o600)


def test_a_folder_of_this_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    with pytest.raises(OSError, match="secret"):
        write_private(tmp_path / "secret", b"abc")


def test_an_old_file_is_removed_as_our_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Path.unlink` fails on Windows while a scanner has the file open, and the daemon would not start."""
    path = tmp_path / "key"
    path.write_bytes(b"old")
    removed: list[str] = []

    def remove(name: str) -> None:
        removed.append(name)
        os.unlink(name)

    monkeypatch.setattr(FILES, "unlink", remove)
    write_private(path, b"new")
    assert removed == [str(path)]
    assert path.read_bytes() == b"new"


@POSIX
def test_what_a_stranger_puts_in_its_place_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of others, between the creation and the content."""
    path, other = tmp_path / "secret", tmp_path / "other"
    other.write_bytes(b"keep")

    def create(name: Path) -> None:
        name.symlink_to(other)

    monkeypatch.setattr(atomic_file, "create_private", create)
    with pytest.raises(OSError, match="link"):
        write_private(path, b"abc")
    assert other.read_bytes() == b"keep"
