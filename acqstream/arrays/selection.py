"""What part of an array is asked for, in numpy's words: slices, integers and Ellipsis."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import EllipsisType
from typing import Any, SupportsIndex

from numpy.typing import NDArray

Selector = slice | SupportsIndex | EllipsisType
Selection = Selector | tuple[Selector, ...]


def as_numpy(read: Callable[[], NDArray[Any]], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """What numpy asks of `__array__`. Raises ValueError where no copy is allowed."""
    if copy is False:
        raise ValueError("what lies in files cannot become an array without a copy")
    array = read()
    return array if dtype is None else array.astype(dtype, copy=False)


def expand(selection: Selection, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """One slice or integer (checked, not negative) per axis.

    Raises IndexError if it does not fit `shape`, TypeError for anything else than `Selector`.
    """
    items = selection if isinstance(selection, tuple) else (selection,)
    ellipses = sum(item is Ellipsis for item in items)
    given = len(items) - ellipses
    if ellipses > 1 or given > len(shape):
        raise IndexError(f"selection {selection!r} does not fit an array of {len(shape)} dimensions")
    fill = (slice(None),) * (len(shape) - given)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    full = (*items, *fill) if at is None else (*items[:at], *fill, *items[at + 1 :])
    return tuple(_selector(item, axis, size) for axis, (item, size) in enumerate(zip(full, shape, strict=True)))


def positions(selector: slice | int, size: int) -> range:
    """The positions that an expanded selector takes from an axis of this size, in its order."""
    return range(*selector.indices(size)) if isinstance(selector, slice) else range(selector, selector + 1)


def as_slice(taken: range) -> slice:
    """The slice that takes these positions, none of them negative."""
    stop = taken.start + taken.step * len(taken)
    return slice(taken.start, stop if stop >= 0 else None, taken.step)


def _selector(item: Selector, axis: int, size: int) -> slice | int:
    if isinstance(item, slice):
        return item
    if isinstance(item, EllipsisType):
        raise AssertionError("an Ellipsis was expanded before")
    try:
        index = operator.index(item)
    except TypeError:
        raise TypeError(f"axis {axis} is selected with {item!r:.60}; expected an integer, a slice or ...") from None
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index % size
