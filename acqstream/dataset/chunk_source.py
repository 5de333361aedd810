"""A dataset in a chunk format, and its levels: arrays, no single frames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.arrays.level_layout import (
    AxisCoordinates,
    C,
    LevelAddress,
    LevelAxis,
    LevelLayout,
    Missing,
    Spacing,
    X,
    Y,
    even_coordinates,
    numbers_at,
    pixel_axis,
    uneven_coordinates,
)
from acqstream.arrays.reader_axes import Part, copy_part, in_stored_order, parts_along, shown_axes
from acqstream.arrays.selection import as_slice
from acqstream.description.channels import CHANNEL, ChannelLook, channel_looks, settings_of
from acqstream.description.space import Place
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.model.axes import POSITION, AxisValue
from acqstream.model.run_note import RunNote
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.boundary import following_links
from acqstream.storage.stores.data_path import data_path_of

_PIXELS = ((Y, X, C), (Y, X))


class ChunkLevel:
    """A LevelSource over the reader of a chunk format; it reads selected chunks only.

    opened is the path that was opened, number that of the level.
    """

    def __init__(self, reader: ChunkReader, opened: Path, number: int, *, follows_links: bool) -> None:
        self.reader = reader
        self._address = LevelAddress(str(opened.absolute()), number, follows_links)

    @property
    def path(self) -> Path:
        """The folder of the array."""
        return self.reader.path.path

    @property
    def title(self) -> str:
        return self.path.name

    @property
    def address(self) -> LevelAddress:
        return self._address

    @property
    def item_count(self) -> int:
        return math.prod(self.layout().shape)

    @property
    def is_settled(self) -> bool:
        return self.reader.complete

    @property
    def factors(self) -> Mapping[str, int]:
        return dict(zip(self.reader.spec.axes, self.reader.spec.factors, strict=True))

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes in the format, with `path` of the array, `level` and `complete`."""
        level, complete = self._address.number, self.reader.complete
        return {**self.reader.spec.attributes, "path": str(self.path), "level": level, "complete": complete}

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        noted, labels = self.reader.spec.labels, {}
        for axis in shown_axes(self.reader.spec):
            names = noted.get(axis.name, ())
            if names and len(names) > max(axis.places, default=-1):
                labels[axis.name] = [names[at] for at in axis.places]
        return labels

    @property
    def places(self) -> tuple[Place | None, ...]:
        spec = self.reader.spec
        known = spec.places.positions()
        order = next((axis.places for axis in shown_axes(spec) if axis.name == POSITION), range(len(known)))
        return tuple(known[at] if at < len(known) else None for at in order) if known else ()

    def place_of(self, values: Mapping[str, AxisValue]) -> Place | None:
        spec = self.reader.spec
        known = {axis.name: axis for axis in shown_axes(spec) if axis.name in spec.places.axes}
        at = {name: next(iter(axis.places_of([values[name]]))) for name, axis in known.items() if name in values}
        return spec.places.find(at) if len(at) == len(known) else None

    @property
    def evidence(self) -> Mapping[str, str]:
        return self.reader.spec.evidence

    @property
    def doubts(self) -> tuple[str, ...]:
        return ()

    @property
    def bits(self) -> int:
        return self.reader.spec.bits

    @property
    def z_direction(self) -> int:
        return 1

    @property
    def missing_count(self) -> int:
        """Number of chunks that are not stored."""
        spec = self.reader.spec
        if not spec.axis_values:
            return math.prod(spec.grid_shape) - sum(1 for _ in self.reader.stored())
        layout = self.layout()
        parts = self._parts(spec, layout, [range(size) for size in layout.shape])
        shown = [{chunk for chunk, _, _ in side} for side in parts]
        stored = sum(1 for at in self.reader.stored() if all(map(set.__contains__, shown, at)))
        return math.prod(map(len, shown)) - stored

    def layout(self) -> LevelLayout:
        spec = self.reader.spec
        axes = shown_axes(spec)
        names = tuple(axis.name for axis in axes)
        n_pixels = next((len(last) for last in _PIXELS if names[-len(last) :] == last), 0)
        split = len(axes) - n_pixels
        return LevelLayout(
            outer=tuple(LevelAxis(axis.name, axis.values, axis.numbers) for axis in axes[:split]),
            pixels=tuple(pixel_axis(axis.name, 0, len(axis.places)) for axis in axes[split:]),
            dtype=spec.dtype,
            chunk_shape=tuple(spec.chunk_shape[axis.stored] for axis in axes),
        )

    def fitted(self, layout: LevelLayout) -> LevelLayout:
        """See LevelSource: all pictures are alike."""
        return layout

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        return self.layout().values

    def spacing(self, axis: str, position: AxisValue | None = None) -> Spacing:
        spec = self.reader.spec
        if position is not None and spec.own:
            shown = [one for one in shown_axes(spec) if one.name == POSITION]
            spec = spec.of_image({POSITION: next(iter(shown[0].places_of([position]))) if shown else -1})
        if axis not in spec.axes:
            return Spacing()
        at = spec.axes.index(axis)
        # Other software states 0 where it knows no distance, and viewers refuse that.
        return Spacing(spec.translation[at], spec.scale[at], spec.units[at]) if spec.scale[at] else Spacing()

    def coordinates(self, layout: LevelLayout) -> Mapping[str, AxisCoordinates]:
        spec = self.reader.spec
        whole = {axis: known for axis, known in spec.coordinates.items() if self.factors.get(axis, 1) == 1}
        return even_coordinates(layout, self.spacing) | uneven_coordinates(layout, whole, spec.axis_values)

    def metadata(self, layout: LevelLayout) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """See LevelSource: chunks have none of frames."""
        yield from ()

    def read(self, layout: LevelLayout, ranges: Sequence[range]) -> NDArray[Any]:
        """See LevelSource. Each chunk is read once. Raises CorruptDataset with file and offset for a damaged chunk."""
        spec = self.reader.spec  # read once: another thread may refresh
        array: NDArray[Any] = np.zeros([*map(len, ranges)], spec.dtype)
        target = in_stored_order(array, shown_axes(spec), len(spec.axes))
        for parts in itertools.product(*self._parts(spec, layout, ranges)):
            chunks, at, source = zip(*parts, strict=True) if parts else ((), (), ())
            chunk = self.reader.read_chunk(chunks)
            if chunk is not None:
                copy_part(target, at, chunk, source)
        return array

    def missing(self, layout: LevelLayout, ranges: Sequence[range], limit: int | None) -> Sequence[Missing]:
        """Positions of chunks in the grid."""
        spec, stored = self.reader.spec, set(self.reader.stored())
        if not spec.axis_values and [*map(len, ranges)] == [*spec.shape]:
            selected: Iterator[Position] = _positions(spec.grid_shape)
        else:
            parts = self._parts(spec, layout, ranges)
            selected = itertools.product(*(dict.fromkeys(chunk for chunk, _, _ in side) for side in parts))
        absent = (dict[str, AxisValue](zip(spec.axes, at, strict=True)) for at in selected if at not in stored)
        return list(itertools.islice(absent, limit))

    def _parts(self, spec: ArraySpec, layout: LevelLayout, ranges: Sequence[range]) -> list[list[Part]]:
        """The parts of chunks that a selection takes, by axis of the stored array."""
        axes = shown_axes(spec)
        names = tuple(axis.name for axis in axes)
        if layout.axes != names:
            raise DatasetError(f"{self.path}: the axes changed from {list(layout.axes)} to {list(names)}")
        parts: list[list[Part]] = [[(0, slice(0, 1), slice(0, 1))] for _ in spec.axes]  # as of hidden axes
        for axis, own, positions in zip(axes, layout.all_axes, ranges, strict=True):
            if axis.name in spec.axis_values:
                places = axis.places_of(own.values[as_slice(positions)])
            else:
                places = numbers_at(own, positions)
            parts[axis.stored] = parts_along(places, spec.shape[axis.stored], spec.chunk_shape[axis.stored])
        return parts


