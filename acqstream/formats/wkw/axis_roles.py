"""Roles of the axes of an array in WKW, which has x, y, z and the components of a voxel only.

z, or time where there is no z, is the depth of the cubes. Each position along `channel` is a layer. Each position
along any other axis (time, positions, ...) is a dataset in a folder of its own. See docs/decisions/016-wkw.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import ConfigError
from acqstream.formats.array_members import has_too_many
from acqstream.formats.level_plan import check_axes

CHANNEL = "channel"
COMPONENT = "c"
_DEPTHS = ("z", "time")  # the first that there is
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$@-.")
_LONGEST_NAME = 100

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a position of the array: dataset, an item for each of `AxisRoles.folders`; layer; (z, y, x)."""

    dataset: tuple[int, ...]
    layer: int
    voxel: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class AxisRoles:
    """The axes of an array as WKW orders them: datasets and layers, then depth, y, x and maybe c.

    depth is the position of the depth in `axes`, layer that of `channel` or None, folders those of the others.
    """

    axes: tuple[str, ...]
    depth: int
    layer: int | None
    folders: tuple[int, ...]

    @property
    def has_components(self) -> bool:
        return self.axes[-1] == COMPONENT

    @property
    def dataset_axes(self) -> tuple[str, ...]:
        """The names of `folders`."""
        return tuple(self.axes[axis] for axis in self.folders)

    def place(self, position: Sequence[int]) -> Place:
        """Of a position in the array, or of a chunk in its grid."""
        layer = 0 if self.layer is None else position[self.layer]
        return Place(tuple(position[axis] for axis in self.folders), layer, self.extent(position))

    def position(self, place: Place) -> Position:
        """The other way round."""
        found = [0] * len(self.axes)
        for axis, item in zip(self.folders, place.dataset, strict=True):
            found[axis] = item
        if self.layer is not None:
            found[self.layer] = place.layer
        found[self.depth : self.depth + 3] = place.voxel
        return tuple(found)

    def extent(self, shape: Sequence[_Item]) -> tuple[_Item, _Item, _Item]:
        """(z, y, x) out of an item for each axis."""
        z, y, x = shape[self.depth : self.depth + 3]
        return z, y, x

    def layers(self, shape: Sequence[int]) -> int:
        """Number of layers of an array of this shape."""
        return 1 if self.layer is None else shape[self.layer]

    def has_too_many(self, shape: Sequence[int]) -> bool:
        """Return True if an array of this shape has too many layers, in all datasets. An unknown size counts as 1."""
        return has_too_many([*(shape[axis] for axis in self.folders), self.layers(shape)])

    def datasets(self, shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """All datasets of an array of this shape."""
        return product(*(range(shape[axis]) for axis in self.folders))

    def folder(self, dataset: tuple[int, ...]) -> str:
        """Name of a dataset's folder in the container; "" where there is but one, the container itself."""
        pairs = zip(self.dataset_axes, dataset, strict=True)
        return "_".join(f"{plain_name(name)}{item:04d}" for name, item in pairs)

    def parse_folder(self, name: str) -> tuple[int, ...] | None:
        """The inverse of `folder`; None for any other name."""
        parts = [f"{re.escape(plain_name(axis))}([0-9]{{4,9}})" for axis in self.dataset_axes]
        found = re.fullmatch("_".join(parts), name)
        dataset = None if found is None else tuple(map(int, found.groups()))
        return dataset if dataset is not None and self.folder(dataset) == name else None

    def as_chunk(self, voxels: NDArray[np.generic]) -> NDArray[np.generic]:
        """Voxels (z, y, x[, c]) as a chunk of the array."""
        components = (math.prod(voxels.shape[3:]),) if self.has_components else ()
        return voxels.reshape((1,) * self.depth + voxels.shape[:3] + components)


def axis_roles(axes: tuple[str, ...]) -> AxisRoles:
    """The roles of axes that are in WKW's order. Raises ConfigError if they are not."""
    depth = len(axes) - (4 if axes[-1:] == (COMPONENT,) else 3)
    if depth < 0 or axes[depth + 1 : depth + 3] != ("y", "x") or len(set(axes)) < len(axes):
        raise ConfigError(f"axes {axes} do not end with a depth, y, x and maybe c, or one is there twice")
    layer = axes.index(CHANNEL) if CHANNEL in axes[:depth] else None
    folders = tuple(axis for axis in range(depth) if axis != layer)
    if len({plain_name(axes[axis]) for axis in folders}) < len(folders):
        raise ConfigError(f"axes {axes}: folders of two of them would have the same name")
    return AxisRoles(axes, depth, layer, folders)


def wkw_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """These axes in WKW's order; a z is added where nothing can be the depth. Raises ConfigError without y or x."""
    check_axes("WKW", axes)
    depth = next((name for name in _DEPTHS if name in axes), "z")
    frame = (depth, "y", "x", COMPONENT)
    components = (COMPONENT,) if COMPONENT in axes else ()
    return (*(name for name in axes if name not in frame), depth, "y", "x", *components)


def layer_names(labels: Mapping[str, Sequence[str]], count: int) -> tuple[str, ...]:
    """Names of the first `count` layers: the labels of the channels, else C0, C1, ...; no two the same."""
    given = list(labels.get(CHANNEL, ()))
    names: dict[str, str] = {}  # by what a file system may take for the same name
    for number in range(count):
        name = plain_name(given[number][:_LONGEST_NAME]) if number < len(given) and given[number] else f"C{number}"
        while name.lower() in names:
            name += "_"
        names[name.lower()] = name
    return tuple(names.values())


def plain_name(text: str) -> str:
    """The text with what webKNOSSOS takes in names: letters, digits and _ $ @ - . , not a dot first."""
    name = "".join(character if character in _NAME_CHARACTERS else "_" for character in text)
    return f"_{name[1:]}" if name[:1] in {"", "."} else name
