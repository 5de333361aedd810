"""Positional reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acqstream.errors import DatasetError, StorageError
from acqstream.storage.files import read_file
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.platform import Files
from acqstream.storage.platform.posix_files import PosixFiles

posix = pytest.mark.skipif(os.name != "posix", reason="calls of POSIX systems")


@pytest.fixture(params=[Files, pytest.param(PosixFiles, marks=posix)])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadFile:
    monkeypatch.setattr(read_file, "FILES", request.param())
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    return ReadFile(path)


def test_reads_at_any_offset(file: ReadFile) -> None:
    assert file.read(10, 3) == b"\x0a\x0b\x0c"
    assert file.read(98, 10) == b"\x62\x63"
    assert file.read(100, 1) == file.read(5000, 2**40) == file.read(0, 0) == b""
    buffer = bytearray(4)
    assert file.read_into(98, memoryview(buffer)) == 2
    assert buffer == b"\x62\x63\0\0"


def test_sees_the_file_grow(file: ReadFile) -> None:
    assert file.read(100, 4) == b""
    with file.path.open("ab") as growing:
        growing.write(b"more")
    assert (file.size(), file.read(100, 4)) == (104, b"more")


def test_a_closed_file_fails_in_our_words(file: ReadFile) -> None:
    file.close()
    file.close()
    with pytest.raises(StorageError, match="get the size"):
        file.read(0, 1)
    with pytest.raises(StorageError, match="read at byte 7"):
        file.read_into(7, memoryview(bytearray(1)))


def test_only_regular_files_open(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        ReadFile(tmp_path / "missing")
    assert isinstance(caught.value, OSError)
    assert caught.value.filename == str(tmp_path / "missing")
    with pytest.raises((DatasetError, StorageError)):
        ReadFile(tmp_path)
