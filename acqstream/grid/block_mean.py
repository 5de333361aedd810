"""Means of blocks of items, as resolution levels of arrays have them: of integers rounded to the nearest, halves up.

A level made so lies with its items on the centres of the blocks; this is what area resizing gives, and what readers of
chunk formats expect. (NDTiff's own levels are truncated: `reduction`.) `small_picture` makes 8 bits of them for people.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.grid import kernels
from acqstream.grid.block_sizes import reduced_shape
from acqstream.grid.kernels import Scratch

_LONG_BYTES = 8  # of integers whose sums take more than 64 bits
_WIDE: dict[str, np.dtype[Any]] = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}  # by kind of items
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.uint16): np.dtype(np.uint32),
    np.dtype(np.uint8): np.dtype(np.uint16),
}


class BlockMean:
    """Means of blocks; from any thread. Keeps memory for each, of a few times the planes that it is given."""

    def __init__(self) -> None:
        self._local = threading.local()

    def mean(self, planes: Sequence[NDArray[Any]], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
        """The mean of blocks over all `planes`, which have one shape and dtype; a new array of that dtype.

        ratios: how many items of a plane go into one along each of its axes; shape: that of the result. A block that
        reaches beyond the plane is the mean of what there is. There must be a plane.
        """
        if not planes:
            raise ValueError("no plane")
        items = _counts(planes[0].shape, ratios, shape)
        if planes[0].dtype.kind in "iu" and planes[0].dtype.itemsize == _LONG_BYTES:
            return _long_mean(planes, ratios, shape, items)
        result = np.empty(shape, planes[0].dtype)
        if len(planes) == 1 and tuple(ratios) == (2, 2) and kernels.halve(planes[0], result, is_half_up=True):
            return result
        if isinstance(items, int) and _has_pairs(planes, items * len(planes), ratios, shape):
            total = self._pair_sums(planes, ratios[0], shape)
        else:
            total = _sums(planes[0], ratios, shape)
            for plane in planes[1:]:
                np.add(total, _sums(plane, ratios, shape), out=total)
        _divide(total, items * len(planes) if isinstance(items, int) else items * np.uint32(len(planes)), result)
        return result

    def _pair_sums(self, planes: Sequence[NDArray[Any]], ratio: int, shape: Sequence[int]) -> NDArray[Any]:
        """The sums of two columns and `ratio` rows, of all planes; the memory is used again by the next ones.

        Two items that lie side by side are taken as one number: low + high * base. The sum of such numbers, which may
        run over, less base - 1 times the sum of their high halves, is the sum of both halves.
        """
        dtype = planes[0].dtype
        wide, bits = _WIDER[dtype], 8 * dtype.itemsize
        scratch: Scratch | None = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = Scratch()
        total, high, spare = (scratch.array(number, shape, wide) for number in range(3))
        rows = [plane[first : shape[0] * ratio : ratio].view(wide) for plane in planes for first in range(ratio)]
        np.copyto(total, rows[0])
        np.right_shift(rows[0], wide.type(bits), out=high)
        for row in rows[1:]:
            np.add(total, row, out=total)
            np.right_shift(row, wide.type(bits), out=spare)
            np.add(high, spare, out=high)
        np.multiply(high, wide.type(2**bits - 1), out=high)
        np.subtract(total, high, out=total)
        return total


def _long_mean(
    planes: Sequence[NDArray[Any]], ratios: Sequence[int], shape: Sequence[int], items: int | NDArray[np.uint32]
) -> NDArray[Any]:
    """The mean of integers of 64 bits, by the sums of their high and low halves."""
    high, low = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for plane in planes:
        high += _sums((plane >> plane.dtype.type(32)).astype(np.int64), ratios, shape)
        low += _sums((plane & plane.dtype.type(2**32 - 1)).astype(np.int64), ratios, shape)
    count = np.asarray(items, np.int64) * len(planes)
    quotient, rest = np.divmod(high, count)
    lower = ((rest << 32) + low + count // 2) // count
    dtype = planes[0].dtype
    mean: NDArray[Any] = (quotient.astype(dtype) << dtype.type(32)) + lower.astype(dtype)
    return mean


def _sums(plane: NDArray[Any], ratios: Sequence[int], shape: Sequence[int]) -> NDArray[Any]:
    wide = _WIDE.get(plane.dtype.kind) or _wider(plane.dtype)
    result: NDArray[Any] = plane
    for axis, (ratio, size) in enumerate(zip(ratios, shape, strict=True)):
        if ratio == 1:
            result = result[_along(axis, slice(0, size))]
            continue
        parts = [
            result[_along(axis, slice(first, size * ratio, ratio))] for first in range(min(ratio, result.shape[axis]))
        ]
        if len(parts) == 1:
            result = parts[0]
            continue
        is_whole = parts[1].shape == parts[0].shape
        sums = np.add(parts[0], parts[1], dtype=wide) if is_whole else parts[0].astype(wide)
        for part in parts[2:] if is_whole else parts[1:]:
            sums[_along(axis, slice(0, part.shape[axis]))] += part
        result = sums
    return result.astype(wide, copy=result is plane or not result.flags.owndata)


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint32) if dtype.kind == "u" and dtype.itemsize <= 2 else np.dtype(np.int64)


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), part)


def _counts(sizes: Sequence[int], ratios: Sequence[int], shape: Sequence[int]) -> int | NDArray[np.uint32]:
    """Number of items in each mean: one number where it is the same for all."""
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


def _divide(total: NDArray[Any], items: int | NDArray[np.uint32], result: NDArray[Any]) -> None:
    if result.dtype.kind in _WIDE:
        np.divide(total, items, out=result, casting="same_kind")
        return
    if isinstance(items, int) and items & (items - 1) == 0:
        total += total.dtype.type(items // 2)
        total >>= total.dtype.type(items.bit_length() - 1)
    else:
        half = items // 2
        total += np.asarray(half, total.dtype)
        total //= np.asarray(items, total.dtype)
    np.copyto(result, total, casting="unsafe")


def _has_pairs(planes: Sequence[NDArray[Any]], items: int, ratios: Sequence[int], shape: Sequence[int]) -> bool:
    """True if two neighbours go into one mean, and can be read as one number with bits for their sums."""
    plane = planes[0]
    if plane.ndim != 2 or plane.dtype not in _WIDER or not plane.dtype.isnative or items > 2 ** (8 * plane.itemsize):
        return False
    is_dense = all(one.flags.c_contiguous and one.ctypes.data % (2 * one.itemsize) == 0 for one in planes)
    return is_dense and ratios[1] == 2 and plane.shape[1] == 2 * shape[1] and plane.shape[0] >= ratios[0] * shape[0]


_means = BlockMean()


def picture_ratio(shape: Sequence[int], max_side: int) -> int:
    """Pixels of a frame (Y, X[, 3]) along y and along x that a pixel of `small_picture` stands for."""
    return -(-max(shape[:2]) // max_side)


def small_picture(frame: NDArray[Any], low: float, high: float, max_side: int) -> NDArray[np.uint8]:
    """The means of blocks of a frame (Y, X) or (Y, X, 3), with at most max_side pixels along y and x.

    Values from low to high become 0 to 255. RGB of 8 bits keeps its values.
    """
    ratio = picture_ratio(frame.shape, max_side)
    if ratio > 1:
        ratios = (ratio, ratio, *(1 for _ in frame.shape[2:]))
        frame = _means.mean([frame], ratios, reduced_shape(frame.shape, ratios))
    if frame.ndim == 3 and frame.dtype == np.uint8:
        return np.ascontiguousarray(frame, np.uint8)
    if frame.dtype.kind == "u" and frame.dtype.itemsize <= 2:
        values = np.arange(2 ** (8 * frame.dtype.itemsize))
        table = _grey(values, low, high)  # 20 times as fast as the arithmetic for each pixel
        picture: NDArray[np.uint8] = table[frame]
        return picture
    return _grey(frame, low, high)


def _grey(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    scaled = (values.astype(np.float32) - low) * (255 / max(high - low, 1e-9))
    return (scaled + 0.5).clip(0, 255).astype(np.uint8)
