"""Fields of a view's saved state, checked one by one.

Each check raises CannotResume, so that the code which applies a state needs no `except` that could hide its own errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from acqstream.errors import CannotResume

_T = TypeVar("_T")


def field(state: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    """Return the value of a field, of exactly this type: True is not an int. Raises CannotResume."""
    return of_kind(state.get(name), kind, f"state field {name!r}")


def of_kind(value: object, kind: type[_T], what: str) -> _T:
    """Return the value if it has exactly this type. Raises CannotResume, with `what` as its name."""
    if type(value) is not kind:
        raise CannotResume(f"{what} is {value!r:.60}, expected {kind.__name__}")
    return value


def integers(value: object, what: str) -> tuple[int, ...]:
    """Return a list of integers as a tuple. Raises CannotResume, with `what` as its name."""
    return tuple(of_kind(item, int, f"an item of {what}") for item in items(value, what))


def items(value: object, what: str, count: int | None = None) -> Sequence[Any]:
    """Return a list or tuple, of `count` items unless that is None. Raises CannotResume, with `what` as its name."""
    if not isinstance(value, list | tuple) or count not in (None, len(value)):
        expected = "a list" if count is None else f"a list of {count} items"
        raise CannotResume(f"{what} is {value!r:.60}, expected {expected}")
    return value
