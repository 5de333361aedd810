"""Opens a path as a container of ours, a dataset of webKNOSSOS, a layer of one, or bare cubes; reads and checks it.

Our own containers come back as the array they were made from. Of other datasets, layers of one kind and extent become
one array with an axis `channel`; where they differ one of them has to be chosen. Positions are voxel positions of WKW:
an array begins at (0, 0, 0), wherever the bounding box does. Source: datasets of webKNOSSOS.

The check is stricter than reading: lengths of files, ends of jump tables and the place of the first block are to be
exact, which the reference library tolerates and webKNOSSOS does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat, UnsupportedFeature
from acqstream.formats.array_members import stacked
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import ChunkReader, Damage, StoredLevel, open_readers
from acqstream.formats.container_check import check_chunk, open_checked
from acqstream.formats.wkw.axis_roles import CHANNEL, COMPONENT, Place, axis_roles
from acqstream.formats.wkw.cube_folder import CubeFolder, CubeFolders, cube_problems, find_cubes, piece_shape_of
from acqstream.formats.wkw.header import HEADER_NAME, BlockType, Header
from acqstream.formats.wkw.layout import ARRAY_NAME, Cube, WkwLayout, cube_path, parse_note
from acqstream.formats.wkw.metadata import (
    FULL,
    PROPERTIES_NAME,
    DatasourceProperties,
    LayerMagnification,
    LayerProperties,
    Magnification,
    folder_names,
    parse_magnification,
    parse_properties,
    unit_symbol,
)
from acqstream.storage.stores.data_path import DataPath

_MARKS = (ARRAY_NAME, PROPERTIES_NAME, HEADER_NAME)
_MOST_MARK_BYTES = 2**20


def open_array(path: DataPath, layer: str | None = None) -> list[ChunkReader]:
    """Readers of all levels at `path`, the finest first; layer chooses one of a dataset. Raises as `find_levels`."""
    return open_readers(path, partial(_find, CubeFolders(), layer), container_of(path).boundary())


def _find(folders: CubeFolders, layer: str | None, path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    return [partial(WkwLevel, folders, found) for found in find_levels(path, layer)]


def check(container: DataPath, report: CheckReport) -> ChunkCounts:
    """Check all arrays at `container`; what is wrong goes to `report`. Raises StorageError."""
    readers = open_checked(_open_layers, container, report, (CorruptDataset, UnsupportedFeature))
    counts = [0, 0]  # chunks that exist, bytes that they hold
    for reader in readers:
        level = reader.level
        assert isinstance(level, WkwLevel)  # as `open_array` makes them
        try:
            for place in level.places():
                with reader.inside():
                    folder = level.folder(place)
                if folder is not None:
                    _check_header(folder, report)
                    _check_cubes(reader, place, folder, report, counts)
        except (CorruptDataset, UnsupportedFeature) as error:
            report.add_error(error, container)
    expected = sum(math.prod(reader.spec.grid_shape) for reader in readers)
    return ChunkCounts(len(readers), counts[0], expected - counts[0], counts[1])


def _open_layers(container: DataPath) -> list[ChunkReader]:
    with container_of(container).boundary().inside():
        layers: Sequence[str | None] = find_layers(container) or [None]
    return [reader for layer in layers for reader in open_array(container, layer)]


def _check_header(folder: CubeFolder, report: CheckReport) -> None:
    path = folder.path / HEADER_NAME
    if folder.header.data_offset:
        text = f"{HEADER_NAME} says that blocks begin at byte {folder.header.data_offset}, expected 0"
        if folder.header.block_type is BlockType.RAW:
            report.add_note(f"{path}: {text}")
        else:
            report.add_problem(path, text, offset=8)


def _check_cubes(reader: ChunkReader, place: Place, folder: CubeFolder, report: CheckReport, counts: list[int]) -> None:
    """One layer at one magnification; adds to counts."""
    level = reader.level
    assert isinstance(level, WkwLevel)  # as `open_array` makes them
    for cube in folder.cubes():
        positions = list(level.positions_in(place, folder, cube))
        counts[0] += len(positions)
        report.own_files.add((folder.path / cube_path(cube)).path)
        if not positions:
            report.add_note(f"{folder.path / cube_path(cube)}: lies beyond the array")
        with reader.inside():
            is_sound = _cube_is_sound(folder, cube, report)
        for position in positions if is_sound else ():
            counts[1] += check_chunk(reader, position, report)
            report.on_progress("reading", counts[1], 0)


def _cube_is_sound(folder: CubeFolder, cube: Cube, report: CheckReport) -> bool:
    """Return True if reading blocks of a cube file can tell more than its header, length and jump table do."""
    path = folder.path / cube_path(cube)
    try:
        file = path.open()
        problems = list(cube_problems(file, folder.read_header(cube)))
    except (CorruptDataset, UnsupportedFeature) as error:
        report.add_error(error, path)
        return False
    for text, offset in problems:
        report.add_problem(file.path, text, offset=offset)
    return not problems


class WkwLevel:
    """A StoredLevel, read in pieces of its cubes.

    A chunk is missing where there is no cube file.
    """

    def __init__(self, folders: CubeFolders, found: FoundLevel) -> None:
        self.complete = found.complete
        self._folders = folders
        self._found = found
        self._roles = roles = axis_roles(found.spec.axes)
        components = (found.header.channels,) if roles.has_components else ()
        self.spec = replace(found.spec, chunk_shape=(1,) * roles.depth + piece_shape_of(found.header) + components)

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        place = self._roles.place(position)
        folder = self.folder(place)
        voxels = None if folder is None else folder.read_piece(place.voxel)
        return None if voxels is None else self._roles.as_chunk(voxels)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel: all chunks of cube files that exist."""
        del on_damage
        for place in self.places():
            folder = self.folder(place)
            if folder is None:
                continue
            for cube in folder.cubes():
                yield from self.positions_in(place, folder, cube)

    def place(self, position: Position) -> str:
        """See StoredLevel: the folder of cubes."""
        place = self._roles.place(position)
        return str(self._found.folder(place.dataset, place.layer))

    def places(self) -> Iterator[Place]:
        """The first voxels of all folders of cubes of the array."""
        for dataset in self._roles.datasets(self.spec.shape):
            for layer in range(self._roles.layers(self.spec.shape)):
                yield Place(dataset, layer, (0, 0, 0))

    def positions_in(self, place: Place, folder: CubeFolder, cube: Cube) -> Iterator[Position]:
        """Positions of the chunks of a cube file that lie in the array."""
        for piece in folder.pieces_of(cube):
            position = self._roles.position(replace(place, voxel=piece))
            if all(at < count for at, count in zip(position, self.spec.grid_shape, strict=True)):
                yield position

    def folder(self, place: Place) -> CubeFolder | None:
        """The folder of cubes with a voxel; None where nothing exists yet."""
        path = self._found.folder(place.dataset, place.layer)
        if not self.complete and self._folders.kept(path) is None and not (path / HEADER_NAME).is_object():
            return None
        return self._folders.get(path, self._found.header)


