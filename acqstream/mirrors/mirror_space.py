"""The physical space of a mirror's levels, as the frames so far show it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_order import POSITION, TILE_AXES, Z
from acqstream.arrays.frame_places import FramePlaces
from acqstream.arrays.frame_space import UM, Distance, FrameSpace, Place, frame_space
from acqstream.arrays.image_places import IMAGE_AXES, NO_PLACES, ImagePlaces
from acqstream.arrays.mosaic import Canvas
from acqstream.arrays.space_evidence import MAX_IMAGES, SpaceWitnesses
from acqstream.dataset.reader_array import tile_step
from acqstream.formats.chunk_format import SpaceWriter
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue

_MAX_SHARE = 0.05  # of the time: with thousands of positions, looking and writing take long


class MirrorSpace:
    """Levels with the space of the frames of `reader`, which is a function of the dataset alone.

    container is the mirror's name in warnings; "" for a format that needs no distances. mosaic: the picture of tiles,
    whose pixels count from (0, 0) of its canvas.
    """

    def __init__(
        self, reader: NDTiffReader, places: FramePlaces, container: str = "", mosaic: Canvas | None = None
    ) -> None:
        self._origin = {} if mosaic is None else {"y": mosaic.y.origin, "x": mosaic.x.origin}
        self._is_stitched = mosaic is not None
        self.warning = ""
        self._container = container
        self._next_s = 0.0
        self._is_shown = False  # the frames have shown what they can show of distances along z, y and x
        self._reader = reader
        self._places = places
        self._names = frozenset(places.names)
        self._has_tiles = not TILE_AXES.isdisjoint(self._names)  # each is an image
        self._image_axes = IMAGE_AXES if self._has_tiles else (POSITION,)
        self._witnesses = SpaceWitnesses(reader, self._image_axes)
        self._may_change = not reader.complete  # else the witnesses see the last frame of each place

    def renew(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter, *, is_final: bool) -> tuple[ArraySpec, ...]:
        """As `look`; the writer gets what is new. Sets `warning` for distances that nothing shows. Raises StorageError.

        is_final: no frame will come. If some came since, all are read again: the last one of each place counts.
        """
        began_s = time.monotonic()
        if is_final and self._may_change:
            self._witnesses = SpaceWitnesses(self._reader, self._image_axes)
            self._may_change = not self._reader.complete
        elif not is_final and began_s < self._next_s:
            return levels
        spaced = self.look(levels)
        if spaced != levels:
            writer.set_space(spaced)
        has_depth = len(self._reader.axis_values().get(Z, ())) > 1  # one plane has no distance
        unknown = [axis for axis in spaced[0].unknown_distances if axis != Z or has_depth]
        if unknown and self._container and (is_final or self._is_shown) and not self.warning:
            self.warning = _warning(self._container, unknown)
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - began_s) / _MAX_SHARE
        return spaced

    def note_values(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter) -> tuple[ArraySpec, ...]:
        """Write the values of places into our note: readers put places in order by them. Raises StorageError.

        Call it before places are announced.
        """
        valued = self._places.with_values(levels)
        if valued != levels:
            writer.set_space(valued)
        return valued

    def look(self, levels: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """These levels with all that is known of their space now. Raises StorageError."""
        evidence = self._witnesses.look()
        step = tile_step(self._reader) if self._has_tiles else None
        space = frame_space(self._reader.declared_axes, self._reader.summary_metadata, evidence, step)
        full = self._spaced(levels[0], space)
        self._is_shown = Z not in self._names or any(len(stack) > 1 for stack in evidence.stacks)
        return tuple(level.with_space(full.reduced(level.factors)) for level in levels)

    def _spaced(self, full: ArraySpec, space: FrameSpace) -> ArraySpec:
        distances = [self._distance(axis, space) for axis in full.axes]
        units = tuple(unit for _, unit in distances)
        has_images = POSITION in self._names or self._has_tiles
        first = (0.0,) * 3 if has_images or self._is_stitched else space.places.get((None,), (0.0,) * 3)
        own = dict(zip(("z", "y", "x"), first, strict=True))
        return replace(
            full,
            scale=tuple(distance for distance, _ in distances),
            units=units,
            translation=tuple(
                (own.get(axis, 0.0) if unit == UM else 0.0) + self._first(axis) * distance
                for axis, (distance, unit) in zip(full.axes, distances, strict=True)
            ),
            places=self._image_places(space) if has_images else NO_PLACES,
            stage_axes=space.stage_axes,
            shown_axes=self._places.shown_axes(),
            axis_values=self._places.axis_values(),
        )

    def _first(self, axis: str) -> int:
        """The number of item 0 along an axis."""
        return self._origin[axis] if axis in self._origin else self._places.first_integer(axis)

    def _distance(self, axis: str, space: FrameSpace) -> Distance:
        if axis in ("y", "x"):
            return (1.0, "") if space.pixel_um is None else (space.pixel_um, UM)
        return space.distance(axis) if axis in self._names else (1.0, "")  # z that the format has added

    def _image_places(self, space: FrameSpace) -> ImagePlaces:
        axes = tuple(axis for axis in self._image_axes if axis in self._names)
        found: dict[tuple[int, ...], Place] = {}
        for key, place in space.places.items():
            values = dict(zip(self._image_axes, key, strict=True))
            index = [self._index(axis, values[axis]) for axis in axes]
            known = tuple(at for at in index if at is not None and at < MAX_IMAGES)
            if len(known) == len(axes):
                found[known] = place
        return ImagePlaces(axes, tuple(sorted(found.items()))) if found else NO_PLACES

    def _index(self, axis: str, value: AxisValue | None) -> int | None:
        return 0 if value is None else self._places.index(axis, value)


def _warning(container: str, unknown: Sequence[str]) -> str:
    axes = " and ".join(unknown)
    return (
        f"{container}: the distance of items along {axes} is not known: not declared, not in the summary, and stage "
        "positions of the frames do not show it. The files state 1 of their unit instead"
    )
