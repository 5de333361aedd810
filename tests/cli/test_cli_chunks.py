"""`info` and `verify` of datasets of arrays."""

from __future__ import annotations

import json

import pytest

from acqstream.cli.output import ExitCode
from tests.command import answer_of
from tests.formats.n5.n5_samples import GOLDEN, samples, write_pyramid


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "a.n5"
    array = samples((2, 5, 20, 30), "uint16")
    space = {"scale": (1, 0.5, 0.1, 0.1), "units": ("", "um", "um", "um"), "labels": {"channel": ("DAPI", "GFP")}}
    write_pyramid(path, array, ("channel", "z", "y", "x"), levels=2, blocks=[4, 8, 16], attributes={"n": 1}, **space)
    return path


def test_info_of_arrays(folder, capsys):
    (folder / "setup0" / "timepoint0" / "s0" / "0" / "0" / "0").unlink()
    code, out, _ = answer_of(capsys, "info", folder)
    assert code == 0
    lines = out.splitlines()
    assert lines[:9] == [
        f"path    {folder}",
        "format  n5",
        "state   complete",
        "shape   channel 2, z 5, y 20, x 30",
        "dtype   uint16",
        "axis    channel: DAPI, GFP",
        "scale   z 0.5 um, y 0.1 um, x 0.1 um",
        "level 0 2 x 5 x 20 x 30, 24 chunks of 1 x 4 x 8 x 16, 1 missing",
        "level 1 2 x 5 x 10 x 15, 8 chunks of 1 x 4 x 8 x 16",
    ]


def test_info_of_arrays_as_json(folder, capsys):
    code, out, _ = answer_of(capsys, "info", "--json", folder)
    found = json.loads(out)
    assert (code, found["shape"], found["complete"], found["summary_metadata"]) == (0, [2, 5, 20, 30], True, {"n": 1})
    assert found["levels"][1]["factors"] == [1, 1, 2, 2]


def test_verify_of_arrays(folder, capsys):
    code, out, _ = answer_of(capsys, "verify", folder / "setup0")
    assert code == 0
    assert out.startswith(f"{folder}: all is well; 32 chunks in 4 arrays, 0 missing, ")
    assert "proved\n  32 chunks and 9 documents are as they were stored (XXH3-64)" in out


def test_verify_tells_damaged_chunks(folder, capsys):
    path = folder / "setup1" / "timepoint0" / "s0" / "0" / "1" / "0"
    path.write_bytes(path.read_bytes()[:-1])
    code, out, _ = answer_of(capsys, "verify", folder)
    assert code == ExitCode.INCOMPLETE
    assert f"{folder}: 2 problems; " in out  # it cannot be decoded, and it is not what was stored
    assert "chunk 1, 0, 1, 0 of level 0 (channel 1, z 0 to 3) has been cut" in out
    assert f"{path.relative_to(folder)} at byte 16: blosc: the chunk has" in out
    code, out, _ = answer_of(capsys, "verify", "--json", folder)
    assert (code, json.loads(out)["ok"]) == (ExitCode.INCOMPLETE, False)


def test_a_view_that_needs_frames_is_refused_for_arrays(folder, capsys):
    code, _, err = answer_of(capsys, "mirror", folder, "--to", "null")
    assert code != 0
    assert "'null' needs frames" in err


def test_what_is_no_one_array_is_told(capsys):
    code, _, err = answer_of(capsys, "info", GOLDEN / "java.n5")
    assert code != 0
    assert "open one of them: f32_xz" in err
