"""Bio-Formats, which Fiji and OMERO read with, finds every plane and level of our OME-TIFF exports as it was stored."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from tests.export.sample_exports import export, write_cells
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.oracles import bioformats_reader
from tests.oracles.java_reader import JavaUnavailable

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first run fetches 43 MB

HOLES = {1, 3, 4, 6}
Found = dict[tuple[str, int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports: a run in each compression, colours, positions of wells with levels, a plain stack."""
    folder = tmp_path_factory.mktemp("bioformats")
    write_cells(folder / "cells")
    for compression in ("none", "zlib", "zstd"):
        export(folder / "cells", "ome-tiff", folder / f"{compression}.ome.tif", compression=compression, tile=32)
    export(folder / "cells", "tiff", folder / "stack.tif")
    colours = Folder(folder / "colours")
    for z in range(2):
        colours.add({"z": z}, image(z, (30, 41, 3), "u1"))
    export(colours.path, "ome-tiff", folder / "colours.ome.tif")
    wells = Folder(folder / "wells", {"PixelSizeUm": 0.25})
    for number, (well, channel) in enumerate(itertools.product(["A1_0", "B2_0"], ["DAPI", "µ"])):
        wells.add({"position": well, "channel": channel}, image(number, (600, 1030)))
    export(wells.path, "ome-tiff", folder / "wells.ome.tif")
    holes = Folder(folder / "holes")
    for number, (position, channel, z) in enumerate(itertools.product(["P0", "P1"], ["a", "b"], range(2))):
        if number not in HOLES:
            holes.add({"position": position, "channel": channel, "z": z}, image(number, (600, 1030)))
    export(holes.path, "ome-tiff", folder / "holes.ome.tif")
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    try:
        lines = bioformats_reader.read(sorted(folder.glob("*.tif")), tmp_path_factory.mktemp("classes"))
    except JavaUnavailable as error:
        pytest.skip(str(error))
    return {(Path(line["path"]).name, line["image"], line["level"]): line for line in lines}


def sums(array: np.ndarray) -> dict[tuple[int, ...], str]:
    """Checksums of the planes of an array (t, c, z, y, x[, s])."""
    return {
        at: hashlib.sha256(np.ascontiguousarray(array[at]).tobytes()).hexdigest() for at in np.ndindex(array.shape[:3])
    }


def planes(line: dict[str, Any]) -> dict[tuple[int, ...], str]:
    return {tuple(at): digest for at, digest in line["planes"]}


@pytest.mark.parametrize("name", ["none.ome.tif", "zlib.ome.tif", "zstd.ome.tif", "stack.tif"])
def test_every_plane_of_a_run(folder: Path, found: Found, name: str) -> None:
    with tifffile.TiffFile(folder / "none.ome.tif") as file:
        array = file.series[0].asarray()
    line = found[name, 0, 0]
    assert line["shape"] == [3, 2, 4, 40, 70]
    assert line["little"]
    assert planes(line) == sums(array)
    assert line["pixel"] == 0.5
    if name != "stack.tif":
        assert (line["name"], line["channels"]) == ("cells", ["DAPI", "GFP"])


def test_colours(found: Found) -> None:
    line = found["colours.ome.tif", 0, 0]
    assert line["shape"] == [1, 1, 2, 30, 41]
    expected = np.stack([image(z, (30, 41, 3), "u1") for z in range(2)])
    if not line["interleaved"]:
        expected = expected.transpose(0, 3, 1, 2)
    assert planes(line) == sums(expected[None, None])


def test_missing_frames_of_an_image_share_a_page(folder: Path, found: Found) -> None:
    with tifffile.TiffFile(folder / "holes.ome.tif") as file:
        assert len(file.pages) == 8 - len(HOLES) + 2
        for number, series in enumerate(file.series):
            for level, own in enumerate(series.levels):
                array = own.asarray()
                assert planes(found["holes.ome.tif", number, level]) == sums(array[None])
                for c, z in np.ndindex(2, 2):
                    at = 4 * number + 2 * c + z
                    assert array[c, z].any() == (at not in HOLES)
                    assert level or at in HOLES or np.array_equal(array[c, z], image(at, (600, 1030)))


def test_images_and_levels_of_a_plate(folder: Path, found: Found) -> None:
    with tifffile.TiffFile(folder / "wells.ome.tif") as file:
        assert len(file.series) == 2
        for number, series in enumerate(file.series):
            for level, own in enumerate(series.levels):
                line = found["wells.ome.tif", number, level]
                assert planes(line) == sums(own.asarray()[None, :, None])
                assert line["plates"] == 1
        assert [line["name"] for key, line in found.items() if key[0] == "wells.ome.tif" and key[2] == 0] == [
            "A1_0",
            "B2_0",
        ]
        assert sorted(key[1:] for key in found if key[0] == "wells.ome.tif") == [
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
            (1, 2),
        ]
        assert found["wells.ome.tif", 1, 0]["channels"] == ["DAPI", "µ"]
