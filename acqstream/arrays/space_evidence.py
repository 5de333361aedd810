"""Frames of a dataset that show the physical space of all of them: few, however long it is.

Which frames they are follows from the dataset alone, so a mirror that was killed comes to the same space.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from acqstream.arrays.axis_order import COLUMN, POSITION, ROW, TIME, Z
from acqstream.arrays.frame_space import ImageKey, Readings, SpaceEvidence
from acqstream.arrays.stage_reading import StageReading, stage_reading
from acqstream.errors import DatasetError
from acqstream.model.axes import Axes, AxisValue

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
    """Reads metadata of frames of a reader, each once. `look` may be called again as the dataset grows.

    Integers lie at their own values along an axis; names lie nowhere. image_axes separate the images.
    """

    def __init__(self, reader: MetadataReader, image_axes: Sequence[str] = (POSITION,)) -> None:
        self._reader = reader
        self._image_axes = tuple(image_axes)
        self._first: dict[str, Any] | None = None
        self._readings: dict[int, StageReading] = {}  # by row, which keeps its metadata for ever
        self.forget_rows()

    def forget_rows(self) -> None:
        """Find the row of each frame again at the next `look`: another one may have taken its place.

        Rows that showed nothing are read again, too: their metadata may have been damaged.
        """
        self._first = self._first or None
        self._readings = {row: reading for row, reading in self._readings.items() if reading != StageReading()}
        self._stacks: dict[tuple[tuple[str, AxisValue], ...], Axes] = {}  # axes but z of the first stacks
        self._firsts: dict[AxisValue, Axes] = {}  # axes of the first frame of each position
        self._stack_rows = self._image_rows = self._first_rows = 0  # rows in which these were looked for
        self._rows: dict[tuple[object, ...], int] = {}  # of frames that were found
        self._images: dict[ImageKey, tuple[int, StageReading]] = {}

    def look(self, *, has_places: bool = True) -> SpaceEvidence:
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
