"""Files of another run, copies, and what a Mac leaves: named, left alone, and no problem."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acqstream.integrity.repair import repair
from acqstream.integrity.verify import verify
from tests.integrity.repair.damaged_sets import contents
from tests.log.make_frames import frames_of, write_log

NAMES = [
    "other_NDTiffStack.tif",
    "cells_NDTiffStack - Copy.tif",
    "Copy of cells_NDTiffStack.tif",
    "._cells_NDTiffStack.tif",
]


@pytest.mark.parametrize("name", [*NAMES, "cells_NDTiffStack_7.tif", ".DS_Store", "Thumbs.db", "desktop.ini"])
def test_what_is_no_part_of_a_dataset_is_left_alone(tmp_path: Path, name: str) -> None:
    folder, other = tmp_path / "cells", tmp_path / "other"
    write_log(folder, frames_of(4))
    write_log(other, frames_of(6, (8, 9)))
    shutil.copy(next(other.glob("*NDTiffStack.tif")), folder / name)
    before = contents(folder)
    report = repair(folder)
    assert report.is_whole
    assert contents(folder) == before
    is_stack = name.endswith(".tif") and not name.startswith("._")
    assert any(name in note and "left alone" in note for note in report.levels[0].notes) == is_stack
    found = verify(folder)
    if name != "cells_NDTiffStack_7.tif":  # which has the name of a lost stack file
        assert found.ok
        assert any(name in note for note in found.notes)
