"""The names of stage positions in a summary, by the number of the position. Pure.

Sources: summary metadata of Micro-Manager 1.4 (InitialPositionList) and 2 (StagePositions); serialized useq sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POSITION_NAMES = "PositionNames"
"""Key of the summary: a list of the names of all positions, as our clients write it."""

_LISTS = (("StagePositions", "Label"), ("InitialPositionList", "Label"))


def position_names(summary: Mapping[str, Any]) -> list[str]:
    """The names of all positions; [] if one has none, or no list of them is known."""
    lists = [summary.get(POSITION_NAMES)]
    lists += [_column(summary.get(name), key) for name, key in _LISTS]
    sequence = summary.get("mda_sequence")
    lists.append(_column(sequence.get("stage_positions"), "name") if isinstance(sequence, Mapping) else None)
    for names in lists:
        if isinstance(names, list) and names and all(isinstance(name, str) and name for name in names):
            return names
    return []


def _column(entries: object, key: str) -> list[Any] | None:
    if not isinstance(entries, list):
        return None
    return [entry.get(key) if isinstance(entry, Mapping) else None for entry in entries]
