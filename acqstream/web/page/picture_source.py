"""Where the pictures of a dataset come from: its frames, or planes of an array.

A plane is as large as a file says. Of a large one every n-th pixel is read, in parts, so that a picture of foreign data
costs bounded memory and time: what is read is counted in chunks, of which each is read whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.level_layout import Spacing, X, Y
from acqstream.dataset.dataset import Dataset, small_array, small_factors
from acqstream.dataset.level_array import LevelArray
from acqstream.description.channels import ChannelLook
from acqstream.errors import FrameNotFound, UnsupportedFeature
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue
from acqstream.web.data.dataset_shelf import DatasetShelf
from acqstream.web.data.virtual_dataset import ServedDataset

MAX_SIDE = 2048  # of a picture
MAX_PART_BYTES = 2**26  # of chunks that are read at a time; others who read files have their turn after each part
MAX_PART_CHUNKS = 512
MAX_BYTES = 2**31  # of all chunks of a picture: those of 4096 x 4096 uint16 in cubes of 64
MAX_CHUNKS = 2**14


@dataclass(frozen=True, slots=True)
class ThinnedPicture:
    """pixels (Y, X[, 3]) are filled by `parts`, step by step; each gives the bytes that it has read at most.

    steps: stored pixels (y, x) for one of them. start: the stored pixel (y, x) of the first one.
    """

    pixels: NDArray[Any]
    steps: tuple[int, int]
    parts: Iterator[int]
    start: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, pixels: NDArray[Any], crop: Crop | None) -> ThinnedPicture:
        """A plane that was read already, or the part of it."""
        if crop is None:
            return cls(pixels, (1, 1), iter(()))
        (y, x), (height, width) = crop.start, crop.size
        return cls(pixels[y : y + height, x : x + width], (1, 1), iter(()), crop.start)

    def complete(self) -> NDArray[Any]:
        """The pixels after all parts that are left."""
        for _ in self.parts:
            pass
        return self.pixels


@dataclass(frozen=True, slots=True)
class ChunkedPlane:
    """A plane of `shape` (y, x) in chunks of `chunk` (y, x), each of chunk_bytes as it is read, of all its axes.

    start (y, x): its first pixel among those that are stored; not (0, 0) for a part of a plane.
    """

    shape: tuple[int, int]
    chunk: tuple[int, int]
    chunk_bytes: int
    start: tuple[int, int] = (0, 0)

    @property
    def margin(self) -> tuple[int, int]:
        """Pixels (y, x) of the first chunk that lie before the plane."""
        return self.start[0] % self.chunk[0], self.start[1] % self.chunk[1]

    @property
    def least_step(self) -> int:
        """The step of the largest picture."""
        return -(-max(self.shape) // MAX_SIDE)

    def cost(self, step: int) -> tuple[int, int]:
        """Chunks that every `step`-th pixel along y and x lies in, and their bytes."""
        sides = zip(self.shape, self.chunk, self.margin, strict=True)
        count = math.prod(min(-(-size // step), -(-(size + margin) // side)) for size, side, margin in sides)
        return count, count * self.chunk_bytes

    def step(self) -> int:
        """The smallest step, or nearly so, whose picture keeps the bounds, or takes one chunk."""
        step = max(1, self.least_step)
        while True:
            count, count_bytes = self.cost(step)
            if count <= 1 or (count <= MAX_CHUNKS and count_bytes <= MAX_BYTES):
                return step
            step = -(-step * 5 // 4)

    def parts(self, step: int) -> Iterator[tuple[range, range]]:
        """Rows and columns of the picture, part by part; no chunk lies in two parts."""
        most = max(1, min(MAX_PART_CHUNKS, MAX_PART_BYTES // max(1, self.chunk_bytes)))
        (height, width), (side_y, side_x), (margin_y, margin_x) = self.shape, self.chunk, self.margin
        across = min(most, -(-width // step), -(-(width + margin_x) // side_x))
        for rows in _groups(height, side_y, step, most // max(1, across), margin_y):
            for columns in _groups(width, side_x, step, across, margin_x):
                yield rows, columns

    def read(
        self, samples: Sequence[int], dtype: np.dtype[Any], read: Callable[[slice, slice], NDArray[Any]]
    ) -> ThinnedPicture:
        """The picture. read: gives stored pixels (Y, X, *samples) by their slices along y and x."""
        step = self.step()
        pixels = np.zeros((*(-(-size // step) for size in self.shape), *samples), dtype)

        def parts() -> Iterator[int]:
            for rows, columns in self.parts(step):
                y, x = (_stored(one, step, start) for one, start in zip((rows, columns), self.start, strict=True))
                pixels[rows.start : rows.stop, columns.start : columns.stop] = read(y, x)
                sides = zip((rows, columns), self.chunk, self.margin, strict=True)
                touched = ({(margin + one * step) // side for one in part} for part, side, margin in sides)
                yield math.prod(map(len, touched)) * self.chunk_bytes

        return ThinnedPicture(pixels, (step, step), parts(), self.start)


def _groups(size: int, side: int, step: int, count: int, margin: int = 0) -> Iterator[range]:
    """Numbers 0, 1, .. of every `step`-th item of `size`, in groups that take `count` chunks of `side` each.

    margin: items of the first chunk that lie before the first one.
    """
    end, unit, at = -(-size // step), max(side, step) * max(1, count), 0
    for number in range(1, -(-(size + margin) // unit) + 1):
        stop = min(end, -(-(number * unit - margin) // step))
        if stop > at:
            yield range(at, stop)
        at = max(at, stop)


def _stored(numbers: range, step: int, start: int) -> slice:
    """The stored items of numbers in the picture, whose first one is at `start`."""
    return slice(start + numbers.start * step, start + (numbers.stop - 1) * step + 1, step)


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of a plane, in stored pixels: its first one (y, x), and its height and width."""

    start: tuple[int, int]
    size: tuple[int, int]

    def within(self, shape: Sequence[int]) -> Crop:
        """What a plane (y, x) has of it. Raises FrameNotFound if that is nothing."""
        sides = [min(size, full - at) for at, size, full in zip(self.start, self.size, shape, strict=False)]
        if min(sides) < 1:
            raise FrameNotFound(f"a picture of {shape[0]} x {shape[1]} pixels has none at {self.start}")
        return Crop(self.start, (sides[0], sides[1]))


