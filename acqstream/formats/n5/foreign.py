"""Finds the arrays in N5 containers of any writer, reads and checks them.

Arrays of a container make up one by what our writer has noted, else by the names of their folders: s0, s1, ... are the
levels of a group; setup<i>/timepoint<t> are the groups of BigDataViewer; folders with one name and a number (c0, c1,
...) are positions along an axis. A path may lie anywhere in a container, or be an XML file of BigDataViewer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, FileMissing, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats.array_members import is_plain_number, stacked
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import ChunkReader, Damage, open_readers
from acqstream.formats.container_check import check_chunk, check_levels, open_checked
from acqstream.formats.n5.bdv_xml import SUFFIX as XML_SUFFIX
from acqstream.formats.n5.bdv_xml import contains_bdv, parse_xml
from acqstream.formats.n5.codec import decode_block, max_file_bytes, parse_header
from acqstream.formats.n5.member_folders import AXES_BY_PREFIX, folder_axes, level_folder
from acqstream.formats.n5.metadata import (
    ATTRIBUTES_NAME,
    MAX_ATTRIBUTES_BYTES,
    VERSION_KEY,
    Attributes,
    DatasetAttributes,
    Notes,
    is_dataset,
    parse_attributes,
    parse_dataset,
    parse_notes,
    read_space,
)
from acqstream.storage.files.boundary import leads_out, requested_links
from acqstream.storage.stores.data_path import DataPath

SUFFIX = ".n5"
_MAX_DEPTH = 32
_MAX_CHILDREN = 1000  # looked at to tell a container that does not say so
_MAX_LISTED = 20
_MAX_DATASETS = 1_000_000  # of a check
_MAX_XML_BYTES = 512 * 1024 * 1024
_HEADER_BYTES = 512  # more than any header has
_NUMBERED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*?)_?(0|[1-9][0-9]{0,8})")
_LEVEL = re.compile(r"s(0|[1-9][0-9]?)")
_SETUP, _TIMEPOINT = "setup", "timepoint"
_SLOWEST = ("time", "position")  # of the axes that are folders, in this order


def detect(path: DataPath) -> bool:
    """Return True if `path` is an N5 container, lies in one, or is an XML file of BigDataViewer that names one."""
    return _bdv_content(path) is not None or array_folder(path) is not None


def open_array(path: DataPath) -> list[ChunkReader]:
    """Readers of all levels, the full resolution first. Raises UnknownFormat, DatasetError."""
    return open_folder(*_meant(path))


def folder_of(path: DataPath) -> DataPath:
    """The container that `path` means. Raises UnknownFormat."""
    return container_of(_meant(path)[0])


def open_folder(folder: DataPath, fallback: Attributes) -> list[ChunkReader]:
    """The levels of the array that a folder of a container means.

    fallback: what is known of it besides, as attributes of a group. Raises DatasetError and what belongs to it.
    """
    return open_readers(folder, partial(_find_levels, fallback=fallback), container_of(folder).boundary())


def _find_levels(folder: DataPath, fallback: Attributes) -> Sequence[Callable[[], N5Level]]:
    found = find_array(folder)
    if found.notes is None and found.complete and parse_notes(readable_attributes(container_of(folder))) is not None:
        found = find_array(folder)  # our note came after the look for it, and before the array
    return [partial(N5Level, folder, found, number, fallback) for number in found.levels]


def check(container: DataPath, report: CheckReport) -> ChunkCounts:
    """Check attributes, headers and payloads of all datasets of a container.

    An inner block that is smaller than the others is a problem, although it is read. Blocks outside the grid are noted.
    """
    folders = find_datasets(container, _MAX_DATASETS)
    if not folders:
        report.add_problem(container, "holds no array")
    open_one = partial(open_folder, fallback={})
    readers = (reader for folder in folders for reader in open_checked(open_one, folder, report, DatasetError))
    return check_levels(readers, report, _outside_text, _check_block, "blocks")


def _outside_text(reader: ChunkReader, position: Position) -> str:
    return f"{reader.path}: block {'/'.join(map(str, reversed(position)))} lies outside the array"


def _check_block(reader: ChunkReader, position: Position, report: CheckReport) -> int:
    """Bytes of elements that were read."""
    level, count = reader.level, check_chunk(reader, position, report)
    assert isinstance(level, N5Level)  # as `open_folder` makes them
    if count:
        with reader.inside():
            found = level.block_shape(position)
        needed = tuple(part.stop - part.start for part in reader.spec.region(position))
        if any(size < least for size, least in zip(found, needed, strict=True)):
            text = f"a block of {found[::-1]} (x first), expected at least {needed[::-1]}"
            report.add_problem(reader.place(position), text, offset=4)
    return count


@dataclass(frozen=True, slots=True)
class FoundArray:
    """An array: groups of levels by their position along `axes`, slowest first, and the folders of the levels in each.

    shape has an item for each axis. A dataset that was asked for by itself is the one level of its group, "" in it.
    first is a group that exists. Groups that our writer has noted, as `notes` says, may be missing; folders has others.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    folders: Mapping[Position, DataPath]
    first: DataPath
    levels: Mapping[int, str]
    notes: Notes | None
    complete: bool
    container: DataPath

    def groups(self) -> Iterator[Position]:
        """The positions of all groups."""
        return iter(self.folders) if self.notes is None else itertools.product(*map(range, self.shape))

    def dataset(self, group: Position, level: int) -> DataPath | None:
        """The folder of a level in the group at a position; None where nothing is known of one."""
        if self.notes is None:
            folder = self.folders.get(group)
        else:
            folder = _below(self.container, self.notes.group(group))
        return None if folder is None else _level_folder(folder, self.levels[level])


