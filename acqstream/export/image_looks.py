"""Names, colours, sizes and places of the images of an export, from a dataset."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import UTC, datetime

from acqstream.arrays.axis_order import POSITION, TILE_AXES
from acqstream.arrays.channel_looks import channel_looks
from acqstream.arrays.frame_space import UM, Place
from acqstream.arrays.image_places import IMAGE_AXES
from acqstream.arrays.position_names import position_names
from acqstream.arrays.stage_reading import StageReading, stage_reading
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.source import LevelAxis, Spacing, X, Y, Z
from acqstream.export.image_grid import ORDER, ImageGrid
from acqstream.export.ome_document import OmeChannel, OmeImage, OmePixels, OmePlane
from acqstream.formats.ome_zarr.metadata import find_wells
from acqstream.model.axes import AxisValue

_LAST_SECOND = 4e9  # of dates that are believed


def physical_steps(
    dataset: Dataset, grid: ImageGrid, position: AxisValue | None = None
) -> dict[str, tuple[float, str]]:
    """(distance, unit) along "X", "Y", "Z" and "T", of what is known and the same for all neighbours.

    Of a position "Z" and "T" alone, which may be its own.
    """
    source = dataset.levels[0].source
    steps: dict[str, tuple[float, str]] = {}
    for role, name in (("X", X), ("Y", Y)) if position is None else ():
        spacing = source.spacing(name)
        if spacing.unit:
            steps[role] = (spacing.step, spacing.unit)
    for role in "ZT":
        axis = grid.axis(role)
        spacing = Spacing() if axis is None else axis.spacing(source.spacing(axis.name, position))
        if spacing.unit and spacing.step > 0:
            steps[role] = (spacing.step, spacing.unit)
    return steps


def ome_pixels(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> OmePixels:
    """What all images share."""
    known, axis = dataset.channel_looks(), grid.axis("C")
    values = known if axis is None else axis.values
    looks = [known.get(value) or channel_looks([value], dataset.summary_metadata, {})[0] for value in values]
    return OmePixels(
        shape=array.shape[len(array.outer) :],
        dtype=array.dtype,
        size_t=grid.size("T"),
        size_z=grid.size("Z"),
        channels=[OmeChannel(look.name, look.color) for look in looks],
        steps=physical_steps(dataset, grid),
        bits=dataset.levels[0].source.bits,
    )


def ome_images(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> list[OmeImage]:
    """An image for each place on the axes that count images, named after it. Names of wells make a plate.

    Frames say themselves when they were taken and where; of other arrays the place of the image is known.
    """
    readings = [(at, stage_reading(meta)) for at, meta in dataset.levels[0].source.metadata(array.layout)]
    planes, begin_s = _planes(readings, array, grid)
    pages = _pages(grid, {at for at, _ in readings})
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
        well = "" if position is None else wells.get(position, "")
        steps = {} if position is None else physical_steps(dataset, grid, position)
        own_planes = planes.get(at, [])
        if own_planes:
            images.append(OmeImage(name, pages[at], own_planes[0].stage, well, own_planes, _date(begin_s), steps))
            continue
        place = places.get(position) if TILE_AXES.isdisjoint(tile) else dataset.levels[0].place_of(**tile)
        images.append(OmeImage(name, pages[at], _middle(place, dataset, array), well, steps=steps))
    return images


def _pages(grid: ImageGrid, stored: Set[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """Number of the page of each plane, by position of its image. Missing frames of an image share a blank page.

    stored: positions of frames; of arrays, which have none, each plane is stored. Bio-Formats refuses or scrambles
    files where a plane has no page; tifffile refuses pages that images share.
    """
    pages: dict[tuple[int, ...], list[int]] = {}
    count = 0
    for image in grid.images():
        frames = [at if not stored or at in stored else None for at in grid.planes(image)]
        numbers = {frame: number for number, frame in enumerate(dict.fromkeys(frames), count)}
        pages[image] = [numbers[frame] for frame in frames]
        count += len(numbers)
    return pages


def _planes(
    readings: Sequence[tuple[tuple[int, ...], StageReading]], array: LevelArray, grid: ImageGrid
) -> tuple[dict[tuple[int, ...], list[OmePlane]], float | None]:
    """Planes by position of their image, each image's in order, and when the first was captured, in s since 1970."""
    captures = [seen.capture_s for _, seen in readings if seen.capture_s is not None]
    begin_s = min(captures, default=None)
    names = [axis.name for axis in array.outer]
    roles = [names.index(axis.name) if (axis := grid.axis(role)) is not None else None for role in ORDER]
    image_axes = [names.index(axis.name) for axis in grid.image_axes]
    found: dict[tuple[int, ...], list[OmePlane]] = {}
    for at, seen in sorted(readings, key=lambda reading: reading[0]):
        delta_s = seen.time_s
        if delta_s is None and seen.capture_s is not None and begin_s is not None:
            delta_s = round(seen.capture_s - begin_s, 9)
        exposure_s = None if seen.exposure_ms is None else seen.exposure_ms / 1000
        t, c, z = (0 if place is None else at[place] for place in roles)
        plane = OmePlane((t, c, z), (seen.x_um, seen.y_um, seen.z_um), delta_s, exposure_s)
        if plane != OmePlane(plane.at):
            found.setdefault(tuple(at[place] for place in image_axes), []).append(plane)
    return found, begin_s


def _date(capture_s: float | None) -> str:
    if capture_s is None or not 0 <= capture_s < _LAST_SECOND:
        return ""
    return datetime.fromtimestamp(capture_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _middle(place: Place | None, dataset: Dataset, array: LevelArray) -> tuple[float | None, ...]:
    """(x, y, z) of the middle of an image whose first item lies at (z, y, x)."""
    if place is None:
        return (None, None, None)
    source, (height, width) = dataset.levels[0].source, array.shape[len(array.outer) :][:2]
    y, x = ((count - 1) / 2 * source.spacing(name).step for count, name in ((height, Y), (width, X)))
    return round(place[2] + x, 6), round(place[1] + y, 6), place[0]


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
