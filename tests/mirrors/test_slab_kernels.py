"""Slabs filled, reduced and compared by the compiled kernels and by numpy: the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.grid import kernels
from acqstream.grid.block_sizes import reduced_size
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import ByteOrder, Slab, SlabBuffer
from acqstream.mirrors.slab_comparison import StoredChunk, StoredSlab
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids
from acqstream.mirrors.slab_tasks import LevelReduction
from acqstream.model.axes import PICTURE_AXES

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason=f"no compiled kernels: {kernels.reason}")


@contextmanager
def by_numpy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", None)
        yield


@st.composite
def grids_of_two_levels(draw: st.DrawFn) -> tuple[SlabGrid, ...]:
    """Chunks with or without blocks, any order of axes, odd sizes, z halved or not, mosaics of any tile."""
    order = draw(st.sampled_from(["zyx", "xyz", "zyxc", "czyx", "zxy"]))
    dtype = "u1" if "c" in order else draw(st.sampled_from(["u1", "u2"]))
    is_rounded_up, is_mosaic = draw(st.booleans()), draw(st.booleans())
    block = {axis: draw(st.integers(1, 4)) for axis in "zyx"} | {"c": 3}
    chunk = {axis: block[axis] * draw(st.integers(1, 3)) for axis in "zyx"} | {"c": 3}
    size = {axis: draw(st.integers(1, 20)) for axis in "yx"} | {"z": draw(st.integers(1, 5)), "c": 3}
    ratio = {axis: draw(st.sampled_from([1, 2])) for axis in "zyx"} | {"c": 1}
    is_cut = draw(st.booleans())

    def level(factor: dict[str, int]) -> ArraySpec:
        shape = [
            -(-size[axis] // factor[axis]) if is_rounded_up else reduced_size(size[axis], factor[axis])
            for axis in order
        ]
        return ArraySpec(
            axes=tuple(order),
            shape=tuple(shape),
            dtype=np.dtype(dtype),
            chunk_shape=tuple(chunk[axis] for axis in order),
            block_shape=tuple(block[axis] for axis in order) if is_cut else (),
            factors=tuple(factor[axis] for axis in order),
        )

    tile = (draw(st.integers(1, 12)), draw(st.integers(1, 12))) if is_mosaic else ()
    return slab_grids([level(dict.fromkeys(order, 1)), level(ratio)], tile)


def filled(grid: SlabGrid, byte_order: ByteOrder, key: Sequence[int]) -> tuple[SlabBuffer, list[np.ndarray]]:
    """A slab with frames in all its pieces, and the frames or tiles."""
    slab, frames = Slab(0, tuple(key), SlabBuffer(grid, byte_order)), []
    chance = np.random.default_rng(9)
    shape = [size for size, axis in zip(grid.spec.shape, grid.spec.axes, strict=True) if axis in PICTURE_AXES]
    if grid.cuts:
        tile = dict(zip(grid.cut_axes, [cut.tile for cut in grid.cuts], strict=True))
        shape = [tile.get(axis, grid.spec.shape[axis]) for axis in grid.picture]
    for piece in grid.pieces_in(slab.key):
        frames.append(
            chance.integers(0, 256, (*shape, grid.spec.dtype.itemsize), np.uint8).view(grid.spec.dtype)[..., 0]
        )
        slab.put(piece, frames[-1])
        slab.filled |= 1 << piece.bit
    slab.clear_unfilled()
    return slab.buffer, frames


def bits_of(slab: SlabBuffer) -> bytes:
    return b"".join(slab.chunk(local).tobytes() for local in itertools.product(*map(range, slab.grid.counts)))


@settings(max_examples=150)
@given(grids=grids_of_two_levels(), byte_order=st.sampled_from("<>"), target_order=st.sampled_from("<>"))
def test_filled_and_reduced_slabs(grids: tuple[SlabGrid, ...], byte_order: ByteOrder, target_order: ByteOrder) -> None:
    full, lower = grids
    keys = itertools.product(
        *(range(-(-full.spec.shape[axis] // step)) for axis, step in zip(full.outer, full.step, strict=True)),
        *(range(cut.slabs) for cut in full.cuts),
    )
    reduction = LevelReduction(LevelExtents(grids))
    for key in keys:
        source, _ = filled(full, byte_order, key)
        with by_numpy():
            expected, _ = filled(full, byte_order, key)
        assert bits_of(source) == bits_of(expected)
        target, other = SlabBuffer(lower, target_order), SlabBuffer(lower, target_order)
        for part in reduction.parts(0, key):
            reduction.reduce(source, target, part)
            with by_numpy():
                reduction.reduce(source, other, part)
        assert bits_of(target) == bits_of(other)


def test_compiled_kernels_do_the_work_of_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare numpy with numpy."""
    done: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            done.append(name)
            return getattr(compiled, name)

    compiled = kernels.compiled
    monkeypatch.setattr(kernels, "compiled", Counted())
    level = ArraySpec(axes=("z", "y", "x"), shape=(2, 8, 8), dtype=np.dtype("u2"), chunk_shape=(2, 4, 4))
    half = ArraySpec(
        axes=("z", "y", "x"), shape=(1, 4, 4), dtype=np.dtype("u2"), chunk_shape=(2, 4, 4), factors=(2, 2, 2)
    )
    grids = slab_grids([level, half])
    slab, frames = filled(grids[0], ">", (0,))
    reduction = LevelReduction(LevelExtents(grids))
    reduction.reduce(slab, SlabBuffer(grids[1], ">"), next(iter(reduction.parts(0, (0,)))))
    chunks = [
        StoredChunk(local, level.region(position)[1:], slab.chunk(local))
        for position, local, _ in grids[0].chunks((0,))
    ]
    assert StoredSlab(grids[0], chunks).has(1, frames[1])
    assert not StoredSlab(grids[0], chunks).has(0, frames[1])
    assert done[:3] == ["put", "put", "reduce"]
    assert set(done[3:]) == {"equal"}


def test_a_plane_is_a_view() -> None:
    """Whatever the blocks of the slab."""
    spec = ArraySpec(
        axes=("z", "y", "x"), shape=(2, 9, 9), dtype=np.dtype("u1"), chunk_shape=(2, 8, 8), block_shape=(2, 4, 4)
    )
    (grid,) = slab_grids([spec])
    slab = SlabBuffer(grid, "<")
    slab.plane(1)[...] = 7
    assert bits_of(slab).count(7) == 16 * 16
    assert bits_of(slab).count(0) == 16 * 16