REFRESH_S = 0.2  # between looks at a growing dataset
MAX_FRAME_BYTES = 2**28  # of a compressed frame, which is decoded whole
MAX_WALK = 4000  # frames that are looked at, from the newest back, for one of a channel and plane
_OVERVIEW_SIDE = 1024
_MAX_DOCUMENTS = 64  # looked at for each picture; chunks may lie beside them
_MAX_CHUNK_BYTES = 2**27  # which is unpacked whole
_MAX_WHOLE_BYTES = 2**26  # of a frame; of a larger one some rows are read
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class FramePlace:
    """A frame: its axes, its number in order of arrival, and a word that changes with its content."""

    key: Mapping[str, AxisValue]
    number: int
    tag: str


class PictureSource:
    """Planes of an array: of mirrors, of other software, and of tiles put together. Large planes are thinned out.

    Made for a dataset that is lent; it keeps nothing. All methods may read files; from any thread.
    """

    def __init__(self, served: ServedDataset) -> None:
        self._served = served
        self._dataset = served.dataset
        self.format = served.dataset.format

    @property
    def count(self) -> int:
        """Frames, or items of the array, at the last refresh."""
        return self._served.count

    def axes(self) -> dict[str, Sequence[AxisValue]]:
        """Values of the axes that choose a picture, slowest first. No copies: an axis may claim any length."""
        return self._dataset.levels[0].axis_values()

    def shape(self) -> tuple[tuple[int, ...], str, int | None]:
        """Shape of a picture (Y, X[, 3]), dtype, and significant bits if they are known."""
        level = self._dataset.levels[0]
        sizes = dict(zip(level.axes, level.shape, strict=True))
        shape = tuple(sizes[name] for name in ("y", "x", "c") if name in sizes)
        bits = level.source.bits or 8 * level.dtype.itemsize
        return shape, str(level.dtype), bits if level.dtype.kind == "u" else None

    def find(self, fixed: Mapping[str, AxisValue]) -> FramePlace:
        """The frame with these axes; where they leave a choice, the newest one, in arrays the middle one.

        Raises FrameNotFound.
        """
        key = {}
        for name, values in self.axes().items():
            if not values:
                raise FrameNotFound(f"{self._dataset.path}: axis {name!r} has no position yet")
            key[name] = fixed.get(name, values[len(values) // 2])
            if key[name] not in values:
                raise FrameNotFound(f"{self._dataset.path}: axis {name!r} has no position {key[name]!r}")
        count = self.count
        tag = hashlib.blake2b(repr((key, count, self._documents())).encode(), digest_size=8).hexdigest()
        return FramePlace(key, max(0, count - 1), tag)

    def _documents(self) -> list[tuple[str, int, int, int]]:
        """What tells a container from another one that takes its name: some files at its top, as they are now."""
        with contextlib.suppress(OSError), os.scandir(str(self._dataset.path)) as entries:
            found = [(entry.name, entry.stat()) for entry in itertools.islice(entries, _MAX_DOCUMENTS)]
            return sorted((name, one.st_ino, one.st_mtime_ns, one.st_size) for name, one in found)
        return []

    def picture(self, place: FramePlace, crop: Crop | None = None) -> ThinnedPicture:
        """The pixels (Y, X) or (Y, X, 3), of a large plane or crop some of them.

        Its parts read files; raises DatasetError, and FrameNotFound for a crop beside the plane.
        """
        with self._served.lock:
            if crop is None:
                array = small_array(self._dataset, {}, _OVERVIEW_SIDE)
                factors = small_factors(self._dataset, _OVERVIEW_SIDE)
            else:
                array, factors = self._dataset.levels[0].as_array(), {Y: 1, X: 1}
        if not array.layout.pixels:
            raise UnsupportedFeature(f"{self._dataset.path}: a picture needs y and x as the last axes")
        outer, samples = _position(array, place), array.shape[len(array.values) + 2 :]
        plane = _chunked_plane(array, self._dataset)
        if crop is not None:
            crop = crop.within(plane.shape)
            plane = replace(plane, shape=crop.size, start=crop.start)
        if is_by_rows := array.layout.is_stitched and plane.cost(plane.least_step)[1] > MAX_BYTES:
            width = plane.chunk[1]
            row_bytes = width * array.dtype.itemsize * math.prod(samples)
            plane = replace(plane, chunk=(1, width), chunk_bytes=row_bytes)

        def read(y: slice, x: slice) -> NDArray[Any]:
            if not is_by_rows:
                return np.asarray(array[(*outer, y, x)])
            return np.stack([array[(*outer, row, x)] for row in range(y.start, y.stop, y.step)])

        drawn = plane.read(samples, array.dtype, read)
        return replace(drawn, steps=(factors[Y] * drawn.steps[0], factors[X] * drawn.steps[1]))

    def value(self, place: FramePlace, y: int, x: int) -> list[int | float]:
        """The stored value at a pixel, of RGB three values; empty outside of the frame. Raises DatasetError."""
        array = self._dataset.levels[0].as_array()
        height, width = _chunked_plane(array, self._dataset).shape
        if not (0 <= y < height and 0 <= x < width):
            return []
        return _values_of(array[(*_position(array, place), y, x)])

    def spacing(self, axis: str) -> Spacing:
        """Of the stored pixels along y and x, and of the values of an axis, side by side."""
        return self._dataset.levels[0].spacing_of(axis)

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        """Names, colours and contrast by channel, in the order of `axes`; of None without any."""
        return self._dataset.channel_looks()


class FramePictures(PictureSource):
    """Frames of a dataset that is not tiled."""

    def __init__(self, served: ServedDataset, reader: NDTiffReader) -> None:
        super().__init__(served)
        self._reader = reader

    def shape(self) -> tuple[tuple[int, ...], str, int | None]:
        if not len(self._reader):
            raise FrameNotFound(f"{self._reader.path}: there is no frame yet")
        _, stored = self._reader.stored_frame(len(self._reader) - 1)
        return stored.shape, stored.pixel_type.numpy_dtype.name, stored.pixel_type.bits

    def find(self, fixed: Mapping[str, AxisValue]) -> FramePlace:
        row = self._reader.find(fixed) if fixed else None
        if row is None:
            row = self._newest(fixed)
        name, stored = self._reader.stored_frame(row)
        return FramePlace(self._reader.key(row), row, f"{self._served.content_identity}:{name}:{stored.pixels}")

    def _newest(self, fixed: Mapping[str, AxisValue]) -> int:
        last = len(self._reader) - 1
        for row in range(last, max(-1, last - MAX_WALK), -1):
            key = self._reader.key(row)
            if all(key.get(name) == value for name, value in fixed.items()):
                return row
        raise FrameNotFound(f"{self._reader.path}: no such frame among the newest {MAX_WALK}")

    def picture(self, place: FramePlace, crop: Crop | None = None) -> ThinnedPicture:
        stored = self._stored(place)
        height, width, *samples = stored.shape
        crop = None if crop is None else crop.within((height, width))
        if stored.payload_bytes <= _MAX_WHOLE_BYTES or not stored.is_plain:
            return ThinnedPicture.of(self._reader.read_pixels(place.number), crop)
        rows = ChunkedPlane((height, width), (1, width), stored.payload_bytes // height)
        if crop is not None:
            rows = replace(rows, shape=crop.size, start=crop.start)

        def read(y: slice, x: slice) -> NDArray[Any]:
            numbers = range(y.start, y.stop, y.step)
            return np.stack([self._reader.read_rows(place.number, row, row + 1)[0, x] for row in numbers])

        return rows.read(samples, stored.pixel_type.numpy_dtype, read)

    def value(self, place: FramePlace, y: int, x: int) -> list[int | float]:
        stored = self._stored(place)
        if not (0 <= y < stored.height and 0 <= x < stored.width):
            return []
        return _values_of(self._reader.read_rows(place.number, y, y + 1)[0, x])

    def _stored(self, place: FramePlace) -> StoredFrame:
        _, stored = self._reader.stored_frame(place.number)
        if stored.payload_bytes > MAX_FRAME_BYTES and not stored.is_plain:
            raise UnsupportedFeature(f"{self._reader.path}: a frame of {stored.payload_bytes} bytes is not unpacked")
        return stored


@contextlib.contextmanager
def borrow_pictures(shelf: DatasetShelf, folder: Path) -> Iterator[PictureSource]:
    """The pictures of a dataset, with what was published up to REFRESH_S ago. Raises as the shelf."""
    with shelf.borrow(folder) as served:
        served.refresh(REFRESH_S)
        yield pictures_of(served)


def pictures_of(served: ServedDataset) -> PictureSource:
    """Frames, or planes of an array, as of the last refresh."""
    reader = served.frames
    return PictureSource(served) if reader is None else FramePictures(served, reader)


def chosen_axes(texts: Iterable[tuple[str, str]], axes: Mapping[str, Sequence[AxisValue]]) -> dict[str, AxisValue]:
    """Axis values of their texts, in the type that the axis has. Raises FrameNotFound for an axis that is missing."""
    chosen: dict[str, AxisValue] = {}
    for name, text in texts:
        values = axes.get(name)
        if not values:
            raise FrameNotFound(f"there is no axis {name!r}")
        is_number = _INTEGER.fullmatch(text) is not None and any(
            isinstance(one, int) for one in (values[0], values[-1])
        )
        chosen[name] = int(text) if is_number else text
    return chosen


def _position(array: LevelArray, place: FramePlace) -> tuple[int, ...]:
    """The indices of a place along the outer axes of an array."""
    return tuple(values.index(place.key[name]) for name, values in array.values.items())


def _chunked_plane(array: LevelArray, dataset: Dataset) -> ChunkedPlane:
    """A plane along y and x; its chunks may reach along other axes, too. Raises UnsupportedFeature for huge ones."""
    chunk, n_outer = array.layout.chunk_shape, len(array.layout.outer)
    chunk_bytes = math.prod(chunk) * array.dtype.itemsize
    if chunk_bytes > _MAX_CHUNK_BYTES and not array.layout.is_stitched:
        raise UnsupportedFeature(f"{dataset.path}: a chunk of {chunk_bytes} bytes is not drawn, {_MAX_CHUNK_BYTES} are")
    height, width = (len(axis.values) for axis in array.layout.pixels[:2])
    return ChunkedPlane((height, width), (chunk[n_outer], chunk[n_outer + 1]), chunk_bytes)


def _values_of(pixel: NDArray[Any]) -> list[int | float]:
    """Numbers as JSON has them; NaN and infinities, which it lacks, are left out."""
    return [value for value in np.atleast_1d(pixel).tolist() if math.isfinite(value)]
