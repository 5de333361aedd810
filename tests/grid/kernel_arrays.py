"""Arrays of every layout for the tests of kernels, and the plain rules that kernels follow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

PIXELS = ("u1", "<u2", ">u2")
MAX = {1: 255, 2: 65_535}


@dataclass(frozen=True)
class Laid:
    """An array, and the memory around it, in which nothing else may change."""

    array: NDArray
    memory: NDArray[np.uint8]


@st.composite
def laid_arrays(draw: st.DrawFn, shape: Sequence[int], dtype: str) -> Laid:
    """Random pixels, or all the largest value: any order of axes in memory, gaps, negative strides, odd addresses."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2])) for _ in shape]
    spans = [max(1, (size - 1) * abs(step) + 1) for size, step in zip(shape, steps, strict=True)]
    offset = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 64]))
    size = np.dtype(dtype).itemsize
    dense = [spans[axis] for axis in order]
    memory = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0, 256, offset + int(np.prod(dense)) * size + 5, np.uint8
    )
    if draw(st.booleans()):
        memory[:] = 255
    packed = memory[offset : offset + int(np.prod(dense)) * size].view(dtype).reshape(dense)
    array = packed.transpose([order.index(axis) for axis in range(len(shape))])
    array = array[tuple(slice(None, None, step) for step in steps)]
    return Laid(array[tuple(slice(0, size) for size in shape)], memory)


@st.composite
def place_shapes(draw: st.DrawFn, axes: int) -> tuple[int, ...]:
    """Chunks, blocks and items of places with this many axes."""
    return tuple(
        draw(st.sampled_from([1, 2, 3, 5] if kind == 2 else [1, 2, 3])) for kind in range(3) for _ in range(axes)
    )


def place_sizes(shape: Sequence[int]) -> list[int]:
    """Items along each axis of a place."""
    axes = len(shape) // 3
    return [shape[axis] * shape[axes + axis] * shape[2 * axes + axis] for axis in range(axes)]


def as_image(place: NDArray) -> NDArray:
    """The items of a place as a new image."""
    axes = place.ndim // 3
    return place.transpose([kind * axes + axis for axis in range(axes) for kind in range(3)]).reshape(
        place_sizes(place.shape)
    )


def set_image(place: NDArray, image: NDArray) -> None:
    """The inverse of `as_image`."""
    axes = place.ndim // 3
    split = image.reshape([place.shape[kind * axes + axis] for axis in range(axes) for kind in range(3)])
    place[...] = split.transpose([axis * 3 + kind for kind in range(3) for axis in range(axes)])


def means(
    images: Sequence[NDArray], shape: Sequence[int], ratios: Sequence[int], *, is_half_up: bool
) -> NDArray[np.uint64]:
    """The means of blocks, item by item; a block at an edge has fewer items."""
    result = np.zeros(shape, np.uint64)
    for place in itertools.product(*map(range, shape)):
        block = tuple(slice(at * ratio, (at + 1) * ratio) for at, ratio in zip(place, ratios, strict=True))
        items = [int(item) for image in images for item in image[block].ravel()]
        result[place] = (sum(items) + (len(items) // 2 if is_half_up else 0)) // len(items)
    return result
