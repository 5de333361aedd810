"""The 2x reduction against a slow one, and against pyramids that the Java library wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from acqstream.formats.ndtiff.reader import open_readers
from acqstream.grid.reduction import Halving, inner_tile, levels_needed, quadrant
from tests.grid.reference_pyramid import key_of, reduced, reference_of

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


def halved(source: np.ndarray) -> np.ndarray:
    out = np.full(((source.shape[0] + 1) // 2, (source.shape[1] + 1) // 2, *source.shape[2:]), 77, source.dtype)
    Halving(source.dtype).halve(source, out)
    return out


@st.composite
def images(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(["<u2", "|u1"]))
    samples = draw(st.sampled_from([(), (3,)])) if dtype == "|u1" else ()
    shape = draw(st.tuples(st.integers(1, 13), st.integers(1, 13)))
    extremes = st.sampled_from([0, 1, 2, 3, np.iinfo(dtype).max - 1, np.iinfo(dtype).max])
    return draw(arrays(np.dtype(dtype), (*shape, *samples), elements=extremes))


@settings(max_examples=200, deadline=None)
@given(images(), st.integers(0, 6), st.integers(0, 6))
def test_it_equals_the_rule(image: np.ndarray, lap_y: int, lap_x: int) -> None:
    height, width = image.shape[:2]
    overlap = min(lap_y, height - 1), min(lap_x, width - 1)
    inner = height - overlap[0], width - overlap[1]
    right = reduced(image, (overlap[0] // 2, overlap[1] // 2), (height, width), inner)
    assert np.array_equal(halved(inner_tile(image, overlap)), right)


@pytest.mark.parametrize("shape", [(600, 514), (599, 514), (600, 513), (301, 299), (2, 70_000), (3000, 2), (1, 1)])
@pytest.mark.parametrize("dtype", ["<u2", "|u1", "rgb"])
def test_large_images_are_halved_in_pieces(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(5)
    if dtype == "rgb":
        image = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    else:
        image = rng.integers(0, np.iinfo(dtype).max, shape, dtype=np.dtype(dtype), endpoint=True)
    out = halved(image)
    y, x = shape[0] // 2, shape[1] // 2
    whole = image[: 2 * y, : 2 * x].reshape(y, 2, x, 2, *image.shape[2:])
    assert np.array_equal(out[:y, :x], whole.sum(axis=(1, 3), dtype=np.uint64) // 4)


def test_a_view_at_any_place_of_a_larger_image() -> None:
    image = np.random.default_rng(6).integers(0, 65536, (40, 41), dtype=np.uint16)
    for top in range(4):
        for left in range(4):
            part = image[top : top + 20, left : left + 30]
            assert np.array_equal(halved(part), reduced(part, (0, 0), (20, 30), (20, 30)))


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7), (8, 3)])
def test_quadrants_cover_a_tile_and_share_the_middle_of_odd_ones(height: int, width: int) -> None:
    hits = np.zeros((height, width), int)
    for row in (-2, -1):
        for column in (-2, -1):
            part = hits[quadrant(row, column, height, width)]
            assert part.shape == ((height + 1) // 2, (width + 1) // 2)
            part += 1
    assert hits.min() == 1
    assert hits.sum() == 4 * ((height + 1) // 2) * ((width + 1) // 2)


def test_levels_until_one_tile_is_left() -> None:
    needed = {(0, 0): 0, (1, 1): 0, (2, 1): 1, (1, 3): 2, (4, 4): 2, (7, 5): 3, (8, 8): 3, (9, 1): 4}
    assert {grid: levels_needed(*grid) for grid in needed} == needed


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd"])
def test_java_s_pyramids_are_those_of_the_rule(name: str) -> None:
    full, *lower = open_readers(GOLDEN / name / "data")
    summary = full.summary_metadata
    overlap = int(summary["GridPixelOverlapY"]), int(summary["GridPixelOverlapX"])
    frames = [(full.key(row), full.read_pixels(row)) for row in range(len(full))]
    levels = reference_of(frames, len(lower), overlap)
    for reader, tiles in zip(lower, levels[1:], strict=True):
        keys = list(reader.keys())
        assert {key_of(key) for key in keys} == set(tiles)
        for key in keys:
            assert np.array_equal(reader.read_pixels(reader.row(key)), tiles[key_of(key)])
        reader.close()
    full.close()
