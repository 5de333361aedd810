"""Looks of channels are the same of a run, of its copies and of a part of it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import tifffile

import acqstream
from acqstream.model.axes import AxisValue
from tests.export.sample_exports import export
from tests.log.make_frames import dim_frame, write_log
from tests.mirrors.mirror_cases import finish, run_of

SUMMARY = {"ChNames": ["DAPI", "left", "right"], "PixelSizeUm": 0.5}
COLORS = {"DAPI": "#4393ff", "left": "#f03cf4", "right": "#00ff00"}  # unknown names: by their place
KINDS: dict[str, list[AxisValue]] = {"names": ["DAPI", "left", "right"], "numbers": [0, 1, 2]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copy", [{"format": "ome-zarr"}, {"format": "n5"}, {"format": "wkw", "cube": 32}])
def test_copies_have_those_of_the_run(tmp_path: Path, kind: str, copy: dict[str, object]) -> None:
    frames = [dim_frame(n, {"time": n // 3, "channel": KINDS[kind][n % 3]}) for n in range(6)]
    write_log(tmp_path / "cells", frames, summary=SUMMARY)
    finish(run_of(tmp_path / "cells", {**copy, "levels": 1}, str(copy["format"])))
    (path,) = (one for one in tmp_path.iterdir() if one.is_dir() and one.name != "cells" and ".view" not in one.name)
    with acqstream.open(tmp_path / "cells") as ds, acqstream.open(path) as mirror:
        looks = ds.channel_looks()
        assert [*looks] == KINDS[kind]
        assert {look.name: look.color for look in looks.values()} == COLORS
        assert all(look.limits is not None and 100 <= look.limits[0] < look.limits[1] <= 611 for look in looks.values())
        assert [*mirror.channel_looks().values()] == [*looks.values()]


def test_a_chosen_channel_keeps_its_colour(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [dim_frame(n, {"channel": n}) for n in range(3)], summary=SUMMARY)
    export(tmp_path / "cells", "ome-tiff", tmp_path / "right.ome.tif", "channel=2")
    with tifffile.TiffFile(tmp_path / "right.ome.tif") as file:
        (channel,) = ElementTree.fromstring(file.ome_metadata or "").findall(".//{*}Channel")
    assert (channel.get("Name"), channel.get("Color")) == ("right", str(0x00FF00FF))
