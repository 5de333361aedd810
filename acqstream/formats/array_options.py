"""Options of a chunk format as a user wrote them. Every error names the format, the option and what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from acqstream.errors import ConfigError

MAX_LEVELS = 16
MAX_CHUNK_ITEMS = 2**31 - 1

_Choice = TypeVar("_Choice", bound=str)


class OptionReader:
    """Reads the options of one format. Methods raise ConfigError; a default stands for an option that is missing.

    label: the format's name in errors.
    """

    def __init__(self, label: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
        for name in given:
            if name not in known:
                raise ConfigError(f"{label} has no option {name!r}, only {', '.join(known)}")
        self._label = label
        self.given = given

    def choice(self, name: str, choices: tuple[_Choice, ...], default: str = "", *, verb: str = "is") -> _Choice:
        """One of these texts; without a default the first one is it."""
        value = self.given.get(name, default or choices[0])
        for choice in choices:
            if choice == value:
                return choice
        raise self.wrong(name, f"one of {', '.join(choices)}", default or choices[0], verb=verb)

    def flag(self, name: str) -> bool:
        """An option that is true unless it is turned off."""
        value = self.given.get(name, True)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def levels(self) -> int | None:
        """The number of resolution levels; None for "auto"."""
        value = self.given.get("levels", "auto")
        if value == "auto":
            return None
        if type(value) is int and 0 < value <= MAX_LEVELS:
            return value
        raise self.wrong("levels", f'"auto" or 1 to {MAX_LEVELS}', verb="are")

    def chunks(self, name: str = "chunks", max_items: int = MAX_CHUNK_ITEMS) -> tuple[int, int, int] | None:
        """The extents (z, y, x) of a chunk of at most max_items; None for "auto"."""
        value: Any = self.given.get(name, "auto")
        if value == "auto":
            return None
        is_shape = isinstance(value, list | tuple) and len(value) == 3
        if is_shape and all(type(side) is int and side > 0 for side in value) and math.prod(value) <= max_items:
            z, y, x = value
            return z, y, x
        extents = ": the extents in z, y, x"
        if max_items < MAX_CHUNK_ITEMS:
            extents = f", the extents in z, y, x, of at most {max_items} items"
        raise self.wrong(name, f'"auto" or three positive integers{extents}', verb="are")

    def wrong(self, name: str, expected: str, default: object = None, *, verb: str = "is") -> ConfigError:
        """The error for an option that is not what was expected."""
        value = self.given.get(name, default)
        return ConfigError(f"{self._label} {name} {verb} {value!r:.80}, expected {expected}")
