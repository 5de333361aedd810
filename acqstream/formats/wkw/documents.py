"""Content of `datasource-properties.json` for the datasets of a stored array. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.channels import display_range
from acqstream.description.space import UM_BY_UNIT
from acqstream.formats.watermark_layout import NOTHING, Extent, Rows
from acqstream.formats.wkw.axes import COMPONENT, plain_name
from acqstream.formats.wkw.datasource import (
    OWN_UNIT,
    DatasourceProperties,
    LayerMagnification,
    LayerProperties,
    element_class,
    unit_name,
)
from acqstream.formats.wkw.magnification import Magnification, magnification_name
from acqstream.formats.wkw.notes import StoredArray


def dataset_properties(
    array: StoredArray, dataset: tuple[int, ...], container: str, extents: Sequence[Extent]
) -> DatasourceProperties:
    """Of one dataset of the array. extents: those of the bounding box of each layer; a layer without voxels is left
    out. container is the name of the folder of the whole.
    """
    roles, header = array.roles, array.header
    entries = tuple(LayerMagnification(magnification(level), cube_side=header.cube_side) for level in array.levels)
    voxels = element_class(header.dtype, header.channels)
    layers = tuple(
        LayerProperties(
            array.layer_name(layer), voxels, header.channels, (x, y, depth), entries, view=_view(array.levels[0], layer)
        )
        for layer, (depth, y, x) in enumerate(extents)
        if depth
    )
    name = "_".join(part for part in (plain_name(container), roles.folder(dataset)) if part)
    at = {roles.axes[axis]: item for axis, item in zip(roles.folders, dataset, strict=True)}
    return DatasourceProperties(name, *_voxel_size(array.levels[0].of_image(at), roles.depth), layers)


def _view(full: ArraySpec, layer: int) -> dict[str, object]:
    """How webKNOSSOS shows a layer at first; nothing for RGB, and where nothing is known."""
    if layer >= len(full.looks) or full.axes[-1] == COMPONENT:
        return {}
    look = full.looks[layer]
    shown = display_range(look, full.dtype, full.bits)
    color = [*bytes.fromhex(look.color[1:])]
    return {"color": color, "intensityRange": [shown.start, shown.end], "min": shown.low, "max": shown.high}


def visible_extents(array: StoredArray, rows: Rows) -> tuple[Extent, ...]:
    """The extent of each layer of a dataset that is stored in every level, in voxels of the full resolution.

    rows: by level and layer, in chunks.
    """
    shape, axis = array.visible_shape(), array.roles.depth
    _, y, x = array.roles.extent(shape)

    def depth_of(layer: int) -> int:
        depth = shape[axis]
        for number, level in enumerate(array.levels):
            whole = rows.get((number, layer), 0) * level.chunk_shape[axis]
            if whole < level.shape[axis]:
                depth = min(depth, whole * level.factors[axis])
        return depth

    depths = map(depth_of, range(array.roles.layers(shape)))
    return tuple((depth, y, x) if depth and y and x else NOTHING for depth in depths)


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
    """(x, y, z) and the unit that all share. A distance that is not a known length is 1 of it, as the note says; the
    unit is nanometer, the format's own, where none is known.
    """
    sides = [*zip(full.scale, full.units, strict=True)][depth : depth + 3]
    known = [unit for size, unit in reversed(sides) if unit_name(unit) is not None and size]
    unit = known[0] if known else ""
    z, y, x = (
        float(f"{abs(size) * UM_BY_UNIT[own] / UM_BY_UNIT[unit]:.12g}") if own in known and size else 1.0
        for size, own in sides
    )
    return (x, y, z), unit_name(unit) or OWN_UNIT
