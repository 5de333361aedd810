"""Means of blocks of items, as resolution levels of arrays have them: of integers rounded to the nearest, halves up.

A level made so lies with its items on the centres of the blocks; this is what area resizing gives, and what readers of
chunk formats expect. (NDTiff's own levels are truncated: `reduction`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def reduced_size(size: int, ratio: int) -> int:
    """How many whole blocks there are; where there is none the rest makes up one."""
    return max(1, size // ratio) if size else 0


def block_mean(planes: Iterable[NDArray[Any]], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
    """The mean of blocks over all `planes`, which have one shape and dtype; a new array of that dtype.

    ratios: how many items of a plane go into one along each of its axes; shape: that of the result. A block that
    reaches beyond the plane is the mean of what there is. There must be a plane.
    """
    total: NDArray[Any] | None = None
    count = 0
    for plane in planes:
        part = _sums(plane, ratios, shape)
        total = part if total is None else np.add(total, part, out=total)
        count += 1
        sizes, dtype = plane.shape, plane.dtype
    if total is None:
        raise ValueError("no plane")
    items = _counts(sizes, ratios, shape)
    return _divide(total, items * count if isinstance(items, int) else items * np.uint32(count), dtype)


def _sums(plane: NDArray[Any], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
    wide = np.dtype(np.float64) if plane.dtype.kind == "f" else _wider(plane.dtype)
    found: NDArray[Any] = plane
    for axis, (ratio, size) in enumerate(zip(ratios, shape, strict=True)):
        if ratio == 1:
            found = found[_along(axis, slice(0, size))]
            continue
        parts = [
            found[_along(axis, slice(first, size * ratio, ratio))] for first in range(min(ratio, found.shape[axis]))
        ]
        if len(parts) == 1:
            found = parts[0]
            continue
        is_whole = parts[1].shape == parts[0].shape
        sums = np.add(parts[0], parts[1], dtype=wide) if is_whole else parts[0].astype(wide)
        for part in parts[2:] if is_whole else parts[1:]:
            sums[_along(axis, slice(0, part.shape[axis]))] += part
        found = sums
    return found.astype(wide, copy=found is plane or not found.flags.owndata)


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint32) if dtype.kind == "u" and dtype.itemsize <= 2 else np.dtype(np.int64)


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), part)


def _counts(sizes: Sequence[int], ratios: Sequence[int], shape: Sequence[int]) -> int | NDArray[np.uint32]:
    """How many items go into each of the result: one number where it is the same for all."""
    same = 1
    uneven: list[NDArray[np.uint32]] = []
    for size, ratio, count in zip(sizes, ratios, shape, strict=True):
        lengths = np.minimum(ratio, size - ratio * np.arange(count)).astype(np.uint32)
        uneven.append(lengths)
        if count and (lengths == lengths[0]).all():
            same *= int(lengths[0])
        else:
            same = 0
    if same:
        return same
    counts = np.ones((), np.uint32)
    for axis, lengths in enumerate(uneven):
        counts = counts * lengths.reshape(tuple(-1 if n == axis else 1 for n in range(len(uneven))))
    return np.asarray(counts, np.uint32)


def _divide(total: NDArray[Any], items: int | NDArray[np.uint32], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "f":
        return (total / items).astype(dtype)
    if isinstance(items, int) and items & (items - 1) == 0:
        total += total.dtype.type(items // 2)
        total >>= total.dtype.type(items.bit_length() - 1)
    else:
        half = items // 2
        total += np.asarray(half, total.dtype)
        total //= np.asarray(items, total.dtype)
    return total.astype(dtype)
