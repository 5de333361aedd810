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
    middle of each pixel lies, in um, or in pixels of the level where the size of a pixel is not known; `z_um` beside
    the values of `z` where the step is known. attrs: `Level.attributes`. Frames that are missing are zeros. Raises
    ConfigError without xarray and dask, DatasetError while there is no frame.
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
    pixel_um, step_um, window = level.pixel_size_um, level.z_step_um, array.view.window
    for name, start, size in zip(("y", "x"), window.start, window.size, strict=True):
        middles = np.arange(start, start + size) + 0.5
        found[name] = (name, middles * (pixel_um or 1.0), {"units": "um" if pixel_um else "pixel"})
    z = array.view.values.get("z")
    if step_um is not None and z is not None and all(isinstance(value, int) for value in z):
        found["z_um"] = ("z", np.asarray(z, np.float64) * step_um, {"units": "um"})
    return found


def _axis_coordinate(values: Sequence[AxisValue]) -> NDArray[Any]:
    """int64 for integers, else texts: an axis may hold both, or integers that are too large."""
    if all(isinstance(value, int) and value in _INT64 for value in values):
        return np.asarray(values, np.int64)
    return np.asarray([str(value) for value in values])
