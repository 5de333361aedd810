"""Half-made folders of a daemon that died in `open`."""

from __future__ import annotations

from pathlib import Path

from acqstream.daemon.crashed_datasets import recover_all
from acqstream.formats.ndtiff.layout import INDEX_NAME
from acqstream.pipeline import journal


def half_made(folder: Path) -> Path:
    folder.mkdir()
    (folder / journal.JOURNAL_NAME).write_bytes(journal.encode_journal_header("0" * 32, clean=False))
    (folder / INDEX_NAME).write_bytes(b"")
    return folder


def test_a_folder_that_never_held_a_frame_gives_its_name_back(tmp_path: Path) -> None:
    folder = half_made(tmp_path / "cells")
    assert recover_all([folder]) == []
    assert not folder.exists()


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    for name, content in (("notes.txt", b"mine"), (journal.JOURNAL_NAME, b"\0" * (journal.HEADER_BYTES + 64))):
        folder = half_made(tmp_path / name)
        (folder / name).write_bytes(content)
        recover_all([folder])
        assert (folder / name).read_bytes() == content


def test_a_folder_of_another_program_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    recover_all([folder])
    assert folder.is_dir()
