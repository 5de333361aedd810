"""napari reads virtual datasets over HTTP, with the line that the page gives to copy.

All of napari but its window: its plug-in for OME-Zarr, and its model of a viewer with layers and sliders.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.log.make_frames import append, start_log, write_log
from tests.oracles.webknossos_package import needs_environment
from tests.web.test_zarr_readers import ask
from tests.web.virtual_cases import CASES, SUMMARY
from tests.web.web_process import Site, web_thread

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.timeout_s(180),  # loading napari on a busy machine
    needs_environment("napari with zarr 3"),
]


def line_of(site: Site, name: str, label: str) -> str:
    """A line to copy of the page."""
    lines = json.loads(site.ask(f"/api/datasets/{name}").body)["lines"]
    (line,) = (one["line"] for one in lines if one["label"] == label)
    assert isinstance(line, str)
    return line


def open_by_line(site: Site, name: str, folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of the layers, and what napari tells of them, opened as the page says."""
    *command, url = shlex.split(line_of(site, name, "napari elsewhere"))
    assert command == ["napari", "--plugin", "napari-ome-zarr"]
    found, told = ask("napari", url, folder)
    return dict(found), told


CHANNELS = {
    "five axes": ["DAPI", "GFP"],
    **{name: ["R", "G", "B"] for name in ("colour", "colour levels", "colour pieces")},
}
AXES = {"t": "time", "z": "z"}
N_LEVELS = {"levels": 3, "colour levels": 3, "pieces": 2}


@pytest.mark.parametrize("name", CASES)
def test_layers_are_the_channels_with_all_levels(tmp_path: Path, name: str) -> None:
    case, data = CASES[name], tmp_path / "data"
    data.mkdir()
    write_log(data / "cells", case.frames, summary=SUMMARY, memory_bytes=2**24)
    with web_thread(data) as site:
        found, told = open_by_line(site, "cells", tmp_path)
    channels, n_levels = CHANNELS.get(name, []), N_LEVELS.get(name, 1)
    for level in range(n_levels):
        expected = case.level(level)
        layers = np.moveaxis(expected, 1, 0) if channels else expected[np.newaxis]
        for number, layer in enumerate(layers):
            assert np.array_equal(found[f"{number}/{level}"], layer)
            if n_levels == 1:
                last = (-1,) * (layer.ndim - 2)
                assert np.array_equal(found[f"{number}/shown"], layer[last])
    assert sum(not key.endswith("shown") for key in found) == max(1, len(channels)) * n_levels
    assert [name.removeprefix("cells: ") for name in told["names"]][: len(channels)] == channels
    scales = {"t": 1.0, "z": 2.0, "y": 0.5, "x": 0.5}
    axes = told["axes"][0]
    assert axes == [*(axis for axis in "tz" if AXES[axis] in case.frames[0].axes), "y", "x"]
    assert told["scales"][0] == [scales[axis] for axis in axes]
    assert [unit for axis, unit in zip(axes, told["units"][0], strict=True) if axis != "t"] == ["micrometer"] * (
        len(axes) - ("t" in axes)
    )


def test_a_growing_run_shows_what_it_has(tmp_path: Path) -> None:
    case, data = CASES["five axes"], tmp_path / "data"
    data.mkdir()
    with start_log(data / "cells", summary=SUMMARY) as log, web_thread(data) as site:
        append(log, case.frames[:16])  # two of three times
        found, _ = open_by_line(site, "cells", tmp_path)
    assert np.array_equal(found["0/0"], case.array[:2, 0])
    assert np.array_equal(found["1/0"], case.array[:2, 1])


def test_the_line_of_python_shows_all_frames(tmp_path: Path) -> None:
    case, data = CASES["five axes"], tmp_path / "data"
    data.mkdir()
    write_log(data / "cells", case.frames, summary=SUMMARY, memory_bytes=2**24)
    with web_thread(data) as site:
        found, told = ask("napari_line", line_of(site, "cells", "napari elsewhere, in Python"), tmp_path)
    assert np.array_equal(found, case.array)
    assert told == {"runs": 1}
