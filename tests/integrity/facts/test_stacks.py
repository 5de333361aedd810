"""Checksums of stored bytes: none for bytes that the file does not have, even where it is cut during the reading."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash

from acqstream.integrity.facts import stored_checksum
from acqstream.storage.files.read_file import ReadFile


def test_only_bytes_of_the_file_have_a_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stack.tif"
    path.write_bytes(bytes(range(100)))
    file = ReadFile(path)
    try:
        assert stored_checksum(file, 10, 90) == xxhash.xxh3_64_intdigest(bytes(range(10, 100)))
        monkeypatch.setattr(ReadFile, "size", lambda _file: 101)  # cut after its size was read
        assert stored_checksum(file, 10, 91) is None
    finally:
        file.close()


def test_a_length_beyond_the_end_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stack.tif"
    path.write_bytes(bytes(100))
    file = ReadFile(path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ReadFile, "read", lambda *_: pytest.fail("read"))
            assert stored_checksum(file, 0, 2**60) is None
    finally:
        file.close()
