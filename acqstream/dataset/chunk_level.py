"""Reads one level of an array cut into chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.arrays.mosaic import Side
from acqstream.dataset.source import (
    C,
    LevelAddress,
    LevelAxis,
    LevelLayout,
    Missing,
    Spacing,
    X,
    Y,
    item_count,
    numbers_taken,
    pixel_axis,
)
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.model.axes import AxisValue
from acqstream.model.frame_space import Place

_PIXELS = ((Y, X, C), (Y, X))


class _Part(NamedTuple):
    """Selected positions along one axis that lie in one chunk: where they go in the result, and where in the chunk."""

    chunk: int
    target: slice
    source: slice


class ChunkLevel:
    """A LevelSource over the reader of a chunk format; what is asked for is read, and nothing else.

    opened is the path that was opened, number that of the level.
    """

    def __init__(self, reader: ChunkArrayReader, opened: Path, number: int, *, follows_links: bool) -> None:
        self.reader = reader
        self._address = LevelAddress(str(opened.absolute()), number, follows_links)

    @property
    def path(self) -> Path:
        """The folder that was opened."""
        return self.reader.path

    @property
    def title(self) -> str:
        return self.path.name

    @property
    def address(self) -> LevelAddress:
        return self._address

    @property
    def item_count(self) -> int:
        return item_count(self.reader.spec.shape)

    @property
    def is_settled(self) -> bool:
        return self.reader.complete

    @property
    def factors(self) -> Mapping[str, int]:
        return dict(zip(self.reader.spec.axes, self.reader.spec.factors, strict=True))

    @property
    def attributes(self) -> dict[str, Any]:
        """What the format keeps besides; and path of the array, level, whether it is complete."""
        level, complete = self._address.number, self.reader.complete
        return {**self.reader.spec.attributes, "path": str(self.path), "level": level, "complete": complete}

    @property
    def places(self) -> tuple[Place | None, ...]:
        return self.reader.spec.places

    @property
    def z_direction(self) -> int:
        return 1

    @property
    def missing_count(self) -> int:
        """Number of chunks that are not stored."""
        return math.prod(self.reader.spec.grid_shape) - sum(1 for _ in self.reader.stored())

    def layout(self) -> LevelLayout:
        spec = self.reader.spec
        n_pixels = next((len(names) for names in _PIXELS if spec.axes[-len(names) :] == names), 0)
        split = len(spec.axes) - n_pixels
        return LevelLayout(
            outer=tuple(_outer_axis(spec, at) for at in range(split)),
            pixels=tuple(pixel_axis(*axis) for axis in zip(spec.axes, [0] * len(spec.axes), spec.shape, strict=True))[
                split:
            ],
            dtype=spec.dtype,
            chunk_shape=spec.chunk_shape,
        )

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        return self.layout().values

    def spacing(self, axis: str) -> Spacing:
        spec = self.reader.spec
        if axis not in spec.axes:
            return Spacing()
        at = spec.axes.index(axis)
        return Spacing(spec.translation[at], spec.scale[at], spec.units[at])

    def read(self, layout: LevelLayout, taken: Sequence[range]) -> NDArray[Any]:
        """See LevelSource. Each chunk is read once. Raises CorruptDataset with file and offset for a damaged chunk."""
        spec = self.reader.spec  # one throughout: another thread may refresh
        array: NDArray[Any] = np.zeros([len(some) for some in taken], spec.dtype)
        for parts in itertools.product(*self._parts(spec, layout, taken)):
            chunk = self.reader.read_chunk(tuple(part.chunk for part in parts))
            if chunk is not None:
                array[tuple(part.target for part in parts)] = chunk[tuple(part.source for part in parts)]
        return array

    def missing(self, layout: LevelLayout, taken: Sequence[range], limit: int | None) -> Sequence[Missing]:
        """Positions of chunks in the grid."""
        spec, stored = self.reader.spec, set(self.reader.stored())
        if [len(some) for some in taken] == list(spec.shape):
            wanted: Iterator[Position] = _positions(spec.grid_shape)
        else:
            parts = self._parts(spec, layout, taken)
            wanted = itertools.product(*(dict.fromkeys(part.chunk for part in some) for some in parts))
        absent = (dict[str, AxisValue](zip(spec.axes, at, strict=True)) for at in wanted if at not in stored)
        return list(itertools.islice(absent, limit))

    def _parts(self, spec: ArraySpec, layout: LevelLayout, taken: Sequence[range]) -> list[list[_Part]]:
        """What the selection takes of the chunks, by axis."""
        if layout.axes != spec.axes:
            raise DatasetError(f"{self.path}: axes changed from {list(layout.axes)} to {list(spec.axes)}")
        per_axis = zip(layout.all_axes, taken, spec.shape, spec.chunk_shape, strict=True)
        return [list(_parts_of(numbers_taken(axis, some), size, step)) for axis, some, size, step in per_axis]


def _outer_axis(spec: ArraySpec, at: int) -> LevelAxis:
    """Names of the positions where there is one for each, else their numbers."""
    name, size = spec.axes[at], spec.shape[at]
    labels, numbers = spec.labels.get(name, ()), range(size)
    return LevelAxis(name, list(labels) if len(labels) == size else numbers, numbers)


def _parts_of(numbers: Sequence[int], size: int, step: int) -> Iterator[_Part]:
    for first, run in _ranges(numbers):
        inside = [at for at, number in enumerate(run) if 0 <= number < size]
        if not inside:
            continue
        start = first + inside[0]
        for part in Side(step).runs(run[inside[0] : inside[-1] + 1]):
            yield _Part(part.tile, slice(start + part.target.start, start + part.target.stop), part.source)


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, range]]:
    """Numbers as ranges, each with its place among them."""
    if isinstance(numbers, range):
        yield 0, numbers
        return
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield first, range(numbers[first], numbers[first] + at - first)
            first = at


def _positions(grid: Sequence[int]) -> Iterator[Position]:
    """All positions of a grid; itertools.product would make lists of the sides first."""
    for number in range(math.prod(grid)):
        position, rest = [], number
        for size in reversed(grid):
            rest, at = divmod(rest, size)
            position.append(at)
        yield tuple(reversed(position))
