"""What the frames so far show of their array: physical space and contrast, for mirrors and for viewers.

Few frames are looked at, however long the dataset is. Which ones they are follows from the dataset alone, so a mirror
that was killed comes to the same space.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.mosaic import Canvas
from acqstream.description.channels import CHANNEL, ChannelLook, Limits, channel_looks, contrast_of
from acqstream.description.image_positions import IMAGE_AXES, NO_PLACES, ImagePlaces
from acqstream.description.space import UM, Distance, FrameSpace, ImageKey, Place, Readings, SpaceEvidence, frame_space
from acqstream.description.stage import StageReading, stage_reading
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import FramePlaces
from acqstream.frames.frame_snapshot import tile_step
from acqstream.model.axes import COLUMN, POSITION, ROW, TILE_AXES, TIME, Axes, AxisValue, Z

MAX_STACKS = 8
MAX_PLANES = 256  # of a stack
MAX_TIMES = 256
MAX_IMAGES = 100_000
_MAX_POSITIONS = 256  # that are looked at for spacings of their own
_MIN_OWN, _MAX_OWN, _MAX_OWN_FRAMES = 4, 64, 1024  # planes and times of each, and of all
_MAX_SCANNED_ROWS = 4096  # in which the first stacks begin


class MetadataReader(Protocol):
    """The calls of a reader of frames by which their space is found. Rows count frames in order of arrival."""

    @property
    def tile_overlap(self) -> tuple[int, int] | None: ...
    def __len__(self) -> int: ...
    def key(self, row: int) -> dict[str, AxisValue]: ...
    def find(self, axes: Axes) -> int | None: ...
    def frame_shape(self, row: int) -> tuple[int, ...]: ...
    def axis_values(self) -> dict[str, list[AxisValue]]: ...
    def read_metadata(self, row: int) -> dict[str, Any]: ...


class SpaceWitnesses:
    """Reads metadata of frames of a reader, each once. `spaced` may be called again as the dataset grows.

    Integers lie at their own values along an axis; names lie nowhere. image_axes separate the images.
    """

    def __init__(self, reader: MetadataReader, image_axes: Sequence[str] = (POSITION,)) -> None:
        self._reader = reader
        self._image_axes = tuple(image_axes)
        self._first: dict[str, Any] | None = None
        self._readings: dict[int, StageReading] = {}  # by row, which keeps its metadata for ever
        self.forget_rows()

    def forget_rows(self) -> None:
        """Find the row of each frame again at the next `spaced`: another one may have taken its place.

        Rows that showed nothing are read again, too: their metadata may have been damaged.
        """
        self._first = self._first or None
        self._readings = {row: reading for row, reading in self._readings.items() if reading != StageReading()}
        self._stacks: dict[tuple[tuple[str, AxisValue], ...], Axes] = {}  # axes but z of the first stacks
        self._firsts: dict[AxisValue, Axes] = {}  # axes of the first frame of each position
        self._stack_rows = self._image_rows = self._first_rows = 0  # rows in which these were looked for
        self._rows: dict[tuple[object, ...], int] = {}  # of frames that were found
        self._images: dict[ImageKey, tuple[int, StageReading]] = {}

    def evidence(self, *, has_places: bool = True) -> SpaceEvidence:
        """The evidence in the frames published now. has_places: the place of every image, not of the first alone.

        Raises StorageError.
        """
        count = len(self._reader)
        if not count:
            return SpaceEvidence()
        if self._first is None:
            self._first = self._metadata(0)
        key, values = self._reader.key(0), self._reader.axis_values()
        self._find_stacks(count)
        stacks = [[*self._along(Z, values[Z][:MAX_PLANES], stack)] for stack in self._stacks.values()]
        times = [*self._along(TIME, _spread(values[TIME]), key)] if TIME in key else []
        self._find_images(key, [*self._image_keys(values)] if has_places else [], count)
        return SpaceEvidence(self._first, stacks, times, self._images, self._find_positions(key, values, count))

    def _find_stacks(self, count: int) -> None:
        for row in range(self._stack_rows, min(count, _MAX_SCANNED_ROWS)):
            if len(self._stacks) == MAX_STACKS:
                break
            key = self._reader.key(row)
            if key.pop(Z, None) is not None:
                self._stacks.setdefault(tuple(sorted(key.items())), key)
        self._stack_rows = count

    def _find_positions(
        self, first: Axes, values: Mapping[str, Sequence[AxisValue]], count: int
    ) -> dict[AxisValue, tuple[Readings, Readings]]:
        """A stack and times of each position, where there are several: it may have a plan of its own."""
        positions = values.get(POSITION, ())[:_MAX_POSITIONS]
        if len(positions) < 2 or POSITION not in first:
            return {}
        while self._first_rows < min(count, _MAX_SCANNED_ROWS) and len(self._firsts) < len(positions):
            key = self._reader.key(self._first_rows)
            self._firsts.setdefault(key.get(POSITION, first[POSITION]), key)
            self._first_rows += 1
        most = max(_MIN_OWN, min(_MAX_OWN, _MAX_OWN_FRAMES // len(positions)))
        planes, times = values.get(Z, ())[:most], values.get(TIME, ())
        times = [*dict.fromkeys([*times[:most], *_spread(times, most)])]
        keys = {value: self._firsts.get(value, {**first, POSITION: value}) for value in positions}
        return {
            value: ([*self._along(Z, planes, key)], [*self._along(TIME, times, key)]) for value, key in keys.items()
        }

    def _along(self, axis: str, values: Sequence[AxisValue], key: Axes) -> Iterator[tuple[int, StageReading]]:
        """Frames that differ from `key` in one axis."""
        others = tuple(sorted((name, value) for name, value in key.items() if name != axis))
        for value in values:
            known = (axis, value, others)
            row = self._rows.get(known)
            if row is None:
                row = self._reader.find({**key, axis: value})
            if row is not None and isinstance(value, int):
                self._rows[known] = row
                yield value, self._reading(row)

    def _image_keys(self, values: Mapping[str, Sequence[AxisValue]]) -> Iterator[ImageKey]:
        """The images that there may be, at most MAX_IMAGES; those without a frame, too."""
        if not any(axis in values for axis in self._image_axes):
            return iter(())
        sides: list[Sequence[AxisValue | None]] = [values.get(axis, (None,)) for axis in self._image_axes]
        return itertools.islice(itertools.product(*sides), MAX_IMAGES)

    def _find_images(self, first: Axes, keys: Sequence[ImageKey], count: int) -> None:
        """A frame of each image: the one with the other axes of the first frame, else its first one."""
        if not self._images:
            self._note_image(self._image_key(first), self._reader.find(first) or 0)
        missing: set[ImageKey] = set()
        for key in keys:
            if key not in self._images:
                own = {name: value for name, value in zip(self._image_axes, key, strict=True) if value is not None}
                row = self._reader.find({**first, **own})
                if row is None:
                    missing.add(key)
                else:
                    self._note_image(key, row)
        if not missing:
            return
        for row in range(self._image_rows, count):
            found = self._image_key(self._reader.key(row))
            if found in missing:
                missing.discard(found)
                self._note_image(found, row)
        self._image_rows = count

    def _image_key(self, key: Axes) -> ImageKey:
        return tuple(key.get(axis) for axis in self._image_axes)

    def _note_image(self, image: ImageKey, row: int) -> None:
        key, overlap = self._reader.key(row), self._reader.tile_overlap
        z = key.get(Z, 0)
        height, width, *_ = self._reader.frame_shape(row)
        reading = replace(stage_reading(self._metadata(row)), pixels=(height, width))
        tile = [key.get(axis) for axis in (ROW, COLUMN) if axis not in self._image_axes]
        if overlap is not None and len(tile) == 2:  # a part of a stitched picture
            sides = zip(tile, reading.pixels, overlap, strict=True)
            y, x = (at * (side - both) - both // 2 if isinstance(at, int) else 0 for at, side, both in sides)
            reading = replace(reading, shift=(y, x))
        self._images[image] = (z if isinstance(z, int) else 0, reading)

    def _reading(self, row: int) -> StageReading:
        if row not in self._readings:
            self._readings[row] = stage_reading(self._metadata(row))
        return self._readings[row]

    def _metadata(self, row: int) -> dict[str, Any]:
        """Empty where they are damaged: such a frame shows nothing, and reading it raises."""
        try:
            return self._reader.read_metadata(row)
        except DatasetError:
            return {}


def _spread(values: Sequence[AxisValue], most: int = MAX_TIMES) -> Sequence[AxisValue]:
    """At most `most` of them, from the first to the end; as more come, some of them stay."""
    step = 1
    while len(values) > step * most:
        step *= 2
    return values[::step]


_MAX_FRAMES = 32  # of a channel
_MAX_CHANNELS = 64
_MAX_ROWS = 4096  # in which they are looked for
_STRIPS, _STRIP_BYTES = 8, 2**16  # read of a frame
_MAX_SAMPLES = 4096  # of a strip
_MAX_BYTES = 2**24  # of one strip, or of a compressed frame


class FrameLooks:
    """Looks of the channels of a growing dataset; its contrast settles with the first frames."""

    def __init__(self, reader: NDTiffReader) -> None:
        self._reader = reader
        self._contrast: tuple[tuple[object, ...], dict[AxisValue | None, Limits]] = ((), {})

    def find(self, channels: Sequence[AxisValue | None]) -> dict[AxisValue | None, ChannelLook]:
        """Looks by channel, of None without any; may read frames. Raises StorageError."""
        reader, count = self._reader, min(len(self._reader), _MAX_ROWS)
        key = (tuple(channels), count if count <= 2 * _MAX_FRAMES else -count.bit_length())
        if key != self._contrast[0]:
            self._contrast = key, shown_contrast(reader)
        looks = channel_looks(channels, reader.summary_metadata, reader.display_settings, self._contrast[1])
        return dict(zip(channels or [None], looks, strict=True))


def shown_contrast(reader: NDTiffReader) -> dict[AxisValue | None, Limits]:
    """Contrast limits by channel, None for frames without one: 0.1 % and 99.9 % of samples of its first frames.

    A function of the published frames alone. Damaged frames show nothing; RGB has no contrast. Raises StorageError.
    """
    if not len(reader) or len(reader.frame_shape(0)) > 2:
        return {}
    rows: dict[AxisValue | None, list[int]] = {}
    for row in range(min(len(reader), _MAX_ROWS)):
        channel = reader.key(row).get(CHANNEL)
        if channel in rows or len(rows) < _MAX_CHANNELS:
            own = rows.setdefault(channel, [])
            if len(own) < _MAX_FRAMES:
                own.append(row)
    samples = {channel: [_samples(reader, row) for row in own] for channel, own in rows.items()}
    found = {channel: [part for part in parts if part.size] for channel, parts in samples.items()}
    return {channel: contrast_of(np.concatenate(parts)) for channel, parts in found.items() if parts}


def _samples(reader: NDTiffReader, row: int) -> NDArray[Any]:
    """Pixels of strips of a frame from its top to its bottom; none of a frame of which too much would be read."""
    frame = reader.stored_frame(row)[1]
    row_bytes = frame.width * frame.pixel_type.pixel_bytes
    lines = max(1, min(frame.height, _STRIP_BYTES // max(1, row_bytes)))
    if (lines * row_bytes if frame.is_plain else frame.payload_bytes) > _MAX_BYTES:  # an entry may claim any size
        return np.zeros(0, np.uint16)
    tops = sorted({(frame.height - lines) * at // (_STRIPS - 1) for at in range(_STRIPS)})
    try:
        if frame.is_plain:
            strips = [reader.read_rows(row, first, first + lines) for first in tops]
        else:  # decoded whole
            pixels = reader.read_pixels(row)
            strips = [pixels[first : first + lines] for first in tops]
    except DatasetError:  # reading the frame itself says what is wrong with it
        return np.zeros(0, np.uint16)
    return np.concatenate([strip.reshape(-1)[:: -(-strip.size // _MAX_SAMPLES)] for strip in strips])


class ArraySpace:
    """The space of the frames of `reader`, which is a function of the dataset alone.

    As of the last `spaced`: is_shown: the frames have shown what they can show of distances along z, y and x; warnings:
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
        """Look at all places again at the next `spaced`: the last frame of each counts."""
        self._witnesses.forget_rows()
        self._contrast = None

    def spaced(self, levels: Sequence[ArraySpec], mosaic: Canvas | None = None) -> tuple[ArraySpec, ...]:
        """These levels with all that is known of their space now. Raises StorageError.

        mosaic: the picture of tiles, whose pixels count from (0, 0) of its canvas.
        """
        evidence = self._witnesses.evidence()
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
