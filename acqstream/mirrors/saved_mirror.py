"""State of a mirror in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acqstream.arrays.array_spec import Position
from acqstream.errors import CannotResume
from acqstream.views.saved_state import field, integers, items, of_kind

MAX_LAYERS = 16


@dataclass(frozen=True, slots=True)
class SavedTasks:
    """Tasks of a mirror made by several processes, of a dataset with `rows` frames. done: half-open runs of units."""

    rows: int
    done: tuple[tuple[int, int], ...]
    cut: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SavedMirror:
    """unstored: level and position of slabs that are not complete in the files; cut: level, position and sizes of
    slabs that were reduced at a provisional end. tasks: None where one process makes the mirror."""

    unstored: tuple[tuple[int, Position], ...] = ()
    cut: tuple[tuple[int, Position, tuple[int, ...]], ...] = ()
    tasks: SavedTasks | None = None

    @staticmethod
    def parse(state: Mapping[str, Any], levels: int) -> SavedMirror:
        """Read the state of a mirror of `levels` levels. Raises CannotResume for values that no mirror writes."""
        unstored: object = ()
        cut: object = ()
        if items(state.get("open"), "state field 'open'"):
            unstored, cut = items(state["open"], "state field 'open'", 2)
        return SavedMirror(
            tuple(_slab(slab, levels) for slab in items(unstored, "the unstored slabs")),
            _cut_slabs(cut, levels),
            None if state.get("parts") is None else _tasks(field(state, "parts", dict), levels),
        )


def layers_of_slabs(state: Mapping[str, Any]) -> int:
    """The layers of the slabs that the state names, see `ChunkPlan`. Raises CannotResume for other values."""
    if "layers" not in state:
        return 1  # before slabs joined layers
    layers: int = field(state, "layers", int)
    if not 1 <= layers <= MAX_LAYERS:
        raise CannotResume(f"the state names slabs of {layers} layers, expected 1 to {MAX_LAYERS}")
    return layers


def _tasks(values: Mapping[str, Any], levels: int) -> SavedTasks:
    done = []
    for run in items(values.get("done"), "the finished tasks"):
        first, stop = integers(items(run, "a finished task", 2), "a finished task")
        done.append((first, stop))
    return SavedTasks(field(values, "rows", int), tuple(done), _cut_slabs(values.get("cut"), levels))


def _cut_slabs(value: object, levels: int) -> tuple[tuple[int, Position, tuple[int, ...]], ...]:
    found = []
    for slab in items(value, "the provisional slabs"):
        level, key, sizes = items(slab, "a provisional slab", 3)
        found.append((*_slab((level, key), levels), integers(sizes, "sizes of a slab")))
    return tuple(found)


def _slab(value: object, levels: int) -> tuple[int, Position]:
    level, key = items(value, "a slab", 2)
    if not 0 <= of_kind(level, int, "the level of a slab") < levels:
        raise CannotResume(f"the state names level {level!r:.60}, the mirror has {levels}")
    return level, integers(key, "the position of a slab")