def _positions(grid: Sequence[int]) -> Iterator[Position]:
    """All positions of a grid; itertools.product would make lists of the sides first."""
    return (position_at(number, grid) for number in range(math.prod(grid)))


def position_at(number: int, grid: Sequence[int]) -> Position:
    """The position with this number in a grid, last axis fastest."""
    position = []
    for size in reversed(grid):
        number, at = divmod(number, size)
        position.append(at)
    return tuple(reversed(position))


class ChunkSource:
    """A dataset of the readers of all levels of an array."""

    def __init__(self, opened: Path, chunk_format: ChunkFormat[Any], *, follows_links: bool) -> None:
        self.format = chunk_format.name
        self._format = chunk_format
        self._opened = opened
        self._follows_links = follows_links
        self._readers: list[ChunkReader] = []
        self._levels: list[ChunkLevel] = []
        self._find_levels()
        self.path = self._readers[0].path.path

    @property
    def levels(self) -> Sequence[ChunkLevel]:
        return tuple(self._levels)

    @property
    def complete(self) -> bool:
        """False while chunks may come, as far as a writer of ours has noted it."""
        return self._readers[0].complete

    @property
    def writing(self) -> bool:
        """The opposite of `complete`: a chunk format has no other note of it."""
        return not self.complete

    @property
    def state(self) -> None:
        """None: the daemon writes its state beside the frames."""

    @property
    def mirrors(self) -> Mapping[str, MirrorResult]:
        """None: they are recorded beside the frames."""
        return {}

    @property
    def notes(self) -> tuple[RunNote, ...]:
        """None: they lie beside the frames."""
        return ()

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """Attributes of the array in its format."""
        return self._readers[0].spec.attributes

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """Colours and contrast as the note of our writer has them; empty without one."""
        return settings_of(self._readers[0].spec.looks)

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        """As the note of our writer has them, else by the names of the channels."""
        level, spec = self._levels[0], self._readers[0].spec
        axis = next((axis for axis in shown_axes(spec) if axis.name == CHANNEL), None)
        values: Sequence[AxisValue | None] = axis.values if axis is not None else [None]
        places = axis.places if axis is not None else [0]
        looks: Sequence[ChannelLook] = [spec.looks[at] for at in places if at < len(spec.looks)]
        if len(looks) < len(places):
            looks = channel_looks(level.labels.get(CHANNEL, values), self.summary_metadata, {})
        return dict(zip(values, looks, strict=True))

    @property
    def extent(self) -> str:
        spec = self._readers[0].spec
        return "no frame yet" if 0 in spec.shape and self.writing else f"{spec.shape} {spec.dtype}"

    def axis_values(self) -> Mapping[str, Sequence[AxisValue]]:
        return self._levels[0].axis_values()

    def refresh(self) -> list[dict[str, AxisValue]]:
        """Read the metadata again, of all levels, and add new levels. The list is empty, as arrays have no frames."""
        for reader in self._readers:
            reader.refresh()
        self._find_levels()
        return []

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def _find_levels(self) -> None:
        with following_links(self._follows_links):
            readers = self._format.open(data_path_of(self._opened))[len(self._readers) :]
        for number, reader in enumerate(readers, len(self._readers)):
            self._levels.append(ChunkLevel(reader, self._opened, number, follows_links=self._follows_links))
        self._readers += readers
