"""Levels as xarray arrays: named axes, their values and physical coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.dask_arrays import chunk_shape, dask_array_of
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.optional import needed
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    import xarray

    from acqstream.dataset.level import Level


_INT64 = range(-(2**63), 2**63)


def to_xarray(level: Level) -> xarray.DataArray:
    """A level as it is now, as an array of dask chunks; nothing is read before it is computed.

    Dimensions are the axes. Coordinates: the values of the frame axes (integers or strings); `y` and `x` where the
    middle of each pixel lies, in um, or without units in pixels of the full resolution where the size of a pixel is not
    known; `z_um` and `time_s` beside the values of `z` and `time` where the distance is known. The middle of the first
    pixel lies at 0, or where the stage was, as in mirrors of the dataset. attrs: `Level.attributes`. Frames that are
    missing are zeros. Raises ConfigError without xarray and dask, DatasetError while there is no frame.
    """
    array, attributes = LevelArray(level), level.attributes
    data = dask_array_of(array, chunk_shape(array, level.chunk_shape))
    made: xarray.DataArray = needed("xarray", "xarray").DataArray(
        data,
        dims=dimension_names(array),
        coords=coordinates(level, array),
        name=PurePath(attributes["path"]).name,
        attrs=attributes,
    )
    return made


def dimension_names(array: LevelArray) -> tuple[str, ...]:
    """The axes; one of the frames that is called like one of the pixels gets another name."""
    count = len(array.view.values)
    frame_axes, pixel_axes = array.axes[:count], array.axes[count:]
    return (*(f"{name}_axis" if name in pixel_axes else name for name in frame_axes), *pixel_axes)


def coordinates(level: Level, array: LevelArray) -> dict[str, Any]:
    """Coordinates by name, as xarray takes them: (dimensions, values, attributes)."""
    found: dict[str, Any] = {}
    for name, values in zip(dimension_names(array), array.view.values.values(), strict=False):
        found[name] = (name, _axis_coordinate(values))
    space, window, factor = level.space, array.view.window, 2 ** level.attributes["level"]
    is_placed = not level.is_stitched and "position" not in array.view.values  # else there are many places
    z_um, y_um, x_um = next(iter(space.places.values()), (0.0,) * 3) if is_placed else (0.0,) * 3
    pixel = 1.0 if space.pixel_um is None else space.pixel_um
    for name, start, size, place in zip(("y", "x"), window.start, window.size, (y_um, x_um), strict=True):
        middles = (np.arange(start, start + size) + 0.5) * factor - 0.5  # in pixels of the full resolution
        found[name] = (name, place + middles * pixel, {} if space.pixel_um is None else {"units": "um"})
    for axis, place in (("z", z_um), ("time", 0.0)):
        distance, unit = space.distance(axis)
        numbers = array.view.values.get(axis)
        if unit and numbers is not None and all(isinstance(number, int) for number in numbers):
            found[f"{axis}_{unit}"] = (axis, place + np.asarray(numbers, np.float64) * distance, {"units": unit})
    return found


def _axis_coordinate(values: Sequence[AxisValue]) -> NDArray[Any]:
    """int64 for integers, else texts: an axis may hold both, or integers that are too large."""
    if all(isinstance(value, int) and value in _INT64 for value in values):
        return np.asarray(values, np.int64)
    return np.asarray([str(value) for value in values])
