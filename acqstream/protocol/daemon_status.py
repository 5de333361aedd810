"""The status of a whole daemon, as much of it as fits into one header part."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_STATUS_BYTES = 15 * 2**16
"""Of its lists, as JSON: all of the status must fit into one header part."""


def as_much_as_fits(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """`values`, or where they are too long the first acquisitions, the first mirrors and the latest warnings.

    `left_out` then tells how many of each are missing.
    """
    if _json_bytes(values) <= MAX_STATUS_BYTES:
        return values
    acquisitions, mirrors = values.get("acquisitions", []), values.get("views", {}).get("mirrors", [])
    kept, room = _first_of(({**one, "warnings": []} for one in acquisitions), MAX_STATUS_BYTES)
    kept_mirrors, room = _first_of(mirrors, room)
    left_out = {"acquisitions": len(acquisitions) - len(kept), "mirrors": len(mirrors) - len(kept_mirrors)}
    left_out["warnings"] = 0
    for one, whole in zip(kept, acquisitions, strict=False):
        warnings = whole.get("warnings", [])
        latest, _ = _first_of(reversed(warnings), room // len(kept))
        one["warnings"] = latest[::-1]
        left_out["warnings"] += len(warnings) - len(latest)
    views = {**values.get("views", {}), "mirrors": kept_mirrors}
    return {**values, "acquisitions": kept, "views": views, "left_out": left_out}


def _first_of(entries: Iterable[Any], room: int) -> tuple[list[Any], int]:
    """Those that fit into so many bytes, and what is left of these."""
    kept: list[Any] = []
    for entry in entries:
        size = _json_bytes(entry)
        if size > room:
            break
        kept.append(entry)
        room -= size
    return kept, room


def _json_bytes(entry: object) -> int:
    return len(json.dumps(entry)) + 2  # and a comma
