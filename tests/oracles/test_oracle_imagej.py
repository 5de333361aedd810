"""ImageJ with Bio-Formats, without a window, opens our OME-TIFF exports: colours, ranges and places of planes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from tests.export.sample_exports import export
from tests.log.make_frames import frame_of, write_log
from tests.oracles import bioformats_reader
from tests.oracles.java_reader import JavaUnavailable

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first run fetches 45 MB

COMPOSITE, GRAYSCALE = 1, 3  # ij.IJ
SHAPE = (40, 56)
COLORS = {"DAPI": "4393ff", "GFP": "00ff00", "Cy5": "f03cf4"}
COLOUR = [{"time": t, "z": z} for t, z in itertools.product(range(2), range(3))]
CHANNELS = [{"time": t, "channel": c, "z": z} for t, c, z in itertools.product(range(2), COLORS, range(3))]
RUNS: dict[str, tuple[list[Any], set[int]]] = {
    "colour": (COLOUR, set()),
    "colour with holes": (COLOUR, {1, 3, 5}),
    "channels": (CHANNELS, set()),
    "channels with holes": (CHANNELS, {1, 5, 6, 7, 16}),
}
ASKED = [("", name) for name in RUNS] + [("Composite", name) for name in RUNS if "channels" in name]
Opened = Mapping[tuple[str, str], dict[str, Any]]


def kind_of(name: str) -> dict[str, Any]:
    return {"shape": SHAPE, "bits": 12} if name.startswith("channels") else {"shape": (*SHAPE, 3), "dtype": "|u1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports of colour, of three channels of 12 bits, and of both without some of the frames."""
    folder = tmp_path_factory.mktemp("imagej")
    for name, (places, holes) in RUNS.items():
        stored = [place for number, place in enumerate(places) if number not in holes]
        write_log(folder / name, [frame_of(n, axes=place, **kind_of(name)) for n, place in enumerate(stored)])
        export(folder / name, "ome-tiff", folder / f"{name}.ome.tif")
    return folder


def planes_of(name: str) -> dict[tuple[int, int, int], np.ndarray]:
    """The frames by (t, c, z); zeros for those that are missing."""
    places, holes = RUNS[name]
    numbers = itertools.count()
    found = {}
    for number, place in enumerate(places):
        at = (place["time"], list(COLORS).index(place.get("channel", "DAPI")), place["z"])
        frame = frame_of(0 if number in holes else next(numbers), **kind_of(name)).image
        found[at] = np.zeros_like(frame) if number in holes else frame
    return found


@pytest.fixture(scope="module")
def opened(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    asked = [(mode, folder / f"{name}.ome.tif") for mode, name in ASKED]
    try:
        lines = bioformats_reader.open_in_imagej(asked, tmp_path_factory.mktemp("classes"))
    except JavaUnavailable as error:
        pytest.skip(str(error))
    return {(line["asked"], Path(line["path"]).name.removesuffix(".ome.tif")): line for line in lines}


def screen(line: Mapping[str, Any]) -> np.ndarray:
    """The picture (y, x, 3) that ImageJ shows first."""
    rgb = np.array(line["screen"], np.uint32).reshape(SHAPE)
    return np.stack([rgb >> 16, rgb >> 8 & 255, rgb & 255], -1).astype(np.uint8)


@pytest.mark.parametrize("name", ["colour", "colour with holes"])
def test_colour_is_shown_in_colour_by_default(opened: Opened, name: str) -> None:
    assert np.array_equal(screen(opened["", name]), planes_of(name)[0, 0, 0])


@pytest.mark.parametrize("name", ["channels", "channels with holes"])
def test_channels_have_their_colours_in_composite_mode(opened: Opened, name: str) -> None:
    line = opened["Composite", name]
    assert line["mode"] == COMPOSITE
    assert line["colors"] == list(COLORS.values())
    assert line["ranges"] == [[0, 4095]] * 3  # by the significant bits
    planes = planes_of(name)
    parts = [planes[0, c, 0][..., None] / 4095 * [*bytes.fromhex(color)] for c, color in enumerate(COLORS.values())]
    assert np.abs(screen(line) - sum(parts).clip(0, 255)).max() < 6  # 8 bits for each part, rounded down
    assert opened["", name]["mode"] == GRAYSCALE  # by default, as docs/other-software.md says


@pytest.mark.parametrize(("mode", "name"), ASKED)
def test_every_plane_is_in_its_place_also_if_others_are_missing(opened: Opened, mode: str, name: str) -> None:
    expected = {}
    for (t, c, z), plane in planes_of(name).items():
        for sample, part in enumerate(np.moveaxis(plane, -1, 0) if plane.ndim > 2 else [plane]):
            expected[t, c + sample, z] = hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest()
    assert {tuple(at): digest for at, digest in opened[mode, name]["planes"]} == expected


@pytest.mark.parametrize("name", RUNS)
def test_missing_planes_share_one_page(folder: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    places, holes = RUNS[name]
    with tifffile.TiffFile(folder / f"{name}.ome.tif") as file:
        assert len(file.pages) == len(places) - max(0, len(holes) - 1)
        array = file.series[0].asarray()
    planes = [plane for _, plane in sorted(planes_of(name).items(), key=lambda entry: entry[0])]
    assert np.array_equal(array.reshape(len(planes), *planes[0].shape), np.stack(planes))
    assert not caplog.records
