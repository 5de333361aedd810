"""Means of blocks, against numpy's own mean of each block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.grid.block_mean import BlockMean, small_picture
from acqstream.grid.block_sizes import reduced_size

SHAPES = [(8, 12), (7, 5), (1, 1), (1, 6), (9, 1)]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32", "float32"])
@pytest.mark.parametrize("ratios", [(1, 1), (2, 2), (2, 1), (1, 2), (3, 4)])
def test_blocks_are_means(dtype: str, ratios: Sequence[int]) -> None:
    for shape, depth, is_rounded_up in itertools.product(SHAPES, (1, 2, 3), (False, True)):
        check_means(dtype, ratios, shape, depth, is_rounded_up)


def check_means(dtype: str, ratios: Sequence[int], shape: Sequence[int], depth: int, is_rounded_up: bool) -> None:
    chance = np.random.default_rng(3)
    planes = [(chance.random(shape) * 255).astype(dtype) for _ in range(depth)]
    if dtype == "uint16":
        planes = [plane + np.uint16(65_280) for plane in planes]  # sums of these need more bits
    before = [plane.copy() for plane in planes]
    sizes = [
        -(-size // ratio) if is_rounded_up else reduced_size(size, ratio)
        for size, ratio in zip(shape, ratios, strict=True)
    ]
    found = BlockMean().mean(planes, ratios, sizes)
    assert (found.shape, found.dtype) == (tuple(sizes), np.dtype(dtype))
    right = np.empty(sizes)
    for y, x in np.ndindex(*sizes):
        rows, columns = slice(y * ratios[0], (y + 1) * ratios[0]), slice(x * ratios[1], (x + 1) * ratios[1])
        items = np.stack([plane[rows, columns] for plane in planes]).astype(np.float64)
        right[y, x] = items.mean() if dtype == "float32" else np.floor(items.mean() + 0.5)
    assert np.allclose(found, right, rtol=1e-6, atol=0), (shape, depth, is_rounded_up)
    assert all(np.array_equal(plane, old) for plane, old in zip(planes, before, strict=True))


def test_no_plane_is_no_mean() -> None:
    with pytest.raises(ValueError, match="no plane"):
        BlockMean().mean([], (2, 2), (1, 1))


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
@pytest.mark.parametrize("ratios", [(2, 2), (3, 4), (1, 1)])
def test_means_of_64_bits_do_not_run_over(dtype: str, ratios: Sequence[int]) -> None:
    limits = np.iinfo(dtype)
    chance = np.random.default_rng(5)
    planes = [chance.integers(limits.min, limits.max, (7, 9), dtype, endpoint=True) for _ in range(2)]
    planes[0][:4, :4] = planes[1][:4, :4] = limits.max
    planes[0][4:, :2] = planes[1][4:, :2] = limits.min
    sizes = [-(-size // ratio) for size, ratio in zip((7, 9), ratios, strict=True)]
    found = BlockMean().mean(planes, ratios, sizes)
    assert found.dtype == np.dtype(dtype)
    for y, x in np.ndindex(*sizes):
        rows, columns = slice(y * ratios[0], (y + 1) * ratios[0]), slice(x * ratios[1], (x + 1) * ratios[1])
        items = [int(item) for plane in planes for item in plane[rows, columns].ravel()]
        assert int(found[y, x]) == (sum(items) + len(items) // 2) // len(items)


def test_means_of_complex_numbers() -> None:
    # From parts: Wine 8 lacks the functions of complex numbers that Python's own would call.
    plane = np.array([[1, 2, 3, -2], [0, 0, 0, 4]], np.float32).view(np.complex64)
    found = BlockMean().mean([plane], (2, 2), (1, 1))
    assert (found.dtype, found.view(np.float32).tolist()) == (np.dtype(np.complex64), [[1, 1]])


def expected_grey(frame: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip(np.round((frame.astype(np.float64) - low) * 255 / (high - low)), 0, 255)


@given(
    low=st.integers(0, 60_000),
    width=st.integers(1, 60_000),
    dtype=st.sampled_from(["uint8", "uint16", "float32", "int32"]),
)
def test_black_and_white(low: int, width: int, dtype: str) -> None:
    frame = (np.random.default_rng(1).integers(0, 65_536, (40, 50)) % (256 if dtype == "uint8" else 65_536)).astype(
        dtype
    )
    picture = small_picture(frame, low, low + width, 64)
    assert picture.dtype == np.uint8
    assert np.abs(picture - expected_grey(frame, low, low + width)).max() <= 1


def test_a_large_frame_is_shown_by_means_of_blocks() -> None:
    frame = np.kron(np.array([[0, 100], [200, 1000]], np.uint16), np.ones((96, 96), np.uint16))
    picture = small_picture(frame, 0, 1000, 64)
    assert picture.shape == (64, 64)
    corners = [picture[3, 3], picture[3, -3], picture[-3, 3], picture[-3, -3]]
    assert [int(corner) for corner in corners] == [0, 26, 51, 255]


def test_colours_stay() -> None:
    frame = np.random.default_rng(2).integers(0, 256, (128, 64, 3)).astype(np.uint8)
    assert np.array_equal(small_picture(frame, 0, 1, 128), frame)
    assert small_picture(frame, 0, 1, 64).shape == (64, 32, 3)
