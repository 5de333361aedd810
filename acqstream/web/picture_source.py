"""Where the pictures of a dataset come from: its frames, or an array that is thinned out."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.channel_looks import CHANNEL, ChannelLook
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.dataset.first_frames import FrameLooks
from acqstream.dataset.frame_level import FrameLevel
from acqstream.dataset.level import Level
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.level_choice import level_arrays, small_array, small_factors
from acqstream.dataset.source import Spacing, X, Y
from acqstream.errors import DatasetError, FrameNotFound, UnknownFormat, UnsupportedFeature
from acqstream.formats.ndtiff.completion import dataset_id
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.model.axes import AxisValue
from acqstream.storage.files.boundary import following_links
from acqstream.web.thinned_picture import MAX_BYTES, ChunkedPlane, ThinnedPicture

MAX_FRAME_BYTES = 2**28  # of a compressed frame, which is decoded whole
MAX_WALK = 4000  # frames that are looked at, from the newest back, for one of a channel and plane
_OVERVIEW_SIDE = 1024
_MAX_DOCUMENTS = 64  # looked at for each picture; chunks may lie beside them
_MAX_CHUNK_BYTES = 2**27  # which is unpacked whole
_MAX_FIRST_BYTES = 2**26  # of a first frame that is read
_MAX_WHOLE_BYTES = 2**26  # of a frame; of a larger one some rows are read
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class FramePlace:
    """A frame: its axes, its number in order of arrival, and a word that changes with its content."""

    key: Mapping[str, AxisValue]
    number: int
    tag: str


class PictureSource(Protocol):
    """One dataset. All methods may read files; from any thread."""

    format: str

    @property
    def count(self) -> int:
        """Frames, or items of the array, at the last `refresh`."""

    def refresh(self) -> None:
        """Look for what was published."""

    def axes(self) -> dict[str, Sequence[AxisValue]]:
        """Values of the axes that choose a picture, slowest first."""

    def shape(self) -> tuple[tuple[int, ...], str, int | None]:
        """Shape of a picture (Y, X[, 3]), dtype, and significant bits if they are known."""

    def find(self, fixed: Mapping[str, AxisValue]) -> FramePlace:
        """The frame with these axes; where they leave a choice, the newest one, in arrays the middle one.

        Raises FrameNotFound.
        """

    def picture(self, place: FramePlace) -> ThinnedPicture:
        """The pixels (Y, X) or (Y, X, 3), of a large plane some of them. Its parts read files; raises DatasetError."""

    def value(self, place: FramePlace, y: int, x: int) -> list[int | float]:
        """The stored value at a pixel, of RGB three values; empty outside of the frame. Raises DatasetError."""

    def spacing(self, axis: str) -> Spacing:
        """Of the stored pixels along y and x, and of the values of an axis, side by side."""

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        """Names, colours and contrast by channel, in the order of `axes`; of None without any."""

    def close(self) -> None: ...


def open_pictures(folder: Path) -> PictureSource:
    """A source for the dataset in a folder, which follows no link out of it.

    Raises UnknownFormat for one that has no frame yet, or is none.
    """
    try:
        with following_links(False):
            readers = open_readers(folder)
    except UnknownFormat:
        return ArrayPictures(open_dataset(folder))
    for reader in readers[1:]:
        reader.close()
    if readers[0].tile_overlap is not None:
        readers[0].close()
        return ArrayPictures(open_dataset(folder))
    return FramePictures(readers[0])


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


class FramePictures:
    """Frames of an NDTiff dataset that is not tiled."""

    format = "ndtiff"

    def __init__(self, reader: NDTiffReader) -> None:
        self._reader = reader
        self._level = FrameLevel(reader, reader, follows_links=False)
        self._looks = FrameLooks(reader)
        self._identity = ""  # of the dataset: another one may have its name, its folder and its places

    @property
    def count(self) -> int:
        return len(self._reader)

    def refresh(self) -> None:
        self._reader.refresh()

    def axes(self) -> dict[str, Sequence[AxisValue]]:
        return self._level.axis_values()

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
        self._identity = self._identity or frame_identity(self._reader)
        return FramePlace(self._reader.key(row), row, f"{self._identity}:{name}:{stored.pixels}")

    def _newest(self, fixed: Mapping[str, AxisValue]) -> int:
        last = len(self._reader) - 1
        for row in range(last, max(-1, last - MAX_WALK), -1):
            key = self._reader.key(row)
            if all(key.get(name) == value for name, value in fixed.items()):
                return row
        raise FrameNotFound(f"{self._reader.path}: no such frame among the newest {MAX_WALK}")

    def picture(self, place: FramePlace) -> ThinnedPicture:
        stored = self._stored(place)
        if stored.payload_bytes <= _MAX_WHOLE_BYTES or not stored.is_plain:
            return ThinnedPicture.of(self._reader.read_pixels(place.number))
        height, width, *samples = stored.shape
        rows = ChunkedPlane((height, width), (1, width), stored.payload_bytes // height)

        def read(y: slice, x: slice) -> NDArray[Any]:
            numbers = range(height)[y]
            return np.stack([self._reader.read_rows(place.number, row, row + 1)[0, x] for row in numbers])

        return rows.read(samples, stored.pixel_type.numpy_dtype, read)

    def value(self, place: FramePlace, y: int, x: int) -> list[int | float]:
        stored = self._stored(place)
        if not (0 <= y < stored.height and 0 <= x < stored.width):
            return []
        return _values_of(self._reader.read_rows(place.number, y, y + 1)[0, x])

    def spacing(self, axis: str) -> Spacing:
        return Level(self._level).spacing_of(axis)

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        return self._looks.find(self.axes().get(CHANNEL, ()))

    def _stored(self, place: FramePlace) -> StoredFrame:
        _, stored = self._reader.stored_frame(place.number)
        if stored.payload_bytes > MAX_FRAME_BYTES and not stored.is_plain:
            raise UnsupportedFeature(f"{self._reader.path}: a frame of {stored.payload_bytes} bytes is not unpacked")
        return stored

    def close(self) -> None:
        self._reader.close()


class ArrayPictures:
    """Planes of an array: of mirrors, of other software, and of tiles put together. Large planes are thinned out."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.format = dataset.format
        self._lock = threading.Lock()  # a refresh changes the levels

    @property
    def count(self) -> int:
        return int(self._dataset.levels[0].item_count)

    def refresh(self) -> None:
        with self._lock:
            self._dataset.refresh()

    def axes(self) -> dict[str, Sequence[AxisValue]]:
        return small_array(self._dataset, {}).values  # no copies: an axis may claim any length

    def shape(self) -> tuple[tuple[int, ...], str, int | None]:
        level = self._dataset.levels[0]
        sizes = dict(zip(level.axes, level.shape, strict=True))
        shape = tuple(sizes[name] for name in ("y", "x", "c") if name in sizes)
        bits = level.source.bits or 8 * level.dtype.itemsize
        return shape, str(level.dtype), bits if level.dtype.kind == "u" else None

    def find(self, fixed: Mapping[str, AxisValue]) -> FramePlace:
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

    def picture(self, place: FramePlace) -> ThinnedPicture:
        with self._lock:
            array = small_array(self._dataset, {}, _OVERVIEW_SIDE)
            factors = small_factors(self._dataset, _OVERVIEW_SIDE)
        if not array.layout.pixels:
            raise UnsupportedFeature(f"{self._dataset.path}: a picture needs y and x as the last axes")
        outer, samples = _position(array, place), array.shape[len(array.values) + 2 :]
        plane = _chunked_plane(array, self._dataset)
        if is_by_rows := array.layout.is_stitched and plane.cost(plane.least_step)[1] > MAX_BYTES:
            width = plane.chunk[1]
            plane = ChunkedPlane(plane.shape, (1, width), width * array.dtype.itemsize * math.prod(samples))

        def read(y: slice, x: slice) -> NDArray[Any]:
            if not is_by_rows:
                return np.asarray(array[(*outer, y, x)])
            return np.stack([array[(*outer, row, x)] for row in range(plane.shape[0])[y]])

        drawn = plane.read(samples, array.dtype, read)
        return replace(drawn, steps=(factors[Y] * drawn.steps[0], factors[X] * drawn.steps[1]))

    def value(self, place: FramePlace, y: int, x: int) -> list[int | float]:
        with self._lock:
            array = level_arrays(self._dataset, {})[0]
            height, width = _chunked_plane(array, self._dataset).shape
            if not (0 <= y < height and 0 <= x < width):
                return []
            return _values_of(array[(*_position(array, place), y, x)])

    def spacing(self, axis: str) -> Spacing:
        return self._dataset.levels[0].spacing_of(axis)

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        return self._dataset.channel_looks()

    def close(self) -> None:
        self._dataset.close()


def frame_identity(reader: NDTiffReader) -> str:
    """Hexadecimal digits that another dataset does not have, nor one whose first frame was recorded again."""
    noted = dataset_id(reader.container).replace("-", "").lower()
    summary = "" if noted else json.dumps(dict(reader.summary_metadata), sort_keys=True, default=str)
    found = hashlib.sha256(f"{noted}{summary}".encode())
    with contextlib.suppress(DatasetError, IndexError):  # no frame yet, or a damaged one
        if reader.stored_frame(0)[1].payload_bytes <= _MAX_FIRST_BYTES:  # an entry may claim any size
            found.update(reader.read_pixels(0).tobytes())
        found.update(reader.metadata_bytes(0))
    return found.hexdigest()[:32]


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
