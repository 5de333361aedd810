"""Sizes of arrays whose items are means of blocks, and of the bands in which means are made. Loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence

BAND_BYTES = 2**20  # of a plane: less is faster by itself, but threads would wait for each other at each step


def reduced_size(size: int, ratio: int) -> int:
    """Number of complete blocks; 1 if the axis is shorter than a block."""
    return max(1, size // ratio) if size else 0


def reduced_shape(shape: Sequence[int], ratios: Sequence[int]) -> tuple[int, ...]:
    """`reduced_size` along each axis."""
    return tuple(reduced_size(size, ratio) for size, ratio in zip(shape, ratios, strict=True))