def read_properties(path: DataPath) -> DatasourceProperties:
    """The WKW layers of a dataset. Raises as `parse_properties`, and StorageError."""
    return parse_properties(path.content(), str(path))


@dataclass(frozen=True, slots=True)
class FoundLevel:
    """One level as the metadata tell: spec without chunk_shape, header of the cubes, whether nothing more will come.

    folder gives the folder of the cubes of a dataset and layer.
    """

    spec: ArraySpec
    header: Header
    folder: Callable[[tuple[int, ...], int], DataPath]
    complete: bool = True


def is_wkw(path: DataPath) -> bool:
    """True for a container, dataset, layer or folder of cubes, or one of the files that tell of them."""
    if path.name not in _MARKS and path.suffix != ".wkw" and not path.is_folder():
        return False
    folder = _meant(path)
    return (
        (folder / ARRAY_NAME).is_object()
        or (folder / HEADER_NAME).is_object()
        or _has_wkw_layers(folder)
        or bool(_layer_folders(folder))
    )


def container_of(path: DataPath) -> DataPath:
    """The folder of the whole dataset that `path` is in: as far up as a file tells of what is below."""
    folder = path.folder().absolute()
    near = list(folder.upwards(7))
    for name in (ARRAY_NAME, PROPERTIES_NAME, HEADER_NAME):
        for candidate in near:
            if (candidate / name).is_object():
                return candidate
    return folder


def find_layers(path: DataPath) -> list[str] | None:
    """Names of the layers of a dataset where they differ too much to be one array; None where there is one array."""
    folder = _meant(path)
    if (folder / ARRAY_NAME).is_object() or not (folder / PROPERTIES_NAME).is_object():
        return None
    layers = read_properties(folder / PROPERTIES_NAME).layers
    return None if len(layers) < 2 or _alike(folder, layers) else [layer.name for layer in layers]


