"""Which arrays of a container make up one: by what our writer has noted, else by the names of the folders.

s0, s1, ... are the levels of a group; setup<i>/timepoint<t> are the groups of BigDataViewer; folders with one name and
a number (c0, c1, ...) are positions along an axis.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from acqstream.arrays.array_spec import Position
from acqstream.errors import DatasetError
from acqstream.formats.n5.attributes import is_dataset
from acqstream.formats.n5.folders import (
    below,
    container_of,
    find_datasets,
    list_folders,
    read_attributes,
    readable_attributes,
)
from acqstream.formats.n5.member_folders import AXES_BY_PREFIX, folder_axes, group_folder, level_folder
from acqstream.formats.n5.notes import Notes, parse_notes
from acqstream.storage.read_place import ReadPlace

_MAX_DEPTH = 32
_MAX_LISTED = 20
_NUMBERED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*?)_?(0|[1-9][0-9]{0,8})")
_LEVEL = re.compile(r"s(0|[1-9][0-9]?)")
_SETUP, _TIMEPOINT = "setup", "timepoint"
_SLOWEST = ("time", "position")  # of the axes that are folders, in this order


class Groups(Protocol):
    """Folders, each with all levels, by their position along `axes`, slowest first; `shape` has an item for each."""

    @property
    def axes(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def get(self, position: Position) -> ReadPlace | None:
        """The folder at a position, where it is known to be or may be."""

    def positions(self) -> Iterator[Position]: ...


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """Groups by the names of their folders; ((), {(): folder}) is one group by itself."""

    axes: tuple[str, ...]
    folders: Mapping[Position, ReadPlace]

    @property
    def shape(self) -> tuple[int, ...]:
        """Up to the largest position along each axis."""
        return tuple(max(position[axis] for position in self.folders) + 1 for axis in range(len(self.axes)))

    def get(self, position: Position) -> ReadPlace | None:
        """None if the folder is missing."""
        return self.folders.get(position)

    def positions(self) -> Iterator[Position]:
        """Attributes of all folders."""
        return iter(self.folders)


@dataclass(frozen=True, slots=True)
class NotedGroups:
    """Groups as our writer has noted them; some may not be there."""

    container: ReadPlace
    notes: Notes

    @property
    def axes(self) -> tuple[str, ...]:
        """Those that are folders."""
        return self.notes.axes[: folder_axes(self.notes.layout, self.notes.axes)]

    @property
    def shape(self) -> tuple[int, ...]:
        """As noted."""
        return self.notes.shape[: len(self.axes)]

    def get(self, position: Position) -> ReadPlace:
        """Folder of the group if it exists."""
        notes = self.notes
        folders = group_folder(notes.layout, notes.axes, notes.shape, position, notes.numbering)
        return below(self.container, folders)

    def positions(self) -> Iterator[Position]:
        """All inside the shape."""
        return itertools.product(*map(range, self.shape))


@dataclass(frozen=True, slots=True)
class FoundArray:
    """An array: its groups, what is noted about it, and the folders of its levels in a group, by number of the level.

    A dataset that was asked for by itself is the one level of its group, "" in it. first is a group that is there.
    """

    groups: Groups
    first: ReadPlace
    levels: Mapping[int, str]
    notes: Notes | None
    complete: bool


def find_array(folder: ReadPlace) -> FoundArray:
    """The array that is meant by a folder of a container.

    Raises DatasetError that lists what there is if that is several arrays, or none, CorruptDataset.
    """
    attributes = read_attributes(folder)
    noted = parse_notes(readable_attributes(container_of(folder)))
    complete = noted is None or noted.complete
    if is_dataset(attributes):
        match = _LEVEL.fullmatch(folder.name)
        alone = FoundGroups((), {(): folder})
        return FoundArray(alone, folder, {int(match[1]) if match else 0: ""}, None, complete)
    notes = parse_notes(attributes)
    groups: Groups | None = NotedGroups(folder, notes) if notes is not None else _find_groups(folder)
    if groups is None:
        return _only_child(folder)
    if notes is not None:
        first = below(folder, group_folder(notes.layout, notes.axes, notes.shape, (0,) * len(groups.axes)))
    else:
        first = groups.get(next(groups.positions())) or folder
    count = level_count(first)
    if not count:
        raise DatasetError(f"{folder}: holds no array yet")
    return FoundArray(groups, first, {number: level_folder(number) for number in range(count)}, notes, complete)


def level_count(group: ReadPlace) -> int:
    """Number of levels s0, s1, ... of a group; 0 if it is not a group of levels."""
    count = 0
    while is_dataset(read_attributes(group / level_folder(count))):
        count += 1
    return count


def several_arrays(folder: ReadPlace) -> DatasetError:
    """The error for a folder whose arrays do not make up one."""
    found = find_datasets(folder, _MAX_LISTED + 1)
    if not found:
        return DatasetError(f"{folder}: an N5 group without any array")
    names = [str(path).removeprefix(str(folder))[1:] for path in found[:_MAX_LISTED]]
    more = ", ..." if len(found) > _MAX_LISTED else ""
    return DatasetError(f"{folder}: holds arrays that do not make up one; open one of them: {', '.join(names)}{more}")


def _only_child(folder: ReadPlace) -> FoundArray:
    """The array in the only folder there is. Raises DatasetError."""
    children = list_folders(folder)
    if len(children) != 1:
        raise several_arrays(folder)
    return find_array(children[0])


def _find_groups(folder: ReadPlace) -> FoundGroups | None:
    found = _groups_below(folder, 0)
    if found is None or len(set(found.axes)) < len(found.axes):
        return None
    order = sorted(range(len(found.axes)), key=lambda axis: _rank(found.axes[axis]))
    folders = {tuple(position[axis] for axis in order): group for position, group in found.folders.items()}
    return FoundGroups(tuple(found.axes[axis] for axis in order), dict(sorted(folders.items())))


def _rank(axis: str) -> int:
    return _SLOWEST.index(axis) if axis in _SLOWEST else len(_SLOWEST)


def _groups_below(folder: ReadPlace, depth: int) -> FoundGroups | None:
    if level_count(folder):
        return FoundGroups((), {(): folder})
    numbered = _numbered_folders(folder)
    prefix = _SETUP if _SETUP in numbered else next(iter(numbered), "")
    is_bdv = prefix in (_SETUP, _TIMEPOINT)
    if not prefix or depth == _MAX_DEPTH or (len(numbered) > 1 and not is_bdv):
        return None
    below = {number: _groups_below(child, depth + 1) for number, child in numbered[prefix].items()}
    some = {number: found for number, found in below.items() if found is not None}
    kinds = {found.axes for found in some.values()}
    if len(kinds) != 1 or (len(some) < len(below) and not is_bdv):  # of BigDataViewer's, some may be missing
        return None
    axes = (AXES_BY_PREFIX.get(prefix, prefix), *kinds.pop())
    folders = {
        (number, *position): group for number, found in some.items() for position, group in found.folders.items()
    }
    return FoundGroups(axes, folders)


def _numbered_folders(folder: ReadPlace) -> dict[str, dict[int, ReadPlace]]:
    """Child folders by the word and the number in their names; those without are under the word "", in any order."""
    found: dict[str, dict[int, ReadPlace]] = {}
    for child in list_folders(folder):
        match = _NUMBERED.fullmatch(child.name)
        siblings = found.setdefault(match[1] if match else "", {})
        siblings[int(match[2]) if match else len(siblings)] = child
    return found
