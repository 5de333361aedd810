"""Blocks of an array: boxes aligned to chunks that together cover it once. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

Box = tuple[range, ...]
"""The positions of a block along each axis."""


def block_shape(shape: Sequence[int], chunk: Sequence[int], max_items: int) -> tuple[int, ...]:
    """The largest block of at most `max_items` items that is made of complete chunks, the last axes filled first.

    A block has at least one chunk, which may be larger than max_items. Sides are those of chunks, of several chunks, or
    of the array.
    """
    sides = [min(side, size) for side, size in zip(chunk, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        others = math.prod(side for at, side in enumerate(sides) if at != axis)
        if others * shape[axis] <= max_items:
            sides[axis] = shape[axis]
            continue
        if sides[axis]:
            fitting = max_items // others // sides[axis]
            sides[axis] *= max(1, fitting)
        break
    return tuple(sides)


def cut(shape: Sequence[int], sides: Sequence[int]) -> Iterator[Box]:
    """The blocks with these sides that cover an array of `shape`, last axis fastest; at the end they are smaller."""
    if not all(shape):
        return
    starts = (range(0, size, side) for size, side in zip(shape, sides, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(
            range(start, min(start + side, size)) for start, side, size in zip(corner, sides, shape, strict=True)
        )
