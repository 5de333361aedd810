"""`ds.notes` and `acqstream info` of folders whose notes are torn, damaged, or a link."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.model.run_note import RunNote
from tests.command import command
from tests.host_system import make_link
from tests.log.make_frames import frame_of, write_log

NOTE = RunNote("drug added", 1_790_000_000_000_000_000, 1, id="id-1")


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", [frame_of(0), frame_of(1)])
    return tmp_path / "cells"


def info(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert command("info", path) == 0
    return capsys.readouterr().out


def test_a_torn_note_is_left_out_and_logged(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    (cells / NOTES_NAME).write_bytes(NOTE.line() + NOTE.line()[:20])
    with acqstream.open(cells) as dataset, caplog.at_level(logging.WARNING):
        assert dataset.notes == (NOTE,)
    assert "the last note is torn" in caplog.text


def test_damaged_notes_cost_the_notes_alone(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cells / NOTES_NAME).write_bytes(b"rubbish\n" + NOTE.line())
    with acqstream.open(cells) as dataset:
        with pytest.raises(CorruptDataset, match="line 1 is not a note"):
            _ = dataset.notes
        assert len(list(dataset.keys())) == 2
    shown = info(cells, capsys)
    assert "notes   cannot be read" in shown
    assert "frames  2" in shown


def test_a_link_out_of_the_dataset_is_not_followed(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = cells.parent / "elsewhere"
    elsewhere.write_bytes(NOTE.line())
    make_link(cells / NOTES_NAME, elsewhere)
    with acqstream.open(cells) as dataset, pytest.raises(UnsupportedFeature, match="link"):
        _ = dataset.notes
    assert "drug added" not in info(cells, capsys)
    with acqstream.open(cells, follow_links=True) as dataset:
        assert dataset.notes == (NOTE,)


def test_of_many_notes_info_shows_the_last(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = [RunNote(f"note {number}", 10**18, None, id=f"id-{number}") for number in range(25)]
    (cells / NOTES_NAME).write_bytes(b"".join(one.line() for one in notes))
    shown = info(cells, capsys)
    assert "notes   25, the last 20; --json has all" in shown
    assert "note 4\n" not in shown
    assert "after the run (run): note 5\n" in shown
    assert "note 24\n" in shown


def test_the_only_copy_that_is_moved_has_its_notes(cells: Path) -> None:
    (cells / NOTES_NAME).write_bytes(NOTE.line())
    moved = cells.rename(cells.with_name("Zellen 細胞"))
    with acqstream.open(moved) as dataset:
        assert dataset.notes == (NOTE,)
