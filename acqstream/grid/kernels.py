"""Chooses the kernels for pixels once, at import: compiled ones, or numpy; and the memory for steps in between.

The compiled kernels (`_kernels.c`) do uint8 and uint16 items of any byte order. Each function here returns whether it
has done the work; where it has not, the caller does it with numpy, which gives the same bits. So a machine without a
compiler, or without a wheel, works in the same way. ACQSTREAM_KERNELS=0 in the environment selects numpy.

A block view is a plane in chunks, with three dimensions for each axis: chunks of all axes, blocks in a chunk of all
axes, items in a block of all axes.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

VARIABLE = "ACQSTREAM_KERNELS"
INTERFACE = 1
"""Number of the functions' interface, also in `_kernels.c`; an editable install may keep a binary of another one."""
PAST_CACHE_BYTES = 4 * 2**20
"""Size of memory from which on it is written past the processor's cache: less may still be there when it is read."""
_MAX_AXES = 3
_PLANE_COUNTS = frozenset({1, 2, 4, 8})  # powers of two: the division for a mean is a shift
_RATIOS = frozenset({1, 2})


def _choose() -> tuple[ModuleType | None, str]:
    """Return the compiled module, or None and the reason."""
    if os.environ.get(VARIABLE) == "0":
        return None, f"{VARIABLE}=0"
    try:
        from acqstream.grid import _kernels
    except ImportError as error:
        return None, f"the compiled kernels are missing: {error}"
    if _kernels.INTERFACE != INTERFACE:
        return None, f"the compiled kernels have interface {_kernels.INTERFACE}, expected {INTERFACE}: install again"
    return _kernels, ""


compiled, reason = _choose()
"""The compiled module, and the reason why it is None."""


def kernels_name() -> Literal["compiled", "numpy"]:
    """Return which kernels this process uses."""
    return "numpy" if compiled is None else "compiled"


def put(block_view: NDArray[Any], pixels: NDArray[Any], begin: Sequence[int], *, is_past_cache: bool) -> bool:
    """Copy pixels (n axes) to the items of a block view (3n dimensions) that start at `begin`, in its byte order.

    Raises ValueError for items beyond it.
    """
    if (
        compiled is None
        or pixels.ndim > _MAX_AXES
        or not _are_fit(block_view, pixels)
        or np.may_share_memory(block_view, pixels)
    ):
        return False
    compiled.put(block_view, pixels, tuple(begin), is_past_cache)
    return True


def equal(one: NDArray[Any], other: NDArray[Any]) -> bool | None:
    """Return whether two arrays of one shape have equal items; None if numpy has to compare them."""
    if compiled is None or one.shape != other.shape or not 0 < one.ndim <= _MAX_AXES or not _are_fit(one, other):
        return None
    return bool(compiled.equal(one, other))


def halve(source: NDArray[Any], target: NDArray[Any], *, is_half_up: bool) -> bool:
    """Write means of 2 x 2 pixels of an image (y, x[, samples]) into `target`, halves rounded up or truncated.

    Blocks at an odd edge have fewer pixels, at least one. Raises ValueError if the target has more pixels than blocks.
    """
    if compiled is None or source.ndim not in (2, 3) or not _are_fit(target, source):
        return False
    if np.may_share_memory(target, source):
        return False
    compiled.halve(source, target, is_half_up)
    return True


def reduce(
    planes: Sequence[NDArray[Any]],
    limits: Sequence[int],
    block_view: NDArray[Any],
    begin: Sequence[int],
    shape: Sequence[int],
    *,
    ratios: Sequence[int],
    is_past_cache: bool,
) -> bool:
    """Write means of planes in chunks into `shape` items of a block view that start at `begin`, halves rounded up.

    Each mean is of `ratios` items along the axes, in all planes; items beyond `limits` do not exist. planes: block
    views of one shape and layout. Raises ValueError for a mean without items, and for items beyond a block view.
    """
    if (
        compiled is None
        or len(limits) > _MAX_AXES
        or len(planes) not in _PLANE_COUNTS
        or not _RATIOS.issuperset(ratios)
    ):
        return False
    if not all(_are_fit(block_view, plane) and not np.may_share_memory(block_view, plane) for plane in planes):
        return False
    compiled.reduce(tuple(planes), tuple(limits), block_view, tuple(begin), tuple(shape), tuple(ratios), is_past_cache)
    return True


def _are_fit(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether both have items of 8 or of 16 bits without a sign."""
    size = one.dtype.itemsize
    return one.dtype.kind == other.dtype.kind == "u" and size == other.dtype.itemsize and size <= 2


_SHIFT_BYTES = 1088
"""Bytes by which the offsets of arrays in a page differ. If loads and stores are at the same offset of different
pages, processors assume that one depends on the other, and every step lasts half as long again."""


class Scratch:
    """Arrays by number, of any shape and dtype; what was in them is lost. Used by one thread."""

    def __init__(self) -> None:
        self._memory: dict[int, NDArray[np.uint8]] = {}

    def array(self, number: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Each number has its own offset within a page, and images have another."""
        length = math.prod(shape) * dtype.itemsize
        memory = self._memory.get(number)
        if memory is None or len(memory) < length:
            memory = np.empty(length + 2 * mmap.PAGESIZE, np.uint8)
            start = -memory.ctypes.data % mmap.PAGESIZE + (number + 1) * _SHIFT_BYTES % mmap.PAGESIZE
            memory = self._memory[number] = memory[start : start + length]
        return memory[:length].view(dtype).reshape(shape)
