"""Converts foreign values to plain ones, which JSON and msgpack can store."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from enum import Enum
from typing import Any

import numpy as np

MAX_DEPTH = 24
MAX_ARRAY_VALUES = 256  # an image for a light modulator is not metadata
_PLAIN = frozenset({str, float, bool, type(None)})
_MAX_REASON_CHARACTERS = 1000
_INT64 = range(-(2**63), 2**63)


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as str, int, float, bool, None, and dicts (with string keys) and lists of these.

    Enum members become their values, pydantic objects the fields that were set, times ISO text, spans seconds. Large
    arrays, objects nested too deeply and objects of unknown types become their text: metadata never ends a run.
    """
    if type(value) in _PLAIN:
        return value
    if type(value) is int:
        return value if value in _INT64 else str(value)
    if depth >= MAX_DEPTH:
        return str(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple, AbstractSet)):
        return [plain(entry, depth + 1) for entry in value]
    return _scalar(value, depth + 1)


def _key(key: object) -> str:
    return str(key.value) if isinstance(key, Enum) else str(key)


def _scalar(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), depth) if value.size <= MAX_ARRAY_VALUES else f"{value.dtype} {value.shape}"
    if isinstance(value, np.generic):
        scalar = value.item()
        return str(value) if isinstance(scalar, np.generic) else plain(scalar, depth)  # long double stays what it is
    for kind in (str, int, float):
        if isinstance(value, kind):
            return plain(kind(value), depth)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date):  # datetime is a date
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(exclude_unset=True), depth)
    return str(value)


def sendable_reason(reason: str) -> str:
    """`reason`, cut, without half surrogates, which file names in errors may have and no message can carry."""
    return reason[:_MAX_REASON_CHARACTERS].encode("utf-8", "replace").decode()
