"""Checked fields of a decoded JSON object or msgpack map: types, ranges and lengths are compared here only.

`True` and `1.0` are not integers; NaN and infinity are not numbers. Unknown fields are ignored. A failed check raises
FieldError with the field, what was expected and what was found. The functions check one value and make no object, for
frame headers; `Fields` knows the path of a map in a document and the error of its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from acqstream.errors import FieldError
from acqstream.model.metadata import finite_number

MAX_INTEGER = 2**63 - 1
_MAX_SHOWN = 60  # characters of a wrong value in an error
_Choice = TypeVar("_Choice", bound=str)
_Checked = TypeVar("_Checked")


def check_integer(value: object, name: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
    """`value`, if it is an integer in this range. Raises FieldError."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise field_error(name, f"an integer from {minimum} to {maximum}", value)
    return value


def check_optional_integer(value: object, name: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> int | None:
    """As `check_integer`; None for null or a missing field."""
    return None if value is None else check_integer(value, name, minimum, maximum)


def check_number(value: object, name: str) -> float:
    """`value` as a float, if it is a finite number. Raises FieldError."""
    number = finite_number(value)
    if number is None:
        raise field_error(name, "a finite number", value)
    return number


def check_text(value: object, name: str, max_length: int = MAX_INTEGER) -> str:
    """`value`, if it is a string of at most max_length characters. Raises FieldError."""
    if type(value) is not str or len(value) > max_length:
        bound = "" if max_length == MAX_INTEGER else f" of at most {max_length} characters"
        raise field_error(name, f"a string{bound}", value)
    return value


def check_flag(value: object, name: str) -> bool:
    """`value`, if it is true or false. Raises FieldError."""
    if type(value) is not bool:
        raise field_error(name, "true or false", value)
    return value


def check_choice(value: object, name: str, choices: tuple[_Choice, ...]) -> _Choice:
    """`value`, if it is one of these strings. Raises FieldError."""
    for choice in choices:
        if choice == value:
            return choice
    raise field_error(name, f"one of {', '.join(choices)}", value)


def check_list(value: object, name: str, length: int | None = None) -> Sequence[Any]:
    """`value`, if it is a list of `length` items (None: any number of them). Raises FieldError."""
    if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
        raise field_error(name, "a list" if length is None else f"a list of {length}", value)
    return value


def check_map(value: object, name: str) -> dict[str, Any]:
    """`value`, if it is a map with string keys; empty for null or a missing field. Raises FieldError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(type(key) is str for key in value):
        raise field_error(name, "a map with string keys", value)
    return value


def field_error(name: str, expected: str, value: object) -> FieldError:
    """The error for the field `name`, whose `value` is not what was expected."""
    found = "null or missing" if value is None else repr(value)
    found = found if len(found) <= _MAX_SHOWN else f"{found[: _MAX_SHOWN - 3]}..."
    return FieldError(f"field {name!r} must be {expected}, not {found}")


class Fields:
    """A decoded map. Every method raises what `error` makes of a text: a FieldError by default.

    where is the path of the map in its document: "", or for example "limit.". A default stands for a missing field,
    not for null. max_integer is the largest integer of the document, where a method is given no maximum.
    """

    __slots__ = ("_error", "_max_integer", "_where", "values")

    def __init__(
        self,
        values: object,
        where: str = "",
        error: Callable[[str], Exception] = FieldError,
        max_integer: int = MAX_INTEGER,
    ) -> None:
        self._where = where
        self._max_integer = max_integer
        self._error = error
        if not isinstance(values, dict):
            raise error(str(field_error(where.rstrip(".") or "document", "a map with string keys", values)))
        self.values: Mapping[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def integer(self, name: str, default: int | None = None, *, minimum: int = 0, maximum: int | None = None) -> int:
        return self._checked(
            check_integer,
            name,
            self.values.get(name, default),
            minimum,
            self._max_integer if maximum is None else maximum,
        )

    def optional_integer(self, name: str, *, minimum: int = 0, maximum: int = MAX_INTEGER) -> int | None:
        """None where the field is missing or null."""
        return self._checked(check_optional_integer, name, self.values.get(name), minimum, maximum)

    def text(self, name: str, default: str | None = None, *, max_length: int = MAX_INTEGER) -> str:
        return self._checked(check_text, name, self.values.get(name, default), max_length)

    def number(self, name: str) -> float:
        return self._checked(check_number, name, self.values.get(name))

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._checked(check_flag, name, self.values.get(name, default))

    def choice(self, name: str, choices: tuple[_Choice, ...]) -> _Choice:
        chosen: _Choice = self._checked(check_choice, name, self.values.get(name), choices)
        return chosen

    def mapping(self, name: str) -> dict[str, Any]:
        """A map of any values; empty where the field is missing or null."""
        return self._checked(check_map, name, self.values.get(name))

    def text_map(self, name: str) -> dict[str, str]:
        """A map of strings; empty where the field is missing or null."""
        return {key: self._checked(check_text, f"{name}.{key}", value) for key, value in self.mapping(name).items()}

    def items(self, name: str, length: int | None = None) -> Sequence[Any]:
        """A list of values of any type."""
        return self._checked(check_list, name, self.values.get(name), length)

    def integers(self, name: str, length: int | None = None, *, minimum: int = 0) -> tuple[int, ...]:
        return self._each(check_integer, name, length, minimum, self._max_integer)

    def numbers(self, name: str, length: int | None = None) -> tuple[float, ...]:
        return self._each(check_number, name, length)

    def texts(self, name: str, length: int | None = None) -> tuple[str, ...]:
        return self._each(check_text, name, length)

    def child(self, name: str) -> Fields:
        """The fields of a map."""
        return Fields(self.values.get(name), f"{self._where}{name}.", self._error, self._max_integer)

    def children(self, name: str) -> Iterator[Fields]:
        """The fields of each map in a list."""
        for at, item in enumerate(self.items(name)):
            yield Fields(item, f"{self._where}{name}[{at}].", self._error, self._max_integer)

    def wrong(self, name: str, expected: str) -> Exception:
        """The error for the field `name`, which is not what was expected."""
        return self._error(str(field_error(f"{self._where}{name}", expected, self.values.get(name))))

    def _each(
        self, check: Callable[..., _Checked], name: str, length: int | None, *bounds: int
    ) -> tuple[_Checked, ...]:
        items = self.items(name, length)
        return tuple(self._checked(check, f"{name}[{at}]", item, *bounds) for at, item in enumerate(items))

    def _checked(self, check: Callable[..., _Checked], name: str, value: object, *bounds: object) -> _Checked:
        try:
            return check(value, f"{self._where}{name}", *bounds)
        except FieldError as error:
            raise self._error(str(error)) from None