class N5Level:
    """A StoredLevel: one dataset, or several of the same kind, by their position along the first axes.

    Raises DatasetError if the array is no longer a single one.
    """

    def __init__(self, path: DataPath, found: FoundArray, number: int, fallback: Attributes) -> None:
        self.complete = found.complete
        self._found = found
        self._number = number
        folder = _level_folder(found.first, found.levels[number])
        attributes, self._attributes = _read_dataset(folder)
        for group in found.groups() if found.notes is None else ():
            other = found.dataset(group, number)
            if other is not None and _read_dataset(other)[1] != self._attributes:
                raise several_arrays(path)
        self.spec = self._make_spec(attributes, (*_attributes_above(folder), fallback))

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        path = self._block(position)
        if path is None:
            return None
        try:
            file = path.open()
        except FileMissing:
            return None
        try:
            size, most = file.size(), max_file_bytes(self._attributes)
            if size > most:
                raise CorruptDataset(f"has {size} bytes, a block at most {most}", path=str(path), offset=most)
            data = file.read(0, size)
        finally:
            file.close()
        crop = tuple(part.stop - part.start for part in self.spec.region(position))
        return decode_block(data, self._attributes, crop[len(self._found.axes) :], str(path)).reshape(crop)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel: all files that have the name of a block."""
        del on_damage
        ndim = len(self._attributes.dimensions)
        for group in self._found.groups():
            folder = self._found.dataset(group, self._number)
            stack: list[tuple[DataPath, tuple[int, ...]]] = [] if folder is None else [(folder, ())]
            while stack:
                place, above = stack.pop()
                for number in _numbers_in(place):
                    if len(above) + 1 < ndim:
                        stack.append((place / str(number), (number, *above)))
                    else:
                        yield (*group, number, *above)

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        return str(self._block(position))

    def block_shape(self, position: Position) -> tuple[int, ...]:
        """The shape in the header of a stored block, with 1 along the axes that are folders. Raises as `read`."""
        path = self._block(position)
        assert path is not None  # it was read
        header = parse_header(_start_of(path, _HEADER_BYTES), self._attributes, str(path))
        return (*(1 for _ in self._found.axes), *header.shape)

    def _block(self, position: Position) -> DataPath | None:
        """A block file: the folder of its dataset, and its position there, x first; None without such a dataset."""
        leading = len(self._found.axes)
        folder = self._found.dataset(position[:leading], self._number)
        return None if folder is None else _below(folder, map(str, reversed(position[leading:])))

    def _make_spec(self, attributes: dict[str, Any], above: Sequence[Attributes]) -> ArraySpec:
        """Spec of the array, from the attributes of its first dataset and what our writer has noted."""
        own, found = self._attributes, self._found
        space = read_space(attributes, above, len(own.dimensions), self._number)
        part = ArraySpec(
            axes=space.axes,
            shape=own.shape,
            dtype=own.dtype,
            chunk_shape=own.chunk_shape,
            factors=space.factors,
            scale=space.scale,
            units=space.units,
            translation=space.translation,
            attributes=attributes,
        )
        spec = stacked(part, found.axes, found.shape)
        notes = found.notes
        if notes is None or len(notes.axes) != len(spec.axes):
            return spec
        noted = notes.full.reduced(spec.factors)
        return replace(noted, shape=spec.shape, dtype=spec.dtype, chunk_shape=spec.chunk_shape)


def find_array(folder: DataPath) -> FoundArray:
    """The array that is meant by a folder of a container.

    Raises DatasetError that lists what there is if that is several arrays, or none, CorruptDataset.
    """
    attributes = read_attributes(folder)
    noted = parse_notes(readable_attributes(container_of(folder)))
    complete = noted is None or noted.complete
    if is_dataset(attributes):
        match = _LEVEL.fullmatch(folder.name)
        levels = {int(match[1]) if match else 0: ""}
        return FoundArray((), (), {(): folder}, folder, levels, None, complete, folder)
    notes = parse_notes(attributes)
    axes: tuple[str, ...]
    folders: Mapping[Position, DataPath] = {}
    if notes is not None:
        axes = notes.axes[: folder_axes(notes.layout, notes.axes)]
        shape = notes.shape[: len(axes)]
        first = _below(folder, notes.group((0,) * len(axes)))
    else:
        groups = _find_groups(folder)
        if groups is None:
            children = list_folders(folder)
            if len(children) != 1:
                raise several_arrays(folder)
            return find_array(children[0])
        axes, folders = groups
        shape = tuple(max(position[axis] for position in folders) + 1 for axis in range(len(axes)))
        first = next(iter(folders.values()))
    count = level_count(first)
    if not count:
        raise DatasetError(f"{folder}: holds no array yet")
    levels = {number: level_folder(number) for number in range(count)}
    return FoundArray(axes, shape, folders, first, levels, notes, complete, folder)


def level_count(group: DataPath) -> int:
    """Number of levels s0, s1, ... of a group; 0 if it is not a group of levels."""
    return next(at for at in itertools.count() if not is_dataset(read_attributes(group / level_folder(at))))


def several_arrays(folder: DataPath) -> DatasetError:
    """The error for a folder whose arrays do not make up one."""
    found = find_datasets(folder, _MAX_LISTED + 1)
    if not found:
        return DatasetError(f"{folder}: an N5 group without any array")
    names = [str(path).removeprefix(str(folder))[1:] for path in found[:_MAX_LISTED]]
    more = ", ..." if len(found) > _MAX_LISTED else ""
    return DatasetError(f"{folder}: holds arrays that do not make up one; open one of them: {', '.join(names)}{more}")


_Groups = tuple[tuple[str, ...], Mapping[Position, DataPath]]  # axes, and folders by their position along them


def _find_groups(folder: DataPath) -> _Groups | None:
    found = _groups_below(folder, 0)
    if found is None or len(set(found[0])) < len(found[0]):
        return None
    axes, folders = found
    ranks = [_SLOWEST.index(axis) if axis in _SLOWEST else len(_SLOWEST) for axis in axes]
    order = sorted(range(len(axes)), key=ranks.__getitem__)
    moved = {tuple(position[axis] for axis in order): group for position, group in folders.items()}
    return tuple(axes[axis] for axis in order), dict(sorted(moved.items()))


def _groups_below(folder: DataPath, depth: int) -> _Groups | None:
    if level_count(folder):
        return (), {(): folder}
    numbered = _numbered_folders(folder)
    prefix = _SETUP if _SETUP in numbered else next(iter(numbered), "")
    is_bdv = prefix in (_SETUP, _TIMEPOINT)
    if not prefix or depth == _MAX_DEPTH or (len(numbered) > 1 and not is_bdv):
        return None
    inside = {number: _groups_below(child, depth + 1) for number, child in numbered[prefix].items()}
    some = {number: found for number, found in inside.items() if found is not None}
    kinds = {axes for axes, _ in some.values()}
    if len(kinds) != 1 or (len(some) < len(inside) and not is_bdv):  # of BigDataViewer's, some may be missing
        return None
    axes = (AXES_BY_PREFIX.get(prefix, prefix), *kinds.pop())
    return axes, {
        (number, *position): group for number, (_, groups) in some.items() for position, group in groups.items()
    }


def _numbered_folders(folder: DataPath) -> dict[str, dict[int, DataPath]]:
    """Child folders by the word and the number in their names; those without are under the word "", in any order."""
    found: dict[str, dict[int, DataPath]] = {}
    for child in list_folders(folder):
        match = _NUMBERED.fullmatch(child.name)
        siblings = found.setdefault(match[1] if match else "", {})
        siblings[int(match[2]) if match else len(siblings)] = child
    return found


def _meant(path: DataPath) -> tuple[DataPath, Attributes]:
    """The folder that is meant, and attributes that an XML file adds to it."""
    fallback: Attributes = {}
    content = _bdv_content(path)
    if content is not None:
        base, name, fallback = parse_xml(content, str(path))
        if requested_links() is not True and leads_out(base, name):
            claim = f"names the container {base}/{name}, outside of this folder"
            raise UnsupportedFeature(f"{path}: {claim}; that is followed with follow_links=True only")
        path = path.parent / base / name
    folder = array_folder(path)
    if folder is None:
        raise UnknownFormat(f"{path}: no N5 container here")
    return folder, fallback


def _bdv_content(path: DataPath) -> bytes | None:
    """The content of an XML file of BigDataViewer; None for any other file or folder."""
    if path.suffix != XML_SUFFIX or not path.is_object():
        return None
    content = _start_of(path, _MAX_XML_BYTES)
    return content if contains_bdv(content) else None


def _start_of(file: DataPath, length: int) -> bytes:
    opened = file.open()
    try:
        return opened.read(0, length)
    finally:
        opened.close()


def read_attributes(folder: DataPath) -> dict[str, Any] | None:
    """The attributes of a group; None if it has no file of them. Raises CorruptDataset if that is not a JSON object."""
    file = folder / ATTRIBUTES_NAME
    try:
        content = file.content(MAX_ATTRIBUTES_BYTES)
    except FileMissing:
        return None
    return parse_attributes(content, str(file))


def container_of(folder: DataPath) -> DataPath:
    """The container that a folder lies in: the nearest that says so, else the outermost one with attributes."""
    outermost = folder
    for place in folder.upwards(_MAX_DEPTH):
        if _is_container(place):
            return place
        if (place / ATTRIBUTES_NAME).is_object():
            outermost = place
    return outermost


def array_folder(path: DataPath) -> DataPath | None:
    """The array or group that `path` means: itself, or what an attributes.json or a block file in it belongs to.

    None if there is nothing of N5 there.
    """
    is_folder = path.is_folder()
    start = path if is_folder else path.parent
    for place in start.upwards(_MAX_DEPTH):
        if is_dataset(readable_attributes(place)):
            return place
        if not place.name.isdecimal():
            break
    return start if (is_folder or path.name == ATTRIBUTES_NAME) and _is_group(start) else None


def _below(folder: DataPath, names: Iterable[str]) -> DataPath:
    """The place at the end of these names."""
    for name in names:
        folder /= name
    return folder


def find_datasets(folder: DataPath, limit: int) -> list[DataPath]:
    """Datasets at or below `folder`, at most `limit` of them, in the order of their names."""
    return list(itertools.islice(_datasets(folder, ()), limit))


def _datasets(folder: DataPath, above: tuple[str, ...]) -> Iterator[DataPath]:
    if is_dataset(read_attributes(folder)):
        yield folder
    elif len(above) < _MAX_DEPTH:
        inside = (*above, folder.real())
        for child in list_folders(folder):
            if not child.is_link() or child.real() not in inside:  # else it leads round in a ring
                yield from _datasets(child, inside)


def list_folders(folder: DataPath) -> list[DataPath]:
    """Child folders in the order of their names. Raises StorageError, DatasetError if there is no such folder."""
    try:
        return sorted(child for child in folder.children() if child.is_folder())
    except FileMissing as error:
        raise DatasetError(f"{folder}: no such folder") from error


def readable_attributes(folder: DataPath) -> Mapping[str, Any] | None:
    """Of a folder above or beside the one asked for, where damaged and forbidden ones do not matter."""
    try:
        return read_attributes(folder)
    except (DatasetError, StorageError):
        return None


def _is_container(folder: DataPath) -> bool:
    return folder.suffix == SUFFIX or VERSION_KEY in (readable_attributes(folder) or {})


def _is_group(folder: DataPath) -> bool:
    """Return True if a folder is a dataset, or a group of one of the kinds that can be told from any other folder."""
    try:
        attributes = read_attributes(folder)
    except DatasetError:
        return not (folder / ATTRIBUTES_NAME).is_folder()  # damaged: opening it will say so
    if is_dataset(attributes) or _is_container(container_of(folder)):
        return True
    children = itertools.islice(folder.children(), _MAX_CHILDREN)
    return any(is_dataset(readable_attributes(child)) for child in children)


def _level_folder(group: DataPath, name: str) -> DataPath:
    return group / name if name else group


def _read_dataset(folder: DataPath) -> tuple[dict[str, Any], DatasetAttributes]:
    """The attributes of a dataset, as they stand and parsed."""
    attributes = read_attributes(folder)
    if attributes is None or not is_dataset(attributes):
        raise DatasetError(f"{folder}: no N5 dataset here")
    return attributes, parse_dataset(attributes, str(folder / ATTRIBUTES_NAME))


def _attributes_above(folder: DataPath) -> list[Attributes]:
    """Those of the folders above a dataset, up to the container, nearest first."""
    container, places = container_of(folder).absolute(), list[DataPath]()
    for place in folder.upwards(_MAX_DEPTH):
        places.append(place)
        if place == container:
            break
    return [readable_attributes(place) or {} for place in places[1:]]


def _numbers_in(folder: DataPath) -> Iterator[int]:
    """Items with the name of a block, or of a folder of blocks, a plain decimal."""
    try:
        names = folder.names()
    except FileMissing:
        return  # not there, or a file where a folder would be: no block
    for name in names:
        if is_plain_number(name):
            yield int(name)
