"""`mirror --to wkw`, and `info` and `verify` of what it makes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import acqstream
from acqstream.cli.output import ExitCode
from tests.command import answer_of
from tests.host_system import allocated_bytes
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, frames_at, places_of

FRAMES = frames_at(places_of(("time", "channel", "z"), {"time": 2, "channel": 2, "z": 37}), (70, 90))


@pytest.fixture
def data(tmp_path):
    summary = {"PixelSizeUm": 0.1, "z-step_um": 0.3, "ChNames": ["DAPI", "GFP"]}
    write_log(tmp_path / "cells", FRAMES, summary=summary)
    return tmp_path / "cells"


def test_a_mirror_is_made_told_and_verified(data, capsys):
    code, out, _ = answer_of(capsys, "mirror", data, "--to", "wkw", "--option", "levels=3")
    assert code == 0
    assert "148 frames with the mirror: all equal" in out
    mirror = data.with_name("cells.wkw")
    code, out, _ = answer_of(capsys, "info", mirror)
    assert code == 0
    assert out.splitlines()[:10] == [
        f"path    {mirror}",
        "format  wkw",
        "state   complete",
        "shape   time 2, channel 2, z 37, y 70, x 90",
        "dtype   uint16",
        "axis    channel: DAPI, GFP",
        "scale   z 0.3 um (summary), y 0.1 um (summary), x 0.1 um (summary)",
        "level 0 2 x 2 x 37 x 70 x 90, 32 chunks of 1 x 1 x 32 x 64 x 64",
        "level 1 2 x 2 x 37 x 35 x 45, 8 chunks of 1 x 1 x 32 x 64 x 64",
        "level 2 2 x 2 x 37 x 17 x 22, 8 chunks of 1 x 1 x 32 x 64 x 64",
    ]
    code, out, _ = answer_of(capsys, "info", "--json", mirror)
    files = [path for path in mirror.rglob("*") if path.is_file()]
    if any(allocated_bytes(path) < path.stat().st_size for path in files):  # raw cubes are sparse
        assert json.loads(out)["size_bytes"] <= sum(map(allocated_bytes, files))
    code, out, _ = answer_of(capsys, "verify", mirror)
    assert code == 0
    assert out.startswith(f"{mirror}: all is well; 48 chunks in 3 arrays, 0 missing, ")
    with acqstream.open(mirror) as dataset:
        assert np.array_equal(dataset.to_dask().compute(scheduler="synchronous"), array_of(FRAMES))
    code, out, _ = answer_of(capsys, "info", "--json", mirror / "time0001" / "GFP")
    assert (code, json.loads(out)["shape"]) == (0, [37, 70, 90])


@pytest.mark.parametrize("compression", ["lz4", "lz4hc"])
def test_another_kind_of_cubes_is_made_anew_in_the_place_of_the_old_one(data, capsys, compression):
    assert answer_of(capsys, "mirror", data, "--to", "wkw", "--option", "cube=64")[0] == 0
    mirror = data.with_name("cells.wkw")
    assert {path.read_bytes()[4:6] for path in mirror.rglob("*.wkw")} == {bytes([0x15, 1])}
    options = ("--compression", compression, "--option", "cube=32", "--option", "levels=1")
    code, out, _ = answer_of(capsys, "mirror", data, "--to", "wkw", "--rebuild", *options)
    assert code == 0
    assert "all equal" in out
    assert {path.read_bytes()[4:6] for path in mirror.rglob("*.wkw")} == {
        bytes([0x05, {"lz4": 2, "lz4hc": 3}[compression]])
    }
    assert answer_of(capsys, "verify", mirror)[0] == 0


def test_what_is_damaged_is_told(data, capsys):
    assert answer_of(capsys, "mirror", data, "--to", "wkw", "--option", "cube=32")[0] == 0
    cube = data.with_name("cells.wkw") / "time0001" / "GFP" / "1" / "z1" / "y2" / "x2.wkw"
    content = cube.read_bytes()
    for torn, text in ((content[:-1], "a raw cube of 65551 bytes, expected 65552"), (b"wkw" + content[3:], "b'wkw'")):
        cube.write_bytes(torn)
        code, out, _ = answer_of(capsys, "verify", data.with_name("cells.wkw"))
        assert code == ExitCode.INCOMPLETE
        assert f"{cube.relative_to(cube.parents[2])} at byte" in out
        assert text in out
        code, out, _ = answer_of(capsys, "mirror", data, "--to", "wkw", "--option", "cube=32")
        assert code == ExitCode.INCOMPLETE
        assert "DIFFERENT" in out


def test_wrong_options_are_wrong_usage(data, capsys):
    code, _, err = answer_of(capsys, "mirror", data, "--to", "wkw", "--compression", "gzip")
    assert code == 2
    assert "WKW compression is 'gzip'" in err
    assert not data.with_name("cells.wkw").exists()
