"""Requested mirrors: names of formats, or maps with "format" and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acqstream.errors import ProtocolError
from acqstream.model.view_spec import ViewSpec, is_view_name

MAX_MIRRORS = 16
MAX_SETTINGS_BYTES = 4096


def parse_views(value: object) -> tuple[ViewSpec, ...]:
    """The requested views, in order. Raises ProtocolError.

    The name of each is that of its format, or "name" of its settings; a further mirror in the same format gets a
    number. The existence of a format is not checked here.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MAX_MIRRORS:
        raise ProtocolError(f"field 'mirrors' must be a list of at most {MAX_MIRRORS} names, or maps with 'format'")
    views: dict[str, ViewSpec] = {}
    for entry in value:
        settings = _checked(entry) if isinstance(entry, Mapping) else {}
        kind = settings["format"] if settings else entry
        name = settings.get("name", kind)
        if not isinstance(name, str) or not is_view_name(name):
            raise ProtocolError(
                f"field 'mirrors': {name!r:.60} is not a name of a mirror: up to 32 letters, digits, _ and -"
            )
        if settings and "name" not in settings:
            name = _numbered(name, views)
        elif settings and name in views:
            raise ProtocolError(f"field 'mirrors': two have the name {name!r}")
        views[name] = ViewSpec(kind, settings, name)
    return tuple(views.values())


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


def _numbered(name: str, views: Mapping[str, ViewSpec]) -> str:
    """A free name: n5, n5-2, n5-3 ..."""
    if name not in views:
        return name
    return next(text for number in range(2, MAX_MIRRORS + 2) if (text := f"{name}-{number}") not in views)
