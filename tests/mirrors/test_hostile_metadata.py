"""Metadata as no program should write them: the log takes them, and no mirror may fail for that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.views.view_run import ViewState
from tests.log.make_frames import Axes, frame_of, write_log
from tests.mirrors.mirror_cases import finish, run_of

HOSTILE: Mapping[str, Mapping[str, Any]] = {
    "control characters": {"Channel": "\x00\x1b\x07", "PositionName": "\x00/../\n", "PixelSizeAffine": "\x00;\x00"},
    "long names": {"n" * 100_000: 1, "PositionName": "p" * 500_000},
    "integers beyond doubles": {"PixelSizeUm": 10**400, "ZPositionUm": 10**400, "XPositionUm": -(10**400)},
    "the ends of doubles": {"PixelSizeUm": 5e-324, "ZPositionUm": 1e308, "XPositionUm": 1e308, "YPositionUm": -1e308},
    "texts of NaN": {"PixelSizeUm": "NaN", "ZPositionUm": "Infinity", "PixelSizeAffine": "NaN;inf;0;0;-inf;0"},
    "other types": {"PixelSizeUm": [], "ZPositionUm": {}, "XPositionUm": None, "PixelSizeAffine": [1]},
}
MIRRORS: Mapping[str, Mapping[str, Any]] = {
    "n5": {"format": "n5", "levels": 2},
    "wkw": {"format": "wkw", "cube": 32, "levels": 1},
    "ome.zarr": {"format": "ome-zarr", "levels": 2},
    "hsds": {"format": "hsds", "pixels": "copy", "levels": 2},
    "precomputed": {"format": "precomputed", "levels": 2},
}
CHANNELS = ("DAPI", "\x00\x1b" + "c" * 500)
POSITIONS = ("left\x00", "../right\n")
AXES: list[Axes] = [
    {"position": position, "channel": channel, "z": z} for position in POSITIONS for channel in CHANNELS for z in (0, 1)
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("place", ["frames", "summary"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_mirror_fails_for_metadata(tmp_path: Path, name: str, place: str) -> None:
    metadata = dict(HOSTILE[name])
    of_frames: dict[str, Any] = metadata if place == "frames" else {}
    frames = [frame_of(number, (20, 30), axes=axes, metadata=dict(of_frames)) for number, axes in enumerate(AXES)]
    write_log(tmp_path / "cells", frames, summary=metadata if place == "summary" else {})
    for mirror, settings in MIRRORS.items():
        run = finish(run_of(tmp_path / "cells", settings, name=str(settings["format"])))
        assert run.progress().state is ViewState.COMPLETE
        with acqstream.open(tmp_path / f"cells.{mirror}") as found:
            pixels = found.levels[0].read().reshape(-1, 20, 30)
            assert {frame.image.tobytes() for frame in frames} == {
                np.ascontiguousarray(one).tobytes() for one in pixels
            }
