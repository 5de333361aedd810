"""One resolution level of a dataset as an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.level_layout import LevelAddress, LevelSource, Missing, Spacing, X, Z
from acqstream.arrays.selection import Selection, as_numpy, expand
from acqstream.dataset.dask_arrays import to_dask
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.sources import reopened
from acqstream.dataset.xarray_arrays import to_xarray
from acqstream.description.space import UM_BY_UNIT, Place
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    import dask.array
    import xarray


class Level:
    """One resolution level as an array: the axes of frames, slowest first, then y, x and for RGB c.

    Along an axis of the frames the array has one position per value seen so far, in the order of `axis_values`. It
    shows the frames and chunks published at opening or at the last `Dataset.refresh`. It may be sent to another
    process, which opens the dataset by its path.

    The tiles of a tiled dataset make one picture (`is_stitched`): its axes are without row and column, y and x are the
    canvas from the lowest row and column to the highest. Single tiles are read with `Dataset.read_frame`.
    """

    def __init__(self, source: LevelSource) -> None:
        self.source = source

    def __reduce__(self) -> tuple[Callable[..., Level], tuple[LevelAddress, int]]:
        return _level_at, (self.source.address, self.source.item_count)

    @property
    def path(self) -> Path:
        """The folder of the level, or that of the array which was opened."""
        return self.source.path

    @property
    def item_count(self) -> int:
        """Frames or tiles seen so far (one that was written again counts again), or items of an array in chunks."""
        return self.source.item_count

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        """Values seen so far of all axes but those of the pixels, slowest axis first: names or numbers."""
        return self.source.axis_values()

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first. Raises DatasetError before the first frame, as do the properties below."""
        return self.source.layout().axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each of `axes`; of frames, by the shape of the first one."""
        return self.source.layout().shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the first frame, or of the array in the byte order of this machine."""
        return self.source.layout().dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of the best unit to read: one frame, the shown part of one tile, or one chunk.

        Chunks begin at multiples of it.
        """
        return self.source.layout().chunk_shape

    @property
    def is_stitched(self) -> bool:
        """True for an array that is put together from tiles."""
        return self.source.layout().is_stitched

    @property
    def origin(self) -> tuple[int, int]:
        """Canvas coordinates (y, x) of position (0, 0) in pixels of this level; (0, 0) without tiles.

        Pixel p of level n covers the pixels [p * 2^n, (p + 1) * 2^n) of the full resolution, in canvas coordinates.
        """
        return self.source.layout().origin

    @property
    def factors(self) -> tuple[int, ...]:
        """Items of the full resolution that one item of this level covers along each axis."""
        factors = self.source.factors
        return tuple(factors.get(axis, 1) for axis in self.axes)

    @property
    def scale(self) -> tuple[float, ...]:
        """Distance of two positions side by side along each axis, in `units`; 1, or pixels of the full resolution,
        where it is unknown or not the same for all.
        """
        return tuple(spacing.step for spacing in self._spacings())

    @property
    def units(self) -> tuple[str, ...]:
        """Units of scale and translation along each axis; "" where the distance is unknown."""
        return tuple(spacing.unit for spacing in self._spacings())

    @property
    def translation(self) -> tuple[float, ...]:
        """Centre of the first position along each axis, in `units`."""
        return tuple(spacing.start for spacing in self._spacings())

    @property
    def places(self) -> tuple[Place | None, ...]:
        """Places of the positions along `position`: (z, y, x) of the first item in um; None where it is unknown.

        Empty for arrays without positions, or without notes of their places.
        """
        return self.source.places

    def spacing_of(self, axis: str, position: AxisValue | None = None) -> Spacing:
        """(start, step, unit) along an axis, of one position: it may have a z step and an interval of its own.

        Otherwise it is that of all, as in `translation`, `scale` and `units`; there an axis has no unit where positions
        differ.
        """
        own = next((own for own in self.source.layout().all_axes if own.name == axis), None)
        return Spacing() if own is None else own.spacing(self.source.spacing(axis, position))

    def place_of(self, **values: AxisValue) -> Place | None:
        """The place of an image on the stage: `place_of(row=1, column=2)`, `place_of(position="A1")`.

        (z, y, x) of the centre of its first item in um, y and x in pixels where their size is unknown. None without a
        value for each of the axes position, row and column that the array has, or where the place is unknown.
        """
        return self.source.place_of(values)

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """Names of all positions along an axis, e.g. of channels, where the format keeps them beside the values."""
        return self.source.labels

    @property
    def pixel_size_um(self) -> float | None:
        """Side of a pixel of this level along x in micrometres; None if unknown."""
        spacing = self.source.spacing(X)
        factor = UM_BY_UNIT.get(spacing.unit)
        return None if factor is None else spacing.step * factor

    @property
    def z_step_um(self) -> float | None:
        """Distance of two z positions in micrometres, negative where planes run against the stage's z.

        For frames the declared distance, else the summary's, else that of the stage positions; None if unknown.
        """
        spacing = self.spacing_of(Z)
        factor = UM_BY_UNIT.get(spacing.unit)
        return None if factor is None else spacing.step * factor * self.source.z_direction

    def _spacings(self) -> list[Spacing]:
        return [axis.spacing(self.source.spacing(axis.name)) for axis in self.source.layout().all_axes]

    @property
    def missing_count(self) -> int:
        """Number of frames, tiles or chunks of the array that are not stored."""
        return self.source.missing_count

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Metadata of the dataset, with `path`, `level`, `complete`, and for frames `missing_frames`."""
        return self.source.attributes

    def read(self, selection: Selection = ...) -> NDArray[Any]:
        """A part of the array, selected as in numpy with slices, integers and Ellipsis; a new array.

        Reads only the selected frames, tiles and chunks, each once, and only the selected rows of frames. Frames and
        chunks that are not stored read as zeros, and `missing` lists them. Raises IndexError for a selection that does
        not fit, CorruptDataset with file and offset for damaged bytes, DatasetError naming a frame whose shape or dtype
        differs from that of the first one.
        """
        layout = self.source.layout()
        ranges, index = expand(selection, layout.shape)
        selected: NDArray[Any] = self.source.read(layout, ranges)[index]
        return selected

    def __getitem__(self, selection: Selection) -> NDArray[Any]:
        return self.read(selection)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_numpy(self.read, dtype, copy)

    def missing(self, selection: Selection = ..., *, limit: int | None = None) -> list[Missing]:
        """Frames or tiles of a part of the array that are not stored, by the values of their axes; `limit` at most.

        Chunks are named by their position in the grid along each axis.
        """
        layout = self.source.layout()
        return list(self.source.missing(layout, expand(selection, layout.shape)[0], limit))

    def as_array(self) -> LevelArray:
        """The level as it is now, as an array of fixed shape that reads when it is indexed."""
        return LevelArray(self.source)

    def to_dask(self) -> dask.array.Array:
        """The level as it is now, as a lazy dask array, see `dask_arrays.to_dask`."""
        return to_dask(self.source)

    def to_xarray(self) -> xarray.DataArray:
        """The same with named axes and coordinates, see `xarray_arrays.to_xarray`."""
        return to_xarray(self.source)

    def __repr__(self) -> str:
        if not self.item_count:
            return f"<Level {str(self.path)!r}, no frame yet>"
        return f"<Level {str(self.path)!r}, {', '.join(self.axes)}: {self.shape} {self.dtype}>"


def _level_at(address: LevelAddress, item_count: int) -> Level:
    return Level(reopened(address, item_count))
