"""Fields of a JSON file that others may have written: found and of the right kind, or an error that names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset
from acqstream.model.finite_number import finite_number
from acqstream.storage import json_file

_LARGEST_NUMBER = 2**32 - 1  # voxel positions are 32 bit in every implementation


def read_json_object(path: Path) -> Fields:
    """The JSON object in a file. Raises CorruptDataset, StorageError."""
    return Fields(json_file.read_json_object(path), str(path), "")


class Fields:
    """A JSON object; every method raises CorruptDataset that names the file, the field and what was expected."""

    def __init__(self, value: object, path: str, place: str) -> None:
        self._path = path
        self._place = place
        if not isinstance(value, dict):
            raise self._wrong("", "an object", value)
        self.values: Mapping[str, Any] = value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number of 0 to 2^32 - 1."""
        return self._count(name, self.values.get(name, default))

    def child(self, name: str) -> Fields:
        return Fields(self.values.get(name), self._path, f"{self._place}{name}.")

    def children(self, name: str) -> list[Fields]:
        return [
            Fields(item, self._path, f"{self._place}{name}[{at}].") for at, item in enumerate(self._list(name, None))
        ]

    def texts(self, name: str, length: int | None = None) -> tuple[str, ...]:
        items = self._list(name, length)
        if not all(isinstance(item, str) for item in items):
            raise self._wrong(name, "a list of texts", items)
        return tuple(items)

    def numbers(self, name: str, length: int) -> tuple[int, ...]:
        """So many whole numbers of 0 to 2^32 - 1."""
        return tuple(self._count(name, item) for item in self._list(name, length))

    def reals(self, name: str, length: int) -> tuple[float, ...]:
        """So many finite numbers."""
        items = self._list(name, length)
        found = [number for item in items if (number := finite_number(item)) is not None]
        if len(found) < len(items):
            raise self._wrong(name, "finite numbers", items)
        return tuple(found)

    def _count(self, name: str, value: object) -> int:
        if type(value) is not int or not 0 <= value <= _LARGEST_NUMBER:
            raise self._wrong(name, f"a whole number of 0 to {_LARGEST_NUMBER}", value)
        return value

    def _list(self, name: str, length: int | None) -> list[Any]:
        value = self.values.get(name)
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise self._wrong(name, "a list" if length is None else f"a list of {length}", value)
        return value

    def wrong(self, name: str, expected: str) -> CorruptDataset:
        """The error that says of the field `name` what was expected."""
        return self._wrong(name, expected, self.values.get(name))

    def _wrong(self, name: str, expected: str, value: object) -> CorruptDataset:
        place = f"{self._place}{name}".rstrip(".") or "the file"
        return CorruptDataset(f"{place} is {str(value)[:60]!r}, expected {expected}", path=self._path)
