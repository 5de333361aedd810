"""Means of blocks of items, as resolution levels of arrays have them: of integers rounded to the nearest, halves up.

A level made so lies with its items on the centres of the blocks; this is what area resizing gives, and what readers of
chunk formats expect. (NDTiff's own levels are truncated: `reduction`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BAND_BYTES = 256 * 2**10  # of a plane: with its sums it stays in the processor's cache


def reduced_size(size: int, ratio: int) -> int:
    """How many whole blocks there are; where there is none the rest makes up one."""
    return max(1, size // ratio) if size else 0


def block_mean(planes: Iterable[NDArray[Any]], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
    """The mean of blocks over all `planes`, which have one shape and dtype; a new array of that dtype.

    ratios: how many items of a plane go into one along each of its axes; shape: that of the result. A block that
    reaches beyond the plane is the mean of what there is. There must be a plane.
    """
    some = list(planes)
    if not some:
        raise ValueError("no plane")
    found = np.empty(shape, some[0].dtype)
    items = _counts(some[0].shape, ratios, shape)
    step = max(1, _BAND_BYTES * shape[0] // max(1, some[0].nbytes)) if isinstance(items, int) else max(1, shape[0])
    for first in range(0, shape[0], step):
        band = found[first : first + step]
        rows = slice(first * ratios[0], (first + len(band)) * ratios[0])
        total = _sums(some[0][rows], ratios, band.shape)
        for plane in some[1:]:
            np.add(total, _sums(plane[rows], ratios, band.shape), out=total)
        _divide(total, items * len(some) if isinstance(items, int) else items * np.uint32(len(some)), band)
    return found


def _sums(plane: NDArray[Any], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
    wide = np.dtype(np.float64) if plane.dtype.kind == "f" else _wider(plane.dtype)
    found: NDArray[Any] = plane
    if _has_pairs(plane, ratios, shape):
        found = _pair_sums(plane)[..., : shape[-1]]
        ratios = (*ratios[:-1], 1)
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


def _divide(total: NDArray[Any], items: int | NDArray[np.uint32], found: NDArray[Any]) -> None:
    if found.dtype.kind == "f":
        np.divide(total, items, out=found, casting="same_kind")
        return
    if isinstance(items, int) and items & (items - 1) == 0:
        total += total.dtype.type(items // 2)
        total >>= total.dtype.type(items.bit_length() - 1)
    else:
        half = items // 2
        total += np.asarray(half, total.dtype)
        total //= np.asarray(items, total.dtype)
    np.copyto(found, total, casting="unsafe")


def _has_pairs(plane: NDArray[Any], ratios: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether two items that lie side by side go into one, and can be taken as one number of 32 bits."""
    is_uint16 = plane.dtype == np.uint16 and plane.dtype.isnative and plane.flags.c_contiguous
    return is_uint16 and ratios[-1] == 2 and plane.shape[-1] % 2 == 0 and 2 * shape[-1] <= plane.shape[-1]


def _pair_sums(plane: NDArray[Any]) -> NDArray[np.uint32]:
    """The sums of items side by side: steps on whole rows, in half the time of every second item."""
    pairs = plane.view(np.uint32)
    sums = np.bitwise_and(pairs, np.uint32(0xFFFF))
    sums += np.right_shift(pairs, np.uint32(16))
    return sums
