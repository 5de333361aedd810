"""A growing picture in WKW, as software sees it that knows datasets of webKNOSSOS only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.formats.wkw.layout import STORED_NAME
from acqstream.formats.wkw.metadata import ARRAY_NAME, PROPERTIES_NAME
from acqstream.model.acquisition_spec import AxisSpec
from tests.log.make_frames import start_log
from tests.mirrors.mirror_cases import finish, run_of
from tests.mirrors.test_mosaic_mirror import take_little_memory
from tests.mirrors.test_open_mosaic import FORMATS, SCANS, SHOWN, TILES, TIMES, check, follow, frames_of, stitched
from tests.waiting import until

VARIANTS = ["wkw", "wkw lz4"]


def as_dataset(container: Path, copy: Path) -> NDArray[Any]:
    """The first level, (depth, y, x), of a copy without the notes of our writer and what it is just writing."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(container, copy, ignore=shutil.ignore_patterns(ARRAY_NAME, STORED_NAME, "*.new"))
    with acqstream.open(copy) as found:
        return found.levels[0].read()


def box_of(container: Path) -> tuple[int, int, int]:
    """The bounding box (depth, y, x) of the only layer."""
    (layer,) = json.loads((container / PROPERTIES_NAME).read_bytes())["dataLayers"]
    box = layer["boundingBox"]
    return box["depth"], box["height"], box["width"]


@pytest.mark.parametrize("memory", ["much", "little"])
@pytest.mark.parametrize("outer", [({},), TIMES], ids=["one picture", "times"])
@pytest.mark.parametrize("scan", ["serpentine", "ragged", "by columns"])
@pytest.mark.parametrize("name", VARIANTS)
def test_other_software_sees_all_tiles_that_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, scan: str, outer: Sequence[Any], memory: str
) -> None:
    """The bounding box has the stored picture; places whose tiles did not come yet are zeros."""
    if memory == "little":
        take_little_memory(monkeypatch)
    settings, frames, container = FORMATS[name], frames_of(SCANS[scan], outer), tmp_path / "cells.wkw"
    boxes = set()
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, "wkw")
        for number in follow(run, log, frames):
            if number % 3 != 1:
                continue
            until(run.view.settle, "all is stored")
            right = stitched(frames[:number], outer)
            times = -(-number // len(SCANS[scan]))
            assert box_of(container) == (times, *right.shape[1:]), number
            boxes.add(box_of(container))
            assert np.array_equal(as_dataset(container, tmp_path / "copy"), right[:times]), number
    assert len(boxes) > 2, "it grew"
    finish(run)
    check(tmp_path / "cells", settings, frames, outer)
    assert box_of(container) == stitched(frames, outer).shape
    assert not (container / STORED_NAME).exists()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_picture_that_grows_is_resumed_as_it_was_seen(tmp_path: Path, name: str) -> None:
    """The process that continues it knows no sizes either, and what is in the container stays."""
    settings, frames, container = FORMATS[name], frames_of(SCANS["serpentine"]), tmp_path / "cells.wkw"
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, "wkw")
        for _ in follow(run, log, frames[:6]):
            pass
        until(run.view.settle, "all is stored")
        seen = box_of(container)
        assert seen == (1, 2 * SHOWN[0], 4 * SHOWN[1])
        run.save()
        run.close()
        run = run_of(tmp_path / "cells", settings, "wkw")
        for number in follow(run, log, frames[6:9], earlier=6):
            assert box_of(container) >= seen, number
            assert np.array_equal(
                as_dataset(container, tmp_path / "copy")[0, : SHOWN[0]], stitched(frames)[0, : SHOWN[0]]
            ), "the first row stays"
        until(run.view.settle, "all is stored")
        assert box_of(container) == (1, 3 * SHOWN[0], 4 * SHOWN[1])
    finish(run)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_declared_side_is_complete_from_the_first_tile_on(tmp_path: Path, name: str) -> None:
    frames = frames_of(SCANS["by columns"])
    with start_log(tmp_path / "cells", tiles=TILES, axes=(AxisSpec("row", 3),)) as log:
        run = run_of(tmp_path / "cells", FORMATS[name], "wkw")
        for number in follow(run, log, frames):
            until(run.view.settle, "all is stored")
            columns = -(-number // 3)
            assert box_of(tmp_path / "cells.wkw") == (1, 3 * SHOWN[0], columns * SHOWN[1])
    finish(run)
    check(tmp_path / "cells", FORMATS[name], frames)
