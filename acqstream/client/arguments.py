"""Checks of the arguments of `create`. They raise ConfigError with the name, the expected and the given value."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from acqstream.client.plain_metadata import Changes, plain_metadata
from acqstream.errors import ConfigError, ProtocolError
from acqstream.model.metadata import MAX_SUMMARY_BYTES

_MAX_COUNT = 2**63 - 1
_MAX_DURABILITY_S = 3600
_SHOWN_CHARACTERS = 60


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raise the ConfigError."""
    raise ConfigError(f"{name}={_shown(value)} must be {expected}; its type is {type(value).__name__}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an object that cannot even be shown
        return "..."
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def checked_text(name: str, value: object, expected: str = "text") -> str:
    """A str; of subclasses, such as those of enumerations, the plain text."""
    if not isinstance(value, str):
        refuse(name, value, expected)
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as in file names that are not Unicode
        refuse(name, value, f"{expected} without surrogates")
    return text


def checked_choice(name: str, value: object, choices: Sequence[str | None]) -> Any:
    """One of `choices`, as plain text or None."""
    if value is None or isinstance(value, str):
        text = None if value is None else str.__str__(value)
        if text in choices:
            return text
    refuse(name, value, "one of " + ", ".join(map(repr, choices)))


def checked_flag(name: str, value: object) -> bool:
    """True or False, also from numpy; 0 and 1 stand for them."""
    if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
        return bool(value)
    refuse(name, value, "True or False")


def checked_number(name: str, value: object, expected: str, *, below: float = math.inf) -> float:
    """A finite number above 0 and below `below`."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        refuse(name, value, expected)
    try:
        number = float(value)
    except OverflowError:  # an int of hundreds of digits
        refuse(name, value, expected)
    if not 0 < number < below:  # neither is NaN
        refuse(name, value, expected)
    return number


def checked_count(name: str, value: object) -> int | None:
    """A count, or None."""
    if value is None:
        return None
    expected = "None or an integer, 0 or more"
    if isinstance(value, bool | np.bool_):
        refuse(name, value, expected)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        refuse(name, value, expected)
    if not 0 <= count <= _MAX_COUNT:
        refuse(name, value, expected)
    return count


def checked_metadata(name: str, value: object) -> tuple[dict[str, Any], Changes]:
    """As `plain_metadata` of a summary; an empty map for None."""
    if value is None:
        return {}, Changes()
    if not isinstance(value, Mapping):
        refuse(name, value, "a mapping")
    try:
        return plain_metadata(value, MAX_SUMMARY_BYTES)
    except ProtocolError as error:
        raise ConfigError(f"{name}: {error}") from error


def checked_options(name: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """A map of settings, as plain values; one that would become null or another text is refused."""
    plain, changes = checked_metadata(name, value)
    for _, text in changes.warnings(name):
        refuse(name, value, f"a map of text, finite numbers, lists and maps ({text.partition(';')[0]})")
    return plain


def checked_list(name: str, value: object, expected: str) -> list[Any]:
    """The items of a list or another iterable; texts and mappings are refused."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        refuse(name, value, expected)
    try:
        return list(value)
    except TypeError:  # an array without axes
        refuse(name, value, expected)


def checked_durability(value: object) -> str | float | None:
    """The argument `durability`; None for the default."""
    expected = f"'close', 'batch' or a number of seconds above 0, at most {_MAX_DURABILITY_S}"
    if value is None:
        return None
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text in ("close", "batch") else refuse("durability", value, expected)
    seconds = checked_number("durability", value, expected)
    return seconds if seconds <= _MAX_DURABILITY_S else refuse("durability", value, expected)


def checked_path(name: str, value: object) -> str | None:
    """A path, or a key as text, or None."""
    if value is None:
        return None
    text = checked_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value, "a path or None")
    return refuse(name, value, "a path without NUL") if "\0" in text else text


def checked_callback(name: str, value: object) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        refuse(name, value, "a function or None")
