"""Selections of an array as in numpy: slices, integers and Ellipsis."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import EllipsisType
from typing import Any, SupportsIndex

from numpy.typing import NDArray

Selector = slice | SupportsIndex | EllipsisType
Selection = Selector | tuple[Selector, ...]


def as_numpy(read: Callable[[], NDArray[Any]], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """The result of `__array__`. Raises ValueError where no copy is allowed."""
    if copy is False:
        raise ValueError("data in files cannot become an array without a copy")
    array = read()
    return array if dtype is None else array.astype(dtype, copy=False)


def expand(selection: Selection, shape: tuple[int, ...]) -> tuple[tuple[range, ...], tuple[slice | int, ...]]:
    """The selected positions along each axis, in their order, and the index that drops axes selected by an integer.

    Raises IndexError if the selection does not fit `shape`, TypeError for anything else than `Selector`.
    """
    items = selection if isinstance(selection, tuple) else (selection,)
    ellipses = sum(item is Ellipsis for item in items)
    n_selectors = len(items) - ellipses
    if ellipses > 1 or n_selectors > len(shape):
        raise IndexError(f"selection {selection!r} does not fit an array of {len(shape)} dimensions")
    fill = (slice(None),) * (len(shape) - n_selectors)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    full = (*items, *fill) if at is None else (*items[:at], *fill, *items[at + 1 :])
    ranges = tuple(_positions(item, axis, size) for axis, (item, size) in enumerate(zip(full, shape, strict=True)))
    return ranges, tuple(slice(None) if isinstance(item, slice) else 0 for item in full)


def as_slice(positions: range) -> slice:
    """The slice that takes these positions, none of them negative."""
    stop = positions.start + positions.step * len(positions)
    return slice(positions.start, stop if stop >= 0 else None, positions.step)


def _positions(item: Selector, axis: int, size: int) -> range:
    if isinstance(item, slice):
        return range(*item.indices(size))
    if isinstance(item, EllipsisType):
        raise AssertionError("an Ellipsis was expanded before")
    try:
        index = operator.index(item)
    except TypeError:
        raise TypeError(f"axis {axis} is selected with {item!r:.60}; expected an integer, a slice or ...") from None
    if not -size <= index < size:
        text = f" with size {size}" if size else ": it has no frame yet"
        raise IndexError(f"index {index} is out of bounds for axis {axis}{text}")
    return range(index % size, index % size + 1)