def find_levels(path: DataPath, layer: str | None = None) -> list[FoundLevel]:
    """The levels of the array at `path`, the finest first; a file means the folder that it tells of.

    layer chooses one of a dataset. Raises DatasetError that names the layers where one has to be chosen,
    CorruptDataset, UnsupportedFeature, UnknownFormat, StorageError.
    """
    folder = _meant(path)
    if (folder / ARRAY_NAME).is_object():
        file = folder / ARRAY_NAME
        layout, complete = parse_note(file.content(), str(file))
        return [_noted_level(folder, layout, level, complete=complete) for level in range(len(layout.plan.levels))]
    if (folder / PROPERTIES_NAME).is_object():
        return _dataset_levels(folder, layer)
    if (folder / HEADER_NAME).is_object():
        return [_bare_level(folder)]
    if folders := _layer_folders(folder):
        return _layer_levels(folder, folders)
    raise UnknownFormat(f"{folder}: neither {PROPERTIES_NAME} nor {HEADER_NAME} is here")


def _meant(path: DataPath) -> DataPath:
    if path.is_folder():
        return path
    above = _cubes_above(path.parent) if path.suffix == ".wkw" else None
    return path.parent if above is None else above


def _noted_level(container: DataPath, layout: WkwLayout, level: int, *, complete: bool) -> FoundLevel:
    """A level of an array that was written here."""
    return FoundLevel(
        layout.plan.levels[level],
        layout.header,
        lambda dataset, layer: container / "/".join(layout.cube_folder(level, dataset, layer)),
        complete,
    )


def _dataset_levels(folder: DataPath, layer: str | None) -> list[FoundLevel]:
    properties = read_properties(folder / PROPERTIES_NAME)
    layers = [found for found in properties.layers if layer is None or found.name == layer]
    if not layers:
        text = f"{PROPERTIES_NAME} names no layer {'' if layer is None else repr(layer) + ' '}in WKW"
        raise CorruptDataset(text, path=str(folder))
    if len(layers) > 1 and not _alike(folder, layers):
        names = ", ".join(str(folder / found.name) for found in layers)
        raise DatasetError(f"{folder}: holds layers that differ in kind or extent; open one of them: {names}")
    return [_stacked_level(folder, properties, layers, entry) for entry in layers[0].magnifications]


def _alike(folder: DataPath, layers: Sequence[LayerProperties]) -> bool:
    kinds = {
        (layer.end, *((entry.magnification, _header(folder, layer, entry)) for entry in layer.magnifications))
        for layer in layers
    }
    return len(kinds) == 1


def _stacked_level(
    folder: DataPath, properties: DatasourceProperties, layers: Sequence[LayerProperties], entry: LayerMagnification
) -> FoundLevel:
    """One magnification of layers of one kind; more than one become an axis `channel`."""
    mag = entry.magnification
    header = _header(folder, layers[0], entry)
    paths = [
        _folder_of(folder, layer, found)
        for layer in layers
        for found in layer.magnifications
        if found.magnification == mag
    ]
    spec = _spec(layers[0].end, mag, header, properties)
    if len(layers) > 1:
        names = tuple(layer.name for layer in layers)
        spec = replace(stacked(spec, (CHANNEL,), (len(names),)), labels={CHANNEL: names})
    else:
        spec = replace(spec, attributes={"layer": layers[0].name})
    return FoundLevel(spec, header, lambda _dataset, layer: paths[layer])


def _header(folder: DataPath, layer: LayerProperties, entry: LayerMagnification) -> Header:
    return _header_in(_folder_of(folder, layer, entry))


def _header_in(folder: DataPath) -> Header:
    return replace(CubeFolder(folder).header, data_offset=0)


def _folder_of(folder: DataPath, layer: LayerProperties, entry: LayerMagnification) -> DataPath:
    """Magnification of the cubes, as stated or by the usual names."""
    if entry.path:
        return folder / entry.path
    candidates = [folder / layer.name / name for name in folder_names(entry.magnification)]
    return next((found for found in candidates if (found / HEADER_NAME).is_object()), candidates[0])


