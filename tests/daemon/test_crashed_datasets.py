"""Half-made folders of a daemon that died in `open`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from acqstream.daemon.crash_recovery import growing_datasets, recover_all
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from tests.log.crashed import crash
from tests.log.make_frames import frames_of


def half_made(folder: Path, stack_folder: str = ".") -> Path:
    folder.mkdir()
    (folder / journal.JOURNAL_NAME).write_bytes(journal.encode_journal_header("0" * 32, clean=False))
    (folder / stack_folder).mkdir(exist_ok=True)
    (folder / stack_folder / INDEX_NAME).write_bytes(b"")
    return folder


@pytest.mark.parametrize("stack_folder", [".", FULL_RESOLUTION])
def test_a_folder_that_never_held_a_frame_gives_its_name_back(tmp_path: Path, stack_folder: str) -> None:
    folder = half_made(tmp_path / "cells", stack_folder)
    assert recover_all([folder]) == []
    assert not folder.exists()


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    for name, content in (("notes.txt", b"mine"), (journal.JOURNAL_NAME, b"\0" * (journal.HEADER_BYTES + 64))):
        folder = half_made(tmp_path / name)
        (folder / name).write_bytes(content)
        recover_all([folder])
        assert (folder / name).read_bytes() == content


def test_a_tiled_folder_with_a_stack_file_is_left_alone(tmp_path: Path) -> None:
    folder = half_made(tmp_path / "cells", FULL_RESOLUTION)
    stack = folder / FULL_RESOLUTION / "cells_NDTiffStack.tif"
    stack.write_bytes(b"mine")
    recover_all([folder])
    assert stack.read_bytes() == b"mine"


def test_a_folder_of_another_program_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    recover_all([folder])
    assert folder.is_dir()


def test_a_dataset_that_still_grows_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = crash(tmp_path / "cells", frames_of(3))
    assert growing_datasets([folder]) == set()
    ended = threading.Event()

    def grow() -> None:
        while not ended.wait(0.1):
            with (folder / "NDTiff.index").open("ab") as file:
                file.write(b"x")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert growing_datasets([folder, tmp_path]) == {folder}
    finally:
        ended.set()
        thread.join()
    assert "another program still writes it" in caplog.text
