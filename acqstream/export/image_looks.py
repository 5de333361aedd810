"""Names, colours, sizes and places of the images of an export, from a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.arrays.axis_order import POSITION, TILE_AXES
from acqstream.arrays.frame_space import UM, Place
from acqstream.arrays.image_places import IMAGE_AXES
from acqstream.arrays.position_names import position_names
from acqstream.dataset.channel_looks import channel_looks
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.source import LevelAxis, Spacing, X, Y, Z
from acqstream.export.image_grid import ImageGrid, even_step
from acqstream.export.ome_document import OmeChannel, OmeImage, OmePixels
from acqstream.formats.ome_zarr.wells import find_wells
from acqstream.model.axes import AxisValue


def physical_steps(dataset: Dataset, grid: ImageGrid) -> dict[str, tuple[float, str]]:
    """(distance, unit) along "X", "Y", "Z" and "T", of what is known and the same for all neighbours."""
    source = dataset.levels[0].source
    steps: dict[str, tuple[float, str]] = {}
    for role, name in (("X", X), ("Y", Y)):
        spacing = source.spacing(name)
        if spacing.unit:
            steps[role] = (spacing.step, spacing.unit)
    for role in "ZT":
        axis = grid.axis(role)
        spacing = Spacing() if axis is None else source.spacing(axis.name)
        step = even_step(axis, spacing)
        if step is not None and step > 0:
            steps[role] = (step, spacing.unit)
    return steps


def ome_pixels(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> OmePixels:
    """What all images share."""
    axis = grid.axis("C")
    channels = [] if axis is None else _labelled(dataset, axis)
    looks = channel_looks(channels, dataset.summary_metadata, dataset.display_settings)
    return OmePixels(
        shape=array.shape[len(array.outer) :],
        dtype=array.dtype,
        size_t=grid.size("T"),
        size_z=grid.size("Z"),
        channels=[OmeChannel(look.name, look.color) for look in looks],
        steps=physical_steps(dataset, grid),
    )


def ome_images(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> list[OmeImage]:
    """An image for each place on the axes that count images, named after it. Names of wells make a plate."""
    axis = next((axis for axis in grid.image_axes if axis.name == POSITION), None)
    names = {} if axis is None else _position_names(dataset, axis)
    places = _places(dataset, array)
    wells = dict(zip(names, find_wells(list(names.values()), dataset.summary_metadata), strict=False))
    images = []
    for at in grid.images():
        values = grid.values(at)
        position = values.get(POSITION)
        tile = {name: value for name, value in values.items() if name in IMAGE_AXES}
        others = [f"{name} {value}" for name, value in values.items() if name != POSITION]
        own = [] if position is None else [names[position]]
        name = ", ".join([*own, *others]) or dataset.levels[0].source.title
        place = places.get(position) if TILE_AXES.isdisjoint(tile) else dataset.levels[0].place_of(**tile)
        images.append(OmeImage(name, place, "" if position is None else wells.get(position, "")))
    return images


def _places(dataset: Dataset, array: LevelArray) -> dict[AxisValue | None, Place]:
    """Places of the first pixels of `array` by value of `position`; of None for a dataset without positions."""
    level = dataset.levels[0]
    z, y, x = (level.source.spacing(name) for name in (Z, Y, X))
    if x.unit != UM or y.unit != UM:
        return {}
    planes = next((axis.numbers for axis in array.outer if axis.name == Z), None)
    first_z = planes[0] * z.step if planes and z.unit == UM else 0.0
    first_y, first_x = (first * step for first, step in zip(array.layout.origin, (y.step, x.step), strict=True))
    values = level.axis_values().get(POSITION)
    found: dict[AxisValue | None, Place | None] = dict(zip(values or (), level.places, strict=False))
    if values is None and any(spacing.start for spacing in (z, y, x)):  # 0 where the place on the stage is unknown
        found[None] = (z.start if z.unit == UM else 0.0, y.start, x.start)
    return {
        value: (place[0] + first_z, place[1] + first_y, place[2] + first_x)
        for value, place in found.items()
        if place is not None
    }


def _position_names(dataset: Dataset, axis: LevelAxis) -> dict[AxisValue, str]:
    """Names of positions by value: texts themselves, labels, names in the summary, or "position 3"."""
    listed = position_names(dataset.summary_metadata)
    labels = dict(zip(axis.values, _labelled(dataset, axis), strict=True))
    found: dict[AxisValue, str] = {}
    for value in axis.values:
        label = labels[value]
        if isinstance(label, int):
            label = listed[label] if 0 <= label < len(listed) else f"{POSITION} {label}"
        found[value] = str(label)
    return found


def _labelled(dataset: Dataset, axis: LevelAxis) -> Sequence[AxisValue]:
    """The values of a part of an axis, or their labels where the format has them."""
    level = dataset.levels[0]
    labels = level.labels.get(axis.name, ())
    values = level.axis_values().get(axis.name, ())
    if len(labels) != len(values):
        return list(axis.values)
    by_value = dict(zip(values, labels, strict=True))
    return [by_value.get(value, value) for value in axis.values]
