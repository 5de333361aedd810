"""Taking checked values out of a decoded header."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from acqstream.errors import ProtocolError

_DATASET_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{3,63}")
MAX_INTEGER = 2**63 - 1


def take_integer(fields: Mapping[str, Any], key: str, *, least: int = 0, most: int = MAX_INTEGER) -> int:
    """The integer under `key`. Raises ProtocolError if it is missing, of another type or out of range."""
    value = fields.get(key)
    if type(value) is not int or not least <= value <= most:
        raise ProtocolError(f"field {key!r} must be an integer from {least} to {most}, not {_shown(value)}")
    return value


def take_optional_integer(fields: Mapping[str, Any], key: str, *, least: int = 0) -> int | None:
    """As `take_integer`, None where the field is missing or null."""
    return None if fields.get(key) is None else take_integer(fields, key, least=least)


def take_text(fields: Mapping[str, Any], key: str, *, default: str | None = None, longest: int = 4096) -> str:
    """The string under `key`. Raises ProtocolError if it is missing without a default, no string, or too long."""
    value = fields.get(key, default)
    if type(value) is not str or len(value) > longest or not _is_unicode(value):
        raise ProtocolError(f"field {key!r} must be a string of at most {longest} characters, not {_shown(value)}")
    return value


def _is_unicode(text: str) -> bool:
    """False for lone surrogates, which JSON can bring in and nothing can send on."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def take_map(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The map under `key`, empty where it is missing or null."""
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(type(name) is str for name in value):
        raise ProtocolError(f"field {key!r} must be a map with string keys, not {_shown(value)}")
    return value


def take_dataset_id(fields: Mapping[str, Any]) -> str:
    """The dataset id under `ds`: 4 to 64 letters, digits and dashes."""
    value = fields.get("ds")
    if type(value) is not str or not _is_dataset_id(value):
        raise ProtocolError(f"field 'ds' must be 4 to 64 letters, digits or dashes, not {_shown(value)}")
    return value


@functools.lru_cache(maxsize=256)  # asked for with every frame
def _is_dataset_id(value: str) -> bool:
    return _DATASET_ID.fullmatch(value) is not None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
