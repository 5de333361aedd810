"""Slabs in memory, against the array that their planes make up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.slab import ByteOrder, SlabBuffer
from acqstream.mirrors.slab_grid import slab_grids
from tests.formats.blocks import in_blocks

U2 = np.dtype("uint16")
sizes = st.tuples(st.integers(1, 13), st.integers(1, 13))


@given(
    size=sizes,
    block=st.tuples(*[st.integers(1, 4)] * 3),
    blocks=st.tuples(*[st.integers(1, 3)] * 3),
    is_cut=st.booleans(),
    order=st.sampled_from(["zyx", "xyz", "yzx", "zyxc"]),
    byte_order=st.sampled_from("<>"),
    data=st.data(),
)
def test_planes_lie_in_the_blocks_of_chunks(
    size: tuple[int, int],
    block: tuple[int, int, int],
    blocks: tuple[int, int, int],
    is_cut: bool,
    order: str,
    byte_order: ByteOrder,
    data: Any,
) -> None:
    """Put in pieces of rows, got in others, some taken back; beyond the edges there are zeros."""
    depth = block[0] * blocks[0]
    by_axis = {"z": (depth, depth, block[0]), "c": (3, 3, 3)}
    by_axis |= {
        name: (whole, one * many, one) for name, whole, one, many in zip("yx", size, block[1:], blocks[1:], strict=True)
    }
    shape, chunk_shape, block_shape = (tuple(by_axis[axis][kind] for axis in order) for kind in range(3))
    spec = ArraySpec(
        axes=tuple(order), shape=shape, dtype=U2, chunk_shape=chunk_shape, block_shape=block_shape if is_cut else ()
    )
    (grid,) = slab_grids([spec])
    slab = SlabBuffer(grid, byte_order)
    whole = np.random.default_rng(5).integers(1, 65_535, shape, np.uint16)
    at = order.index("z")
    for plane in range(depth):
        pixels = np.take(whole, plane, at)
        cut = data.draw(st.integers(0, len(pixels)))
        slab.put(plane, pixels[:cut])
        slab.put(plane, pixels[cut:].astype(">u2"), [cut])
        first, end = sorted(data.draw(st.tuples(*[st.integers(0, len(pixels))] * 2)))
        found = slab.get(plane, [slice(first, end)])
        assert found.dtype == U2
        assert np.array_equal(found, pixels[first:end])
    gone = data.draw(st.integers(0, 2**depth - 1))
    slab.clear((0,), 2**depth - 1 & ~gone)
    np.moveaxis(whole, at, 0)[[plane for plane in range(depth) if gone >> plane & 1]] = 0
    count = 0
    for position, local, _ in grid.chunks((0,)):
        chunk = slab.chunk(local)
        assert (chunk.shape, chunk.dtype.str[0], chunk.flags.c_contiguous) == (spec.memory_shape, byte_order, True)
        part = whole[spec.region(position)]
        padded = np.zeros(chunk_shape, U2)
        padded[tuple(map(slice, part.shape))] = part
        assert np.array_equal(chunk, in_blocks(padded, spec.block_shape))
        count += 1
    assert count == math.prod(spec.grid_shape)


def test_blocks_fill_their_chunk() -> None:
    axes = ("z", "y", "x")
    with pytest.raises(ValueError, match="cannot be made of blocks"):
        ArraySpec(axes=axes, shape=(1, 1, 1), dtype=U2, chunk_shape=(4, 4, 6), block_shape=(4, 4, 4))
    with pytest.raises(ValueError, match="block_shape"):
        ArraySpec(axes=axes, shape=(1, 1, 1), dtype=U2, chunk_shape=(4, 4, 4), block_shape=(4, 4))
