"""Metadata as acquisition programs have it, turned into what JSON can hold."""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import PurePath
from typing import Any

import numpy as np

from acqstream.errors import ProtocolError

MAX_DEPTH = 64
_INT64 = range(-(2**63), 2**63)
_SIMPLE = frozenset({str, bool, type(None)})


def plain_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """`metadata` with plain Python values and string keys, and the number of NaN or infinite numbers that became None.

    Plain metadata are returned as they are. Raises ProtocolError naming the entry that cannot be stored.
    """
    if not isinstance(metadata, Mapping):
        raise ProtocolError(f"metadata must be a mapping, not {type(metadata).__name__}")
    if type(metadata) is dict and _is_plain(metadata, 0):
        return metadata, 0
    conversion = _Conversion()
    return conversion.mapping(metadata, "", 0), conversion.replaced


def plain_scalar(value: object) -> object:
    """Numpy scalars, enum members and str subclasses as the plain value they stand for; others as they are."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, int) and type(value) not in (int, bool):
        return int(value)
    return value


def _is_plain(value: object, depth: int) -> bool:
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is int:
        return value in _INT64
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        items = value.items()  # type: ignore[attr-defined]
        return all(type(key) is str and _is_plain(entry, depth + 1) for key, entry in items)
    if kind is list:
        return all(_is_plain(entry, depth + 1) for entry in value)  # type: ignore[attr-defined]
    return False


class _Conversion:
    def __init__(self) -> None:
        self.replaced = 0

    def mapping(self, values: Mapping[Any, Any], place: str, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in values.items():
            name = plain_scalar(key)
            if not isinstance(name, str | int | float) and name is not None:
                raise ProtocolError(f"metadata{place}: key {key!r:.60} must be a string")
            text = name if isinstance(name, str) else str(name)
            if text in plain:
                raise ProtocolError(f"metadata{place}: two keys become {text!r:.60}")
            plain[text] = self.value(value, f"{place}[{text!r:.60}]", depth + 1)
        return plain

    def value(self, value: object, place: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ProtocolError(f"metadata{place[:120]}: nested deeper than {MAX_DEPTH} levels")
        value = plain_scalar(value)
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int):
            return _checked_integer(value, place)
        if isinstance(value, float):
            return self._number(float(value))
        if isinstance(value, np.ndarray):
            return self.value(value.tolist(), place, depth + 1)  # without axes it is a number, or a time
        if isinstance(value, datetime.datetime | datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, PurePath):
            return str(value)
        if isinstance(value, Mapping):
            return self.mapping(value, place, depth)
        if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.value(entry, f"{place}[{i}]", depth + 1) for i, entry in enumerate(value)]
        raise ProtocolError(
            f"metadata{place}: {type(value).__name__} cannot be stored; pass text, numbers, lists or maps"
        )

    def _number(self, value: float) -> float | None:
        if math.isfinite(value):
            return value
        self.replaced += 1
        return None


def _checked_integer(value: int, place: str) -> int:
    if value not in _INT64:
        raise ProtocolError(f"metadata{place}: {value!r:.40} does not fit 64 bits; pass it as text")
    return value
