"""The physical space of a stored array of frames, as the frames so far show it: for mirrors and for viewers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_order import POSITION, TILE_AXES, Z
from acqstream.arrays.channel_looks import CHANNEL, ChannelLook, Limits, channel_looks
from acqstream.arrays.frame_places import FramePlaces
from acqstream.arrays.frame_space import UM, Distance, FrameSpace, Place, frame_space
from acqstream.arrays.image_places import IMAGE_AXES, NO_PLACES, ImagePlaces
from acqstream.arrays.mosaic import Canvas
from acqstream.arrays.space_evidence import MAX_IMAGES, SpaceWitnesses
from acqstream.dataset.first_frames import shown_contrast
from acqstream.dataset.reader_array import tile_step
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue


class ArraySpace:
    """The space of the frames of `reader`, which is a function of the dataset alone.

    As of the last `look`: is_shown: the frames have shown what they can show of distances along z, y and x; warnings:
    wishes that they contradict.
    """

    def __init__(self, reader: NDTiffReader, places: FramePlaces) -> None:
        self.is_shown = False
        self.warnings: tuple[str, ...] = ()
        self._reader = reader
        self._places = places
        self._names = frozenset(places.names)
        self._has_tiles = not TILE_AXES.isdisjoint(self._names)  # each is an image
        self._image_axes = IMAGE_AXES if self._has_tiles else (POSITION,)
        self._witnesses = SpaceWitnesses(reader, self._image_axes)
        self._contrast: tuple[Sequence[AxisValue | None], dict[AxisValue | None, Limits]] | None = None  # of channels

    def forget(self) -> None:
        """Look at all places again at the next `look`: the last frame of each counts."""
        self._witnesses.forget_rows()
        self._contrast = None

    def look(self, levels: Sequence[ArraySpec], mosaic: Canvas | None = None) -> tuple[ArraySpec, ...]:
        """These levels with all that is known of their space now. Raises StorageError.

        mosaic: the picture of tiles, whose pixels count from (0, 0) of its canvas.
        """
        evidence = self._witnesses.look()
        step = tile_step(self._reader) if self._has_tiles else None
        values = self._places.axis_values()
        space = frame_space(self._reader.declared_axes, self._reader.summary_metadata, evidence, step, values)
        self.warnings = space.warnings
        full = self._spaced(levels[0], space, mosaic)
        self.is_shown = Z not in self._names or any(len(stack) > 1 for stack in evidence.stacks)
        return tuple(level.with_space(full.reduced(level.factors)) for level in levels)

    def _spaced(self, full: ArraySpec, space: FrameSpace, mosaic: Canvas | None) -> ArraySpec:
        distances = [self._distance(axis, space) for axis in full.axes]
        units = tuple(unit for _, unit in distances)
        has_images = POSITION in self._names or self._has_tiles
        bits = self._reader.stored_frame(0)[1].pixel_type.bits if len(self._reader) else 0
        has_own_place = not has_images and mosaic is None
        first = space.places.get((None,)) if has_own_place else None
        own = dict(zip(("z", "y", "x"), first, strict=True)) if first is not None else {}
        return replace(
            full,
            scale=tuple(distance for distance, _ in distances),
            units=units,
            translation=tuple(
                own[axis] if axis in own and unit == UM else self._start(axis, distance, space, mosaic)
                for axis, (distance, unit) in zip(full.axes, distances, strict=True)
            ),
            coordinates={axis: found for axis, found in space.coordinates.items() if axis in self._names},
            evidence={axis: source for axis, source in space.evidence.items() if axis in full.axes},
            places=self._image_places(space, mosaic) if has_images else NO_PLACES,
            own={at: own for value, own in space.own.items() if (at := self._index(POSITION, value)) is not None},
            stage_axes=space.stage_axes,
            looks=self._looks(),
            bits=bits if bits < 8 * full.dtype.itemsize else 0,
            shown_axes=self._places.shown_axes(),
            axis_values=self._places.axis_values(),
        )

    def _start(self, axis: str, distance: float, space: FrameSpace, mosaic: Canvas | None) -> float:
        """Where item 0 of an axis lies, beside its place on the stage."""
        if mosaic is not None and axis in ("y", "x"):
            return (mosaic.y.origin if axis == "y" else mosaic.x.origin) * distance
        return space.starts.get(axis, 0.0)

    def _distance(self, axis: str, space: FrameSpace) -> Distance:
        if axis in ("y", "x"):
            return (1.0, "") if space.pixel_um is None else (space.pixel_um, UM)
        return space.distance(axis) if axis in self._names else (1.0, "")  # z that the format has added

    def _looks(self) -> tuple[ChannelLook, ...]:
        """As they are now. Contrast is looked for when a channel comes, and after `forget`: viewers keep it."""
        values = self._places.values_along(CHANNEL)
        if self._contrast is None or self._contrast[0] != values:
            self._contrast = (values, shown_contrast(self._reader))
        reader = self._reader
        return tuple(channel_looks(values, reader.summary_metadata, reader.display_settings, self._contrast[1]))

    def _image_places(self, space: FrameSpace, mosaic: Canvas | None) -> ImagePlaces:
        axes = tuple(axis for axis in self._image_axes if axis in self._names)
        found: dict[tuple[int, ...], Place] = {}
        first = (0, 0) if mosaic is None else (mosaic.y.origin, mosaic.x.origin)
        for key, place in space.places_from(*first).items():
            values = dict(zip(self._image_axes, key, strict=True))
            index = [self._index(axis, values[axis]) for axis in axes]
            known = tuple(at for at in index if at is not None and at < MAX_IMAGES)
            if len(known) == len(axes):
                found[known] = place
        return ImagePlaces(axes, tuple(sorted(found.items()))) if found else NO_PLACES

    def _index(self, axis: str, value: AxisValue | None) -> int | None:
        return 0 if value is None else self._places.index(axis, value)
