"""Mirrors as they are asked for: names of formats, or maps with "format" and its options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from acqstream.errors import ProtocolError

MAX_MIRRORS = 16
MAX_SETTINGS_BYTES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def parse_mirrors(value: object) -> dict[str, dict[str, Any]]:
    """By name, in the order given: the settings of each, empty where it is the format alone.

    The name is that of the format, or "name" of the settings; a further mirror in the same format gets a number. What
    formats there are, others know. Raises ProtocolError.
    """
    if value is None:
        return {}
    if not isinstance(value, list | tuple) or len(value) > MAX_MIRRORS:
        raise ProtocolError(f"field 'mirrors' must be a list of at most {MAX_MIRRORS} names, or maps with 'format'")
    found: dict[str, dict[str, Any]] = {}
    for entry in value:
        if isinstance(entry, Mapping):
            settings = _checked(entry)
            name = settings.get("name", settings["format"])
        else:
            name, settings = entry, {}
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ProtocolError(
                f"field 'mirrors': {name!r:.60} is no name of a mirror: up to 32 letters, digits, _ and -"
            )
        if settings and "name" not in settings:
            name = _numbered(name, found)
        elif settings and name in found:
            raise ProtocolError(f"field 'mirrors': there are two with the name {name!r}")
        found[name] = settings
    return found


def _checked(entry: Mapping[Any, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("format"), str):
        raise ProtocolError(f"field 'mirrors': {entry!r:.60} has no 'format'")
    try:
        text = json.dumps(dict(entry), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"field 'mirrors' cannot be stored as JSON: {error}") from error
    if len(text) > MAX_SETTINGS_BYTES:
        raise ProtocolError(f"field 'mirrors': settings of {len(text)} bytes; at most {MAX_SETTINGS_BYTES} are allowed")
    settings: dict[str, Any] = json.loads(text)
    return {"format": settings["format"]} if set(settings) == {"format"} else settings


def _numbered(name: str, found: Mapping[str, Any]) -> str:
    """A name that is not taken: n5, n5-2, n5-3 ..."""
    if name not in found:
        return name
    return next(text for number in range(2, MAX_MIRRORS + 2) if (text := f"{name}-{number}") not in found)
