"""Names and stage positions of images: of positions, and of tiles that are images of their own. Pure.

Sources of names: summary metadata of Micro-Manager 1.4 (InitialPositionList) and 2 (StagePositions); serialized useq
sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from acqstream.description.space import Place
from acqstream.model.axes import COLUMN, POSITION, ROW

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


IMAGE_AXES = (POSITION, ROW, COLUMN)
"""Axes of frames along which the stage moves, in the order of `ImagePlaces.axes`."""


@dataclass(frozen=True)  # no slots: the mapping is cached in the instance
class ImagePlaces:
    """The place (z, y, x) of the centre of the first item of each image, where it is known.

    axes are those of IMAGE_AXES that separate the images. entries have the index of an image along them in the stored
    array, and its place: in um, or in items along an axis without a known distance.
    """

    axes: tuple[str, ...] = ()
    entries: tuple[tuple[tuple[int, ...], Place], ...] = ()

    @staticmethod
    def of_positions(places: Sequence[Place | None]) -> ImagePlaces:
        """Return the places of the positions 0, 1 and so on; None for one that is not known."""
        known = tuple(((number,), place) for number, place in enumerate(places) if place is not None)
        return ImagePlaces((POSITION,), known) if known else NO_PLACES

    def __bool__(self) -> bool:
        return bool(self.entries)

    def find(self, at: Mapping[str, int]) -> Place | None:
        """Return the place of the image with these indices by axis; others are passed over. None if it is not known."""
        return self._by_index.get(tuple(at.get(axis, 0) for axis in self.axes)) if self.axes else None

    def positions(self) -> tuple[Place | None, ...]:
        """Return the places along the axis `position`, () where tiles have places of their own."""
        if self.axes != (POSITION,):
            return ()
        count = max((index[0] for index, _ in self.entries), default=-1) + 1
        return tuple(self._by_index.get((number,)) for number in range(count))

    @cached_property
    def _by_index(self) -> Mapping[tuple[int, ...], Place]:
        return dict(self.entries)


NO_PLACES = ImagePlaces()
