"""The Python reference library puts tiles together as we do, wherever it is right.

It is not where one overlap is zero and the other is not, and in version 2 (an array of all levels' size for each).
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import dask
import ndstorage
import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image

pytestmark = pytest.mark.oracle


def assert_stitched_alike(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), dask.config.set(scheduler="synchronous"):
        theirs = ndstorage.Dataset(str(path))
    try:
        with acqstream.open(path) as ds, dask.config.set(scheduler="synchronous"):
            assert set(theirs.res_levels) == set(range(len(ds.levels)))
            for number, level in enumerate(ds.levels):
                axes = [*level.axis_values()]
                ordered = {"axes": axes, "stitched": True}
                whole = theirs.as_array(res_level=number, **ordered) if number else theirs.as_array(**ordered)[0]
                expected: NDArray[Any] = np.asarray(whole)
                assert level.shape == expected.shape
                assert np.array_equal(level.read(), expected)
    finally:
        for level in theirs.res_levels.values():  # its own `close` raises
            level.close()


@pytest.mark.parametrize(
    "name", ["java_pyramid_u16", "java_pyramid_rgb_odd", "real_v3_0_stitched", "real_v3_2_rgb_pyramid"]
)
def test_golden_pyramids(name: str) -> None:
    assert_stitched_alike(GOLDEN / name / "data")


@pytest.mark.parametrize("overlap", [(0, 0), (1, 1), (2, 5), (3, 2)])
def test_any_overlap(tmp_path: Path, overlap: tuple[int, int]) -> None:
    summary = {
        "TiledImageStorage": True,
        "GridPixelOverlapY": overlap[0],
        "GridPixelOverlapX": overlap[1],
    }
    shape = (20 + overlap[0], 23 + overlap[1])
    full, half = (Folder(tmp_path / name, summary) for name in ("Full resolution", "Downsampled_x2"))
    for t in range(2):
        for n, (row, column) in enumerate([(-3, 2), (0, 0), (1, -1), (-1, 0)]):
            if (t, n) != (1, 2):
                full.add({"time": t, "row": row, "column": column}, image(10 * t + n, shape))
        for n, (row, column) in enumerate([(-2, 1), (0, 0), (0, -1), (-1, 0)]):
            half.add({"time": t, "row": row, "column": column}, image(10 * t + 5 + n, (20, 23)))
    assert_stitched_alike(tmp_path)
