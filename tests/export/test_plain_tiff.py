"""TIFF stacks: hyperstacks of ImageJ where they fit, else pages that name their frames."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import acqstream
from acqstream.dataset.level_array import LevelArray
from acqstream.export import tiff_files
from acqstream.export.exporter import dataset_folder, default_out
from tests.export.sample_exports import export, write_cells
from tests.formats.ndtiff.ndtiff_bytes import Folder, image


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("tiff") / "cells"
    return path, write_cells(path)


def test_a_hyperstack(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, array = cells
    report = export(path, "tiff", tmp_path / "a.tif")
    assert report.notes == ()
    with tifffile.TiffFile(report.path) as file:
        assert file.is_imagej
        assert not file.is_bigtiff
        assert file.series[0].axes == "TZCYX"
        np.testing.assert_array_equal(file.series[0].asarray(), array.transpose(0, 2, 1, 3, 4))
        metadata = file.imagej_metadata
        assert metadata is not None
        assert (metadata["frames"], metadata["slices"], metadata["channels"]) == (3, 4, 2)
        assert (metadata["unit"], metadata["spacing"], metadata["finterval"]) == ("um", 2.0, 0.1)
        assert metadata["Labels"][:2] == ["time=0 channel=DAPI z=0", "time=0 channel=GFP z=0"]
        assert file.pages.first.tags["XResolution"].value == (2, 1)


def test_pillow_reads_the_pages_of_a_hyperstack(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, array = cells
    export(path, "tiff", tmp_path / "a.tif", "time=0:2", "channel=GFP")
    with Image.open(tmp_path / "a.tif") as picture:
        assert picture.n_frames == 8  # type: ignore[attr-defined]
        for number, (time, z) in enumerate(itertools.product(range(2), range(4))):
            picture.seek(number)
            np.testing.assert_array_equal(np.asarray(picture), array[time, 1, z])


def test_pages_with_other_axes_name_their_frames(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells", {"PixelSizeUm": 0.5})
    for position, time in itertools.product(["left", "µ"], range(2)):
        folder.add({"position": position, "time": time}, image(time + 2 * (position == "µ")))
    report = export(folder.path, "tiff")
    assert "not an ImageJ hyperstack" in report.notes[0]
    with tifffile.TiffFile(report.path) as file:
        assert not file.is_imagej
        texts = [file.pages.get(at, cache=False, aspage=True).description for at in range(4)]  # type: ignore[union-attr]
        assert [json.loads(text) for text in texts] == [
            {"position": position, "time": time} for position in ["left", "µ"] for time in range(2)
        ]
        for number, page in enumerate(file.pages):
            np.testing.assert_array_equal(page.asarray(), image(number))
        assert file.pages.first.tags["XResolution"].value == (20000, 1)
        assert file.pages.first.tags["ResolutionUnit"].value == 3


def test_large_stacks_have_64_bit_offsets(
    cells: tuple[Path, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, array = cells
    monkeypatch.setattr(tiff_files, "MAX_CLASSIC_BYTES", array.nbytes)
    report = export(path, "tiff", tmp_path / "a.tif")
    with tifffile.TiffFile(report.path) as file:
        assert file.is_bigtiff
        pages = np.stack([page.asarray() for page in file.pages])
        np.testing.assert_array_equal(pages, array.reshape(-1, 40, 70))
    with acqstream.open(path) as ds:
        assert tiff_files.is_large(LevelArray(ds.levels[0].source))


def test_colours_are_a_hyperstack_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    for number in range(2):
        folder.add({"z": number}, image(number, (6, 7, 3), "u1"))
    report = export(folder.path, "tiff")
    with tifffile.TiffFile(report.path) as file:
        assert file.is_imagej
        np.testing.assert_array_equal(file.series[0].asarray(), np.stack([image(n, (6, 7, 3), "u1") for n in range(2)]))


def test_the_file_lies_beside_the_dataset(cells: tuple[Path, np.ndarray]) -> None:
    path, _ = cells
    for opened in (path, path / "NDTiff.index"):
        folder = dataset_folder(opened)
        assert default_out(folder, "tiff") == path.with_name("cells.tif")
        assert default_out(folder, "ome-tiff") == path.with_name("cells.ome.tif")
        assert default_out(folder, "hdf5") == path.with_name("cells.h5")
    assert default_out(Path("/data/cells.ome.zarr"), "tiff") == Path("/data/cells.tif")
