"""Cuts the chunk table of an array of frames into chunks. Pure.

The table has an entry per frame, so its axes are those of the frames. Its chunks are small files: a chunk is published
when it is complete, so a large one is late, and many small ones take a block of the disk each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.mirrors.growth import growing_axis
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.model.axes import PICTURE_AXES

MAX_ENTRIES = 1024  # of a table chunk: 10 s of a camera at 100 frames per second
_UNKNOWN_STEP = 16  # entries along an axis whose size was not declared


@dataclass(frozen=True, slots=True)
class TableGrid:
    """axes are those of the frames, slowest first, sizes their planned sizes, 0 for an unknown one. steps: entries of a
    chunk along each axis. growing: the position of the axis that the array grows along; None for a single frame.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    growing: int | None

    @property
    def entries(self) -> int:
        """Entries of a chunk."""
        return math.prod(self.steps)

    @property
    def planned(self) -> int:
        """Planned frames of one index of the growing axis; 0 if unknown."""
        return math.prod(size for axis, size in enumerate(self.sizes) if axis != self.growing)

    def first_index(self, chunk: Position) -> int:
        """The first index of the growing axis that a chunk has entries of."""
        return 0 if self.growing is None else chunk[self.growing] * self.steps[self.growing]

    def complete_size(self, size: int) -> int:
        """The largest size along the growing axis, at most this one, that ends with a chunk or with the plan."""
        if self.growing is None or size == self.sizes[self.growing]:
            return size
        return size - size % self.steps[self.growing]


def table_grid(
    spec: ArraySpec, seen: Mapping[str, int] | None = None, steps: tuple[int, ...] | None = None
) -> TableGrid:
    """The grid for the frames of an array, whose y and x (and c) belong to each frame. spec has chunk_shape.

    seen: numbers of values of the frames so far, which stand for unknown sizes. steps: those of an existing table.
    """
    (slabs,) = slab_grids([spec])
    at = growing_axis(slabs)
    growing = None if at is None else slabs.outer.index(at)
    outer = [axis for axis, name in enumerate(spec.axes) if name not in PICTURE_AXES]
    sizes = [spec.shape[axis] for axis in outer]
    axes = tuple(spec.axes[axis] for axis in outer)
    expected = [size or _expected((seen or {}).get(name, 0)) for name, size in zip(axes, sizes, strict=True)]
    if growing is not None and not sizes[growing]:
        expected[growing] = MAX_ENTRIES
    return TableGrid(axes, tuple(sizes), steps or _steps(expected, growing), growing)


def _expected(seen: int) -> int:
    """The likely size of an axis with an unknown one: a single value shows nothing yet."""
    return seen if seen > 1 else _UNKNOWN_STEP


def _steps(sizes: Sequence[int], growing: int | None) -> tuple[int, ...]:
    steps, left = [1] * len(sizes), MAX_ENTRIES
    # The growing axis last: a chunk has few indices of it, so it is complete early.
    for axis in sorted(range(len(sizes)), key=lambda axis: (axis == growing, -axis)):
        steps[axis] = _step(sizes[axis], left)
        left = max(1, left // steps[axis])
    return tuple(steps)


def _step(size: int, max_step: int) -> int:
    """The step that cuts `size` into the fewest parts of about the same length."""
    return -(-size // -(-size // max_step))
