"""What `datasource-properties.json` says of the datasets of a stored array. Pure."""

from __future__ import annotations

from acqstream.formats.chunk_format import ArraySpec
from acqstream.formats.wkw.array_file import StoredArray
from acqstream.formats.wkw.datasource import (
    DatasourceProperties,
    LayerMagnification,
    LayerProperties,
    element_class,
    unit_name,
)
from acqstream.formats.wkw.magnification import Magnification, magnification_name


def dataset_properties(array: StoredArray, dataset: tuple[int, ...], container: str) -> DatasourceProperties:
    """Of one dataset of the array: what is there in every level. container is the name of the folder of the whole."""
    roles, header = array.roles, array.header
    shape = array.visible_shape()
    z, y, x = roles.extent(shape)
    entries = tuple(LayerMagnification(magnification(level), cube_side=header.cube_side) for level in array.levels)
    voxels = element_class(header.dtype, header.channels)
    layers = tuple(
        LayerProperties(array.layer_name(layer), voxels, header.channels, (x, y, z), entries)
        for layer in range(roles.layers(shape))
    )
    name = "_".join(part for part in (container, roles.folder(dataset)) if part)
    return DatasourceProperties(name, *_voxel_size(array.levels[0], roles.depth), layers)


def cube_folder(array: StoredArray, level: int, dataset: tuple[int, ...], layer: int) -> tuple[str, ...]:
    """The folder of the cubes of one level of one layer, below the container."""
    folder = array.roles.folder(dataset)
    names = (array.layer_name(layer), magnification_name(magnification(array.levels[level])))
    return (folder, *names) if folder else names


def magnification(level: ArraySpec) -> Magnification:
    """(x, y, z) out of the factors of a level in WKW's order of axes."""
    y = level.axes.index("y")
    return level.factors[y + 1], level.factors[y], level.factors[y - 1]


def _voxel_size(full: ArraySpec, depth: int) -> tuple[tuple[float, float, float], str]:
    """(x, y, z) and the unit. Pixels of unknown size are 1 micrometer; a depth that is no length is as x."""
    z, y, x = (abs(size) for size in full.scale[depth : depth + 3])
    z_unit, y_unit, x_unit = (unit_name(unit) for unit in full.units[depth : depth + 3])
    if x_unit is None or x_unit != y_unit or not min(x, y) > 0:
        return (1.0, 1.0, 1.0), "micrometer"
    return (x, y, z if z_unit == x_unit and z > 0 else x), x_unit
