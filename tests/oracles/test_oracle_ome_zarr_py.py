"""ome-zarr-py reads our images, collections and plates as napari does; ome-zarr-models accepts them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, halved, places_of, run_of
from tests.oracles.test_oracle_ome_zarr import VARIANTS, expected, needs_zarr, settings_of
from tests.oracles.webknossos_package import PYTHON

pytestmark = [pytest.mark.oracle, needs_zarr]
PROGRAM = Path(__file__).with_name("ome_zarr_py_program.py")
NAMES = ["A1_0000", "A1_0001", "A2_0000", "A2_0001", "B2_0000", "B2_0001"]
SIZES = {"time": 2, "position": len(NAMES), "channel": 2}
AXES = tuple(SIZES)


def read(paths: Sequence[Path], out: Path) -> list[dict[str, Any]]:
    """What the packages say of each path; its pixels by level under "pixels"."""
    out.mkdir()
    command: list[str | Path] = [PYTHON, "-I", "-W", "ignore", PROGRAM, out, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    for number, one in enumerate(told):
        one["pixels"] = [np.load(out / f"{number}-{level}.npy") for level in range(one["levels"])]
    return told


def test_the_pins_hold_all_that_a_pinned_package_needs() -> None:
    """pip installs nothing but the pins, so a package may lack what it loads.

    Two lack what talks to servers alone, and napari's packages what its window and its commands need. One pair of
    packages asks for versions of rich that exclude each other: npe2 loads it in its commands alone, webknossos always.
    """
    done = subprocess.run([PYTHON, "-m", "pip", "check"], capture_output=True, text=True, timeout=300, check=False)
    lacks = {line.split()[0] for line in done.stdout.splitlines() if "which is not installed" in line}
    assert lacks <= {"webknossos", "ome-zarr"} | {"napari", "napari-resources", "npe2", "vispy"}, done.stdout
    others = [line for line in done.stdout.splitlines() if "but you have" in line]
    assert all(line.startswith("npe2 ") and "rich" in line for line in others), done.stdout


@pytest.mark.thinned(3)
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_reads_every_level_of_an_image(tmp_path: Path, variant: str) -> None:
    frames = frames_at(places_of(("time", "channel", "z"), {"time": 2, "channel": 2, "z": 3}), (37, 50))
    write_log(tmp_path / "cells", frames, summary={"ChNames": ["DAPI", "FITC"], "PixelSizeUm": 0.5})
    finish(run_of(tmp_path / "cells", settings_of(VARIANTS[variant]), name="ome-zarr"))
    (told,) = read([tmp_path / "cells.ome.zarr"], tmp_path / "out")
    full = expected(frames, ("time", "channel", "z"))
    assert np.array_equal(told["pixels"][0], full)
    assert np.array_equal(told["pixels"][1], halved(full, (1, 1, 1, 2, 2)))
    assert (told["model"], told["axes"]) == ("Image", ["t", "c", "z", "y", "x"])
    assert told["channels"] == ["DAPI", "FITC"]
    scales = [steps[0]["scale"][-2:] for steps in told["transformations"]]
    assert scales == [[0.5, 0.5], [1.0, 1.0]]


def test_it_reads_the_images_of_a_collection(tmp_path: Path) -> None:
    frames = frames_at(places_of(AXES, SIZES), (20, 34))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", settings_of({}), name="ome-zarr"))
    paths = [tmp_path / "cells.ome.zarr" / str(position) for position in range(len(NAMES))]
    full = images_of(array_of(frames, AXES))
    for position, told in enumerate(read(paths, tmp_path / "out")):
        assert np.array_equal(told["pixels"][0], full[:, position])
        assert told["model"] == "Image"


@pytest.mark.parametrize("variant", ["raw", "blosc", "unsharded"])
def test_it_reads_a_plate_its_wells_and_their_fields(tmp_path: Path, variant: str) -> None:
    frames = frames_at(places_of(AXES, SIZES), (20, 34))
    write_log(tmp_path / "cells", frames, summary={"PositionNames": NAMES})
    finish(run_of(tmp_path / "cells", settings_of(VARIANTS[variant]), name="ome-zarr"))
    container = tmp_path / "cells.ome.zarr"
    plate, well, field = read([container, container / "A" / "2", container / "B" / "2" / "1"], tmp_path / "out")
    assert [one["model"] for one in (plate, well, field)] == ["HCS", "Well", "Image"]
    assert [one["specs"][0] for one in (plate, well, field)] == ["Plate", "Well", "Multiscales"]
    full = images_of(array_of(frames, AXES))
    assert np.array_equal(field["pixels"][0], full[:, 5])
    assert np.array_equal(well["pixels"][0], np.concatenate([full[:, 2], full[:, 3]], axis=-1))
    # It shows the first field of each well; there is no well B1.
    mosaic = np.block([[full[:, 0], full[:, 2]], [np.zeros_like(full[:, 0]), full[:, 4]]])
    assert np.array_equal(plate["pixels"][0], mosaic)


def images_of(array: NDArray[Any]) -> NDArray[Any]:
    """(time, position, channel, y, x): `array_of` adds z."""
    return array[:, :, :, 0]
