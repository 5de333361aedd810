"""Each format that a Dataset opens can be exported: pixels and axes are those of its level 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.errors import DatasetError, UnsupportedFeature
from acqstream.formats.registry import chunk_format
from acqstream.model.acquisition_spec import TileSpec
from tests.command import command
from tests.export.sample_exports import export, write_cells
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.log.make_frames import frame_of, write_log

FORMATS = {"n5": [], "wkw": ["--option", "cube=64"], "ome-zarr": [], "precomputed": []}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("sources") / "cells"
    write_cells(path)
    places = {"ndtiff": path}
    for name, options in FORMATS.items():
        assert command("mirror", path, "--to", name, *options) == 0
        places[name] = path.with_name(f"cells{chunk_format(name).suffix}")
    return places


@pytest.mark.parametrize("name", ["ndtiff", *FORMATS])
def test_a_copy_in_hdf5(made: dict[str, Path], tmp_path: Path, name: str) -> None:
    h5py = pytest.importorskip("h5py")
    export(made[name], "hdf5", tmp_path / "a.h5", is_copy=True)
    with acqstream.open(made[name]) as ds, h5py.File(tmp_path / "a.h5") as file:
        assert tuple(dim.label for dim in file["image"].dims) == ds.levels[0].axes
        np.testing.assert_array_equal(file["image"][:], ds.levels[0].read())
        np.testing.assert_array_equal(file["channel"].asstr()[:], ["DAPI", "GFP"])


@pytest.mark.parametrize("name", ["ndtiff", *FORMATS])
def test_ome_tiff(made: dict[str, Path], tmp_path: Path, name: str) -> None:
    report = export(made[name], "ome-tiff", tmp_path / "a.ome.tif")
    with acqstream.open(made[name]) as ds, tifffile.TiffFile(report.path) as file:
        level = ds.levels[0]
        roles = {"time": "T", "channel": "C", "z": "Z", "y": "Y", "x": "X"}
        letters = [roles[axis] for axis in level.axes]
        order = [letters.index(letter) for letter in file.series[0].axes]
        np.testing.assert_array_equal(file.series[0].asarray(), level.read().transpose(order))
        assert file.ome_metadata is not None
        assert 'Name="GFP"' in file.ome_metadata
        assert 'PhysicalSizeZ="2.0"' in file.ome_metadata


@pytest.mark.parametrize("name", FORMATS)
def test_chunks_have_no_references(made: dict[str, Path], tmp_path: Path, name: str) -> None:
    pytest.importorskip("h5py")
    with pytest.raises(UnsupportedFeature, match="only frames of NDTiff can be referenced, not chunks: export it with"):
        export(made[name], "hdf5", tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


def test_the_picture_of_tiles(tmp_path: Path) -> None:
    frames = [
        frame_of(row * 3 + column, (20, 30), axes={"row": row, "column": column})
        for row in range(2)
        for column in range(3)
    ]
    path = tmp_path / "cells"
    write_log(path, frames, tiles=TileSpec((4, 6)), replace_duplicates=True)
    with acqstream.open(path) as ds:
        assert ds.levels[0].is_stitched
        picture = ds.levels[0].read()
    report = export(path, "ome-tiff", tmp_path / "a.ome.tif", tile=16)
    with tifffile.TiffFile(report.path) as file:
        np.testing.assert_array_equal(file.series[0].asarray(), picture)
    h5py = pytest.importorskip("h5py")
    with pytest.raises(UnsupportedFeature, match="put together from tiles has no references: export it with --copy"):
        export(path, "hdf5", tmp_path / "a.h5")
    export(path, "hdf5", tmp_path / "a.h5", is_copy=True)
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["image"][:], picture)


def test_tiles_as_images(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells", {"GridPixelOverlapX": 2, "GridPixelOverlapY": 2, "PixelSizeUm": 0.5})
    level = Folder(folder.path / "Full resolution", folder.summary)
    for entry in (folder.path / "NDTiff.index", folder.path / folder.stack):
        entry.unlink()
    for number, (row, column) in enumerate([(0, 0), (0, 1), (1, 1)]):
        stage = {"XPositionUm": 9.0 * column, "YPositionUm": 4.0 * row}
        level.add({"row": row, "column": column}, image(number, (10, 20)), metadata=stage)
    report = export(folder.path, "ome-tiff", is_separate=True)
    assert (report.images, report.missing) == (4, 1)
    with acqstream.open(folder.path, stitched=False) as ds, tifffile.TiffFile(report.path) as file:
        pixels = ds.levels[0].read()
        assert pixels.shape == (2, 2, 10, 20)
        for number, series in enumerate(file.series):
            np.testing.assert_array_equal(series.asarray(), pixels[divmod(number, 2)])
        assert ds.levels[0].place_of(row=1, column=1) == (0.0, 4 - 4.5 * 0.5, 9 - 9.5 * 0.5)  # of the first pixel
        assert file.ome_metadata is not None
        assert 'Name="row 1, column 1" X="9.0" XUnit="µm" Y="4.0" YUnit="µm"' in file.ome_metadata
    h5py = pytest.importorskip("h5py")
    by_reference = export(folder.path, "hdf5", is_separate=True)
    with h5py.File(by_reference.path) as opened:
        np.testing.assert_array_equal(opened["image"][:], pixels)


def test_a_dataset_without_frames(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    with pytest.raises(DatasetError, match="frame"):
        export(folder.path, "ome-tiff")
    assert [entry.name for entry in tmp_path.iterdir()] == ["cells"]
