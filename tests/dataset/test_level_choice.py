"""Levels that show the same part of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import acqstream
from acqstream.dataset.dataset import level_arrays, small_array
from tests.formats.n5.n5_samples import make_dataset, samples, write_pyramid
from tests.formats.ndtiff.ndtiff_bytes import Folder, image

TILED = {"TiledImageStorage": True, "GridPixelOverlapY": 0, "GridPixelOverlapX": 0}


def test_every_level_ends_within_its_array(tmp_path: Path) -> None:
    write_pyramid(tmp_path / "a.n5", samples((21, 30), "uint16"), ("y", "x"), levels=3)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert [array.shape for array in level_arrays(ds, {})] == [(1, 21, 30), (1, 10, 15), (1, 5, 7)]
        for array, level in zip(level_arrays(ds, {}), ds.levels, strict=True):
            assert np.array_equal(array[...], level.read())


def test_levels_below_one_with_other_axes_are_left_out(tmp_path: Path) -> None:
    tile: dict[str, Any] = {"row": 0, "column": 0}
    for name, axes in (
        ("Full resolution", {"channel": "A"}),
        ("Downsampled_x2", {}),
        ("Downsampled_x4", {"channel": "A"}),
    ):
        Folder(tmp_path / name, TILED).add({**tile, **axes}, image(1, (8, 8)))
    with acqstream.open(tmp_path) as ds:
        assert [level.axes for level in ds.levels] == [("channel", "y", "x"), ("y", "x"), ("channel", "y", "x")]
        (array,) = level_arrays(ds, {})
        assert array.shape == (1, 8, 8)


def test_factors_are_those_between_two_levels(tmp_path: Path) -> None:
    """A container may lack its finest levels: then the first one has factors of its own."""
    for number, (size, factor) in enumerate([(40, 2), (20, 4), (10, 8)]):
        make_dataset(tmp_path / "a.n5" / f"s{number}", (size, size), (10, 10), downsamplingFactors=[factor, factor])
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert [level.factors for level in ds.levels] == [(2, 2), (4, 4), (8, 8)]
        assert [array.shape for array in level_arrays(ds, {})] == [(40, 40), (20, 20), (10, 10)]
        assert small_array(ds, {}, 15).shape == (20, 20)
