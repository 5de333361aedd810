from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.command import command

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


def copy(name: str, to: Path, *, age_s: float = 3600.0) -> Path:
    folder = shutil.copytree(GOLDEN / name / "data", to / "data")
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - age_s,) * 2)
    return folder


def run(*arguments: object) -> int:
    return command("repair", *arguments)


def test_a_lost_index_is_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy("lost_index", tmp_path)
    assert run(folder, "--dry-run") == 0
    assert not (folder / "NDTiff.index").exists()
    dry = capsys.readouterr().out
    assert "dry run: nothing was written" in dry
    assert "would be repaired" in dry
    assert run(folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "recovered  5 frames" in lines
    assert lines[-1] == "result     repaired"
    assert command("info", folder) == 0
    assert "frames  5" in capsys.readouterr().out


def test_lost_frames_end_with_3_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy("short_data", tmp_path)
    assert run(folder) == 3
    out = capsys.readouterr().out
    assert "lost       1\n           acq_NDTiffStack.tif at byte 3198: the frame at time=4 of the old index: " in out
    assert "after the end of the file" in out
    assert "backup     the old index is kept as NDTiff.index.before-repair" in out


def test_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(copy("java_pyramid_u16", tmp_path)) == 0
    out = capsys.readouterr().out
    assert out.endswith("result     nothing to do\n")
    assert out.count("level      ") == 4


def test_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy("py_negative_axes", tmp_path)
    (folder / "NDTiff.index").unlink()
    assert run(folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["recovered"], found["guessed"], found["lost"], found["nothing_to_do"]) == (8, 8, 0, False)
    (level,) = found["levels"]
    assert level["guessed"]["first"][0]["text"] == "image=0: no metadata tell its axes: counted"
    assert (level["changed"], level["backup"]) == (True, "")


def test_young_files_are_refused_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy("torn_index", tmp_path, age_s=1)
    assert run(folder) == 75
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--force" in err
    assert run(folder, "--force") == 0


@pytest.mark.parametrize(("name", "words"), [("", "neither NDTiff.index nor"), ("v1_0_uint16", "versions 0 and 1")])
def test_what_cannot_be_repaired_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert run(copy(name, tmp_path) if name else tmp_path) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
