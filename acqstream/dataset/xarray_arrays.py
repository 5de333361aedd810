"""Levels as xarray arrays: named axes, their values and physical coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.level_layout import C, LevelSource
from acqstream.dataset.dask_arrays import dask_array_of
from acqstream.dataset.level_array import LevelArray, import_optional
from acqstream.description.space import UM
from acqstream.model.axes import POSITION, AxisValue

if TYPE_CHECKING:
    import xarray

_INT64 = range(-(2**63), 2**63)


def to_xarray(source: LevelSource) -> xarray.DataArray:
    """A level as it is now, as an array of dask chunks; nothing is read before it is computed.

    Dimensions are the axes. Coordinates: the values of the outer axes (integers or strings); `y` and `x` are the
    middles of pixels, in um or the unit of the format, or without units in pixels of the full resolution where the size
    of a pixel is unknown; `z_um` and `time_s` stand beside the values of `z` and `time` where they are known: `time_s`
    has the measured times, along all axes that they depend on. Of several positions, `position_z_um`, `position_y_um`
    and `position_x_um` say where the first pixel of each lies, and `y` and `x` count from there. Names beside integers
    are in `channel_name`. The middle of the first pixel lies at 0, or where the
    stage's place puts it, which is that of the middle of the image. attrs: `Level.attributes`. Frames and chunks that
    are not stored are zeros. Raises ConfigError without xarray and dask, DatasetError before the first frame.
    """
    array = LevelArray(source)
    array_with_names: xarray.DataArray = import_optional("xarray", "xarray").DataArray(
        dask_array_of(array),
        dims=dimension_names(array),
        coords=coordinates(source, array),
        name=source.title,
        attrs=source.attributes,
    )
    return array_with_names


def dimension_names(array: LevelArray) -> tuple[str, ...]:
    """The axes; an outer one that is called like one of the pixels gets another name."""
    pixels = [axis.name for axis in array.layout.pixels]
    return (*(f"{name}_axis" if name in pixels else name for name in array.values), *pixels)


def coordinates(source: LevelSource, array: LevelArray) -> dict[str, Any]:
    """Coordinates by name, as xarray takes them: (dimensions, values, attributes)."""
    by_name: dict[str, Any] = {}
    for dimension, axis in zip(dimension_names(array), array.outer, strict=False):
        by_name[dimension] = (dimension, _axis_coordinate(axis.values))
    dimensions = dict(zip(array.axes, dimension_names(array), strict=True))
    for name, found in source.coordinates(array.layout).items():
        axes = tuple(dimensions[axis] for axis in found.axes)
        by_name[name if name not in by_name else f"{name}_"] = (axes, found.values, {"units": found.unit})
    is_whole = len(by_name.get("z_um", ((),))[0]) > 1  # planes of each position lie where it says
    for name, (along, items, attributes) in _of_positions(source, array).items():
        if not (is_whole and name == f"{POSITION}_z_um"):
            by_name.setdefault(name, (dimensions[along], items, attributes))
    for axis in array.layout.pixels:
        if axis.name != C:
            spacing = source.spacing(axis.name)
            units = {"units": spacing.unit} if spacing.unit else {}
            by_name[axis.name] = (axis.name, axis.centres(spacing), units)
    return by_name


def _of_positions(source: LevelSource, array: LevelArray) -> dict[str, tuple[str, NDArray[Any], dict[str, str]]]:
    """Names beside integers, and places of images: (axis, values, attributes) by name."""
    found: dict[str, tuple[str, Sequence[Any], dict[str, str]]] = {
        f"{axis}_name": (axis, names, {}) for axis, names in source.labels.items()
    }
    if any(source.places):
        places = zip(*(place or (np.nan,) * 3 for place in source.places), strict=True)
        for axis, ats in zip("zyx", places, strict=True):
            found[f"{POSITION}_{axis}_um"] = (POSITION, ats, {"units": UM})
    values = source.axis_values()
    return {
        name: (axis, np.asarray([dict(zip(values[axis], items, strict=True))[at] for at in array.values[axis]]), more)
        for name, (axis, items, more) in found.items()
        if axis in array.values and len(items) == len(values.get(axis, ()))
    }


def _axis_coordinate(values: Sequence[AxisValue]) -> NDArray[Any]:
    """int64 for integers, else texts: an axis may hold both, or integers that are too large."""
    if isinstance(values, range) or all(isinstance(value, int) and value in _INT64 for value in values):
        return np.asarray(values, np.int64)
    return np.asarray([str(value) for value in values])