def _spec(
    end: tuple[int, int, int], mag: Magnification, header: Header, properties: DatasourceProperties | None
) -> ArraySpec:
    """(z, y, x[, c]) of one magnification; end is (z, y, x) after the last voxel of the full resolution."""
    factors = (mag[2], mag[1], mag[0])
    sizes = properties.voxel_size[::-1] if properties else (1.0, 1.0, 1.0)
    unit = unit_symbol(properties.unit) if properties else ""
    components = (header.channels,) if header.channels > 1 else ()
    per_axis = list(zip(sizes, factors, strict=True))
    if math.prod((*end, header.channels)) >= 2**63:
        raise CorruptDataset(f"the bounding box ends at {end} (z, y, x), which is more than 2^63 voxels")
    return ArraySpec(
        axes=("z", "y", "x", COMPONENT)[: 3 + len(components)],
        shape=(*(-(-size // factor) for size, factor in zip(end, factors, strict=True)), *components),
        dtype=header.dtype,
        factors=(*factors, *(1 for _ in components)),
        scale=(*(size * factor for size, factor in per_axis), *(1.0 for _ in components)),
        units=(*(unit for _ in factors), *("" for _ in components)),
        translation=(*((factor - 1) / 2 * size for size, factor in per_axis), *(0.0 for _ in components)),
    )


def _bare_level(folder: DataPath) -> FoundLevel:
    """One folder of cubes, its extent out of the dataset it belongs to, else as far as there are cubes."""
    told = _told_of(folder.absolute())
    if told is None:
        return _untold_level(folder, parse_magnification(folder.absolute().name) or FULL)
    properties, layer, entry = told
    header = _header_in(folder)
    spec = _spec(layer.end, entry.magnification, header, properties)
    return FoundLevel(replace(spec, attributes={"layer": layer.name}), header, lambda _dataset, _layer: folder)


def _untold_level(folder: DataPath, mag: Magnification) -> FoundLevel:
    header = _header_in(folder)
    far = [max(items) for items in zip((-1, -1, -1), *find_cubes(folder), strict=True)]
    z, y, x = ((at + 1) * header.cube_side * factor for at, factor in zip(far, reversed(mag), strict=True))
    return FoundLevel(_spec((z, y, x), mag, header, None), header, lambda _dataset, _layer: folder)


def _told_of(folder: DataPath) -> tuple[DatasourceProperties, LayerProperties, LayerMagnification] | None:
    """Description of a folder of cubes by the dataset that it lies in."""
    dataset = folder.parent.parent
    if not (dataset / PROPERTIES_NAME).is_object():
        return None
    properties = read_properties(dataset / PROPERTIES_NAME)
    for layer in properties.layers:
        for entry in layer.magnifications:
            if _folder_of(dataset, layer, entry).absolute() == folder:
                return properties, layer, entry
    return None


def _layer_folders(folder: DataPath) -> dict[Magnification, DataPath]:
    """The folders of cubes of a layer by magnification, the finest first."""
    if not folder.is_folder():
        return {}
    named = ((parse_magnification(path.name), path) for path in folder.children())
    found = {mag: path for mag, path in named if mag is not None and (path / HEADER_NAME).is_object()}
    return dict(sorted(found.items(), key=lambda item: (max(item[0]), item[0])))


def _layer_levels(folder: DataPath, folders: dict[Magnification, DataPath]) -> list[FoundLevel]:
    """The levels of a layer's folder, its extent out of the dataset it belongs to, if one tells."""
    dataset, name = folder.absolute().parent, folder.absolute().name
    if (dataset / PROPERTIES_NAME).is_object():
        properties = read_properties(dataset / PROPERTIES_NAME)
        if name in {layer.name for layer in properties.layers}:
            return _dataset_levels(dataset, name)
    return [_untold_level(path, mag) for mag, path in folders.items()]


def _cubes_above(folder: DataPath) -> DataPath | None:
    """The folder of cubes that this folder is, or is in: z and y folders lie below it."""
    above = itertools.islice(folder.upwards(3), 1, None)
    return next((candidate for candidate in (folder, *above) if (candidate / HEADER_NAME).is_object()), None)


def _has_wkw_layers(folder: DataPath) -> bool:
    """Return True if the dataset's properties speak of WKW: webKNOSSOS describes other formats in the same file."""
    if not (folder / PROPERTIES_NAME).is_object():
        return False
    file = (folder / PROPERTIES_NAME).open()
    try:
        return b'"wkw' in file.read(0, _MOST_MARK_BYTES)
    finally:
        file.close()
