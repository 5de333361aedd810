"""State of a pyramid in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from acqstream.errors import CannotResume
from acqstream.model.acquisition_spec import MAX_LEVELS
from acqstream.views.pyramid_tiles import TileKey
from acqstream.views.saved_state import field, integers, items, of_kind


class OpenTile(NamedTuple):
    """A tile that is not complete in the files of its level and the next one."""

    key: TileKey
    is_dirty: bool


@dataclass(frozen=True, slots=True)
class PyramidState:
    """is_remaking: a rebuild was interrupted. index_bytes: size of each level's index, from level 1 on."""

    is_remaking: bool
    index_bytes: tuple[int, ...]
    open: tuple[OpenTile, ...]

    @staticmethod
    def parse(values: Mapping[str, Any]) -> PyramidState:
        """Raises CannotResume for values that no pyramid writes."""
        index_bytes = integers(values.get("index_bytes"), "state field 'index_bytes'")
        if len(index_bytes) > MAX_LEVELS:
            raise CannotResume(f"the state lists {len(index_bytes)} levels, at most {MAX_LEVELS} are written")
        tiles = items(values.get("open"), "state field 'open'")
        return PyramidState(field(values, "is_remaking", bool), index_bytes, tuple(map(_open_tile, tiles)))


def _open_tile(value: object) -> OpenTile:
    level, row, column, is_dirty, other_axes = items(value, "an open tile", 5)
    numbers = integers([level, row, column], "an open tile")
    axes = tuple(_axis(pair) for pair in items(other_axes, "the axes of an open tile"))
    return OpenTile(TileKey(numbers[0], axes, numbers[1], numbers[2]), bool(of_kind(is_dirty, int, "is_dirty")))


def _axis(pair: object) -> tuple[str, int | str]:
    name, value = items(pair, "an axis of an open tile", 2)
    if not isinstance(value, int | str):
        raise CannotResume(f"axis {name!r:.60} of an open tile is {value!r:.60}, expected an int or a string")
    return of_kind(name, str, "the name of an axis"), value
