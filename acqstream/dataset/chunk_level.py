"""One resolution level of a dataset in a chunk format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.arrays.mosaic import Side
from acqstream.arrays.selection import Selection, as_numpy, expand, positions
from acqstream.dataset.optional import needed
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.model.frame_space import Place

if TYPE_CHECKING:
    import dask.array
    import xarray

_PICTURE = ("y", "x", "c")
_UM_BY_UNIT = {"nm": 1e-3, "um": 1.0, "µm": 1.0, "μm": 1.0, "micrometer": 1.0, "micron": 1.0, "mm": 1e3, "m": 1e6}


class ChunkLevel:
    """An array cut into chunks, as its format keeps it; what is asked for is read, and nothing else.

    What is seen is what was there at opening or at the last `Dataset.refresh`. May be sent to another process.
    """

    is_stitched = False
    origin = (0, 0)

    def __init__(self, reader: ChunkArrayReader) -> None:
        self._reader = reader

    @property
    def path(self) -> Path:
        """The folder that was opened."""
        return self._reader.path

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first."""
        return self._reader.spec.axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each of `axes`."""
        return self._reader.spec.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """In the byte order of this machine."""
        return self._reader.spec.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """What is best read at once. Chunks begin at multiples of it."""
        return self._reader.spec.chunk_shape

    @property
    def factors(self) -> tuple[int, ...]:
        """How many items of level 0 one of this level covers along each axis."""
        return self._reader.spec.factors

    @property
    def scale(self) -> tuple[float, ...]:
        """Distance of two items along each axis, in `units`; 1 where that is not known."""
        return self._reader.spec.scale

    @property
    def units(self) -> tuple[str, ...]:
        """Of scale and translation, "" where nothing is known."""
        return self._reader.spec.units

    @property
    def translation(self) -> tuple[float, ...]:
        """Where the centre of item 0 lies along each axis, in `units`."""
        return self._reader.spec.translation

    @property
    def places(self) -> tuple[Place | None, ...]:
        """Where each position along `position` lies: (z, y, x) in um of its first item; None where that is not known.

        Empty where there are no positions, or nobody has noted their places.
        """
        return self._reader.spec.places

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What the format keeps besides."""
        return self._reader.spec.attributes

    @property
    def pixel_size_um(self) -> float | None:
        """Side of a pixel of this level along x in micrometres."""
        return self._size_um("x")

    @property
    def z_step_um(self) -> float | None:
        """Distance of two z positions in micrometres."""
        return self._size_um("z")

    def axis_values(self) -> dict[str, Sequence[str] | range]:
        """Names, else numbers, of the positions along all axes but y, x and c."""
        spec = self._reader.spec
        found: dict[str, Sequence[str] | range] = {}
        for name, size in zip(spec.axes, spec.shape, strict=True):
            labels = spec.labels.get(name, ())
            if name not in _PICTURE:
                found[name] = labels if len(labels) == size else range(size)
        return found

    def read(self, selection: Selection = ...) -> NDArray[Any]:
        """A part of the array, selected as in numpy with slices, integers and Ellipsis; a new array.

        Reads only the chunks selected, each once. What is not there is zeros: `missing` tells. Raises IndexError for a
        selection that does not fit, CorruptDataset with file and offset for a damaged chunk.
        """
        spec = self._reader.spec  # one throughout: another thread may refresh
        selectors = expand(selection, spec.shape)
        taken = [positions(selector, size) for selector, size in zip(selectors, spec.shape, strict=True)]
        array: NDArray[Any] = np.zeros([len(some) for some in taken], spec.dtype)
        runs = [list(Side(step).runs(some)) for some, step in zip(taken, spec.chunk_shape, strict=True)]
        for parts in itertools.product(*runs):
            chunk = self._reader.read_chunk(tuple(part.tile for part in parts))
            if chunk is not None:
                array[tuple(part.target for part in parts)] = chunk[tuple(part.source for part in parts)]
        selected: NDArray[Any] = array[tuple(slice(None) if isinstance(item, slice) else 0 for item in selectors)]
        return selected

    def __getitem__(self, selection: Selection) -> NDArray[Any]:
        return self.read(selection)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_numpy(self.read, dtype, copy)

    def missing(self, *, limit: int | None = None) -> list[Position]:
        """Positions in the grid of the chunks that are not there; no more than `limit`."""
        stored = set(self._reader.stored())
        return list(itertools.islice((position for position in self._grid() if position not in stored), limit))

    @property
    def missing_count(self) -> int:
        """How many chunks of the whole array are not there."""
        return math.prod(self._reader.spec.grid_shape) - sum(1 for _ in self._reader.stored())

    def to_dask(self) -> dask.array.Array:
        """The array as it is now, as a lazy dask array with the format's chunks. Raises ConfigError without dask."""
        meta = np.empty((0,) * self.ndim, self.dtype)
        da = needed("dask.array", "dask")
        array: dask.array.Array = da.from_array(self, chunks=self.chunk_shape, meta=meta, name=False)
        return array

    def to_xarray(self) -> xarray.DataArray:
        """The same as `to_dask` with named axes. Raises ConfigError without xarray and dask.

        Coordinates: names of positions where there are some, else where the centre of each item lies, in `units`.
        attrs: the attributes.
        """
        coords: dict[str, Any] = {}
        for at, (name, size) in enumerate(zip(self.axes, self.shape, strict=True)):
            labels = self._reader.spec.labels.get(name, ())
            places = self.translation[at] + self.scale[at] * np.arange(size)
            units = {"units": self.units[at]} if self.units[at] else {}
            coords[name] = list(labels) if len(labels) == size else (name, places, units)
        made: xarray.DataArray = needed("xarray", "xarray").DataArray(
            self.to_dask(), dims=self.axes, coords=coords, attrs=dict(self.attributes)
        )
        return made

    def __repr__(self) -> str:
        return f"<ChunkLevel {str(self.path)!r}, {', '.join(self.axes)}: {self.shape} {self.dtype}>"

    def _grid(self) -> Iterator[Position]:
        grid = self._reader.spec.grid_shape
        for number in range(math.prod(grid)):  # itertools.product would make lists of the sides first
            position, rest = [], number
            for size in reversed(grid):
                rest, at = divmod(rest, size)
                position.append(at)
            yield tuple(reversed(position))

    def _size_um(self, axis: str) -> float | None:
        spec = self._reader.spec
        if axis not in spec.axes:
            return None
        at = spec.axes.index(axis)
        factor = _UM_BY_UNIT.get(spec.units[at])
        return None if factor is None else spec.scale[at] * factor
