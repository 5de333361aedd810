"""The Python reference library opens our pyramids: the same levels, tiles and stitched images."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import dask
import ndstorage
import numpy as np
import pytest

from tests.grid.reference_pyramid import Image, Key, reference_of
from tests.log.make_frames import Axes
from tests.views.pyramid_cases import Place, finish, grid, pyramid_of, shuffled, tiles_of, write_tiled

pytestmark = pytest.mark.oracle

CHANNELS: list[Axes] = [{"channel": "DAPI"}, {"channel": "GFP"}]


def stitched(tiles: dict[Key, Image], rest: tuple[tuple[str, str], ...], overlap: Place, *, full: bool) -> Image:
    """Tiles side by side from the first row and column on; those of the full resolution without their overlap."""
    places = [(row, column) for _, row, column in tiles]
    top, left = np.min(places, axis=0)
    rows, columns = np.max(places, axis=0) - (top, left) + 1
    height, width = next(iter(tiles.values())).shape
    oy, ox = overlap if full else (0, 0)
    h, w = height - oy, width - ox
    image = np.zeros((rows * h, columns * w), np.uint16)
    for (other, row, column), tile in tiles.items():
        if other == rest:
            y, x = (row - top) * h, (column - left) * w
            image[y : y + h, x : x + w] = tile[oy // 2 : oy // 2 + h, ox // 2 : ox // 2 + w]
    return image


@pytest.mark.parametrize(
    ("places", "shape", "overlap", "levels"),
    [
        (grid(1, 1), (40, 48), (4, 6), 0),
        (grid(2, 2), (40, 48), (0, 0), 1),
        (grid(7, 5), (40, 48), (4, 6), 3),
        (shuffled(grid(4, 4), 1), (39, 47), (0, 0), 2),
        (shuffled(grid(6, 5), 2)[:-4], (39, 47), (3, 5), 3),
        (shuffled(grid(5, 4, top=-3, left=-2), 3), (40, 48), (4, 6), 3),
    ],
)
def test_ndstorage_sees_the_same_pyramid(
    tmp_path: Path, places: list[Place], shape: Place, overlap: Place, levels: int
) -> None:
    frames = tiles_of([*places, places[0]], shape, others=CHANNELS)
    write_tiled(tmp_path / "cells", frames, overlap)
    finish(pyramid_of(tmp_path / "cells"))
    right = reference_of([(frame.axes, frame.image) for frame in frames], levels, overlap)
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = ndstorage.Dataset(str(tmp_path / "cells"))
    assert sorted(dataset.res_levels) == list(range(levels + 1))
    for level, tiles in enumerate(right):
        for (rest, row, column), tile in tiles.items():
            seen = dataset.read_image(**dict(rest), row=row, column=column, resolution_level=level)
            assert np.array_equal(seen, tile)
        with dask.config.set(scheduler="synchronous"):
            image = np.asarray(dataset.res_levels[level].as_array(stitched=True, channel="GFP")).squeeze()
        assert np.array_equal(image, stitched(tiles, (("channel", "GFP"),), overlap, full=level == 0))
    for level in dataset.res_levels.values():
        level.close()  # that of the pyramid raises
