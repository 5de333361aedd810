from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import command

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


def test_facts_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("info", GOLDEN / "py_string_axes" / "data") == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if "axis" not in line)
    assert lines["format"] == "ndtiff"
    assert lines["state"] == "complete"
    assert lines["frames"] == "12"
    assert lines["shape"] == "position 2, time 2, channel 3, y 16, x 18"
    assert lines["first"] == "position=A1-Site_0, channel=DAPI, time=0"


def test_facts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    command("info", "--json", GOLDEN / "java_pyramid_rgb_odd" / "data")
    found = json.loads(capsys.readouterr().out)
    assert (found["shape"], found["array_axes"]) == ([57, 84, 3], ["y", "x", "c"])
    assert found["level_shapes"] == [[57, 84, 3], [38, 63, 3], [19, 42, 3]]
    assert (found["missing"], found["first_missing"][0]) == (6, {"row": 0, "column": 2})
    assert found["levels"] == 3
    assert found["complete"] is True
    assert found["frames"] == 6
    assert found["last"] == {"column": 2, "row": 2}
    assert found["size_bytes"] > 6 * 19 * 21 * 3
    assert found["summary_metadata"]["PixelSizeUm"] == 0.65


@pytest.mark.parametrize(
    ("state", "text"), [("FAILED", "ended: FAILED"), ("RUNNING", "running"), ("COMPLETE", "complete")]
)
def test_says_how_the_daemon_left_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, text: str) -> None:
    shutil.copytree(GOLDEN / "py_uint16" / "data", tmp_path / "cells")
    (tmp_path / "cells" / "acqstream.json").write_text(json.dumps({"format": "acqstream", "state": state}))
    command("info", tmp_path / "cells")
    assert f"state   {text}" in capsys.readouterr().out


def test_a_file_inside_or_the_folder_above_counts_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = []
    data = GOLDEN / "java_pyramid_u16" / "data"
    for path in (data, data / "display_settings.txt", data / "Full resolution", data.parent):
        command("info", "--json", path)
        sizes.append(json.loads(capsys.readouterr().out)["size_bytes"])
    assert len(set(sizes)) == 1


def test_nothing_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("info", tmp_path / "absent") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "absent" in err


def test_missing_frames_are_counted_and_the_first_few_named(capsys: pytest.CaptureFixture[str]) -> None:
    command("info", GOLDEN / "java_pyramid_u16" / "data")
    lines = capsys.readouterr().out.splitlines()
    assert "levels  4: 128 x 160, 96 x 96, 64 x 64, 64 x 64" in lines
    assert lines[-1].startswith("missing 31: channel=A, row=-1, column=1; ")
    assert lines[-1].endswith(", ...")


def test_frames_in_a_lower_level_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "cells")
    (tmp_path / "cells" / "Full resolution" / "NDTiff.index").write_bytes(b"")
    assert command("info", tmp_path / "cells") == 0
    assert "frames  0" in capsys.readouterr().out
