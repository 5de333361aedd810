"""Means of blocks, against numpy's own mean of each block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from acqstream.grid.block_mean import BlockMean
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
