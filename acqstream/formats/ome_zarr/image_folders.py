"""Axes of an OME-Zarr image, and the folders of the images of a container: numbered, or the fields of wells. Pure.

Source: OME-NGFF 0.5, "axes": at most one time and one channel axis, then two or three of space, in this order. Along
the other axes of an array images are separate.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from acqstream.arrays.array_spec import Position
from acqstream.errors import ConfigError
from acqstream.formats.array_members import member_number, number_after, numbered_member, numbering_of
from acqstream.formats.level_plan import PLANE, check_axes
from acqstream.model.axes import POSITION, TIME, Z

CHANNEL = "channel"
SAMPLE = "c"  # colour samples of RGB
_NAMES = {TIME: ("t", "time"), CHANNEL: ("c", "channel"), SAMPLE: ("c", "channel")}


@dataclass(frozen=True, slots=True)
class ImageAxis:
    """An axis as the metadata have it."""

    name: str
    type: str


def split_axes(axes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes along which images are separate, slowest first, and those of an image.

    Colour samples take the place of channels; a channel axis beside them separates images. Raises ConfigError for an
    array without y or x.
    """
    check_axes("OME-Zarr", axes)
    channel = SAMPLE if SAMPLE in axes else CHANNEL
    image = tuple(name for name in (TIME, channel, Z, *PLANE) if name in axes)
    return tuple(name for name in axes if name not in image), image


def image_axis(name: str) -> ImageAxis:
    """The axis of an image in the words of the format."""
    return ImageAxis(*_NAMES.get(name, (name, "space")))


@dataclass(frozen=True)
class ImageFolders:
    """axes are those that separate images, planned their planned sizes, 0 for unknown ones.

    wells are the wells of the positions, such as "A/1", in their order: in a plate, an image is a field of one. A
    position behind them has a number, as all images have without wells.
    """

    axes: tuple[str, ...]
    planned: tuple[int, ...]
    wells: tuple[str, ...] = ()

    def parts(self, member: Sequence[int]) -> tuple[str, ...]:
        """The folders of an image, () for the only one."""
        if not member:
            return ()
        well = self.well(member)
        if not well:
            return (str(_number(member, self.planned)),)
        others = self._without_position(member)
        field = _number((self._ranks[member[self._at]], *others), (0, *self._others))
        return (*well.split("/"), str(field))

    def member(self, parts: Sequence[str]) -> Position | None:
        """The inverse of `parts`; None for other folders."""
        if not parts:
            return None if self.axes else ()
        number = number_after("", parts[-1])
        if number is None or not self.axes:
            return None
        if len(parts) == 1:
            found: Position = _member(number, self.planned)
        elif not self.wells:
            return None
        else:
            positions = self._positions.get("/".join(parts[:-1]), ())
            rank, *others = _member(number, (0, *self._others))
            if rank >= len(positions):
                return None
            found = (*others[: self._at], positions[rank], *others[self._at :])
        return found if self.parts(found) == tuple(parts) else None

    def first_in(self, parts: Sequence[str]) -> Position | None:
        """The first image in the folder of a well, or of a row of wells; None for other folders."""
        path = "/".join((*parts, ""))
        found = next((at for at, well in enumerate(self.wells) if parts and f"{well}/".startswith(path)), None)
        return None if found is None else tuple(found if at == self._at else 0 for at in range(len(self.axes)))

    def well(self, member: Sequence[int]) -> str:
        """The well of an image; "" for an image outside the plate, or without one."""
        position = member[self._at] if self.wells else 0
        return self.wells[position] if position < len(self.wells) else ""

    def fields(self, positions: int | None = None) -> Counter[str]:
        """The number of fields of each well; positions: only of so many."""
        each = math.prod(self._others) if self.wells else 1
        counted = Counter(self.wells[:positions])
        return Counter({well: count * each for well, count in counted.items()})

    def check(self, sizes: Sequence[int]) -> None:
        """Raise ConfigError if the container cannot grow to these sizes along the axes."""
        for at, (name, size, planned) in enumerate(zip(self.axes, sizes, self.planned, strict=True)):
            is_bound = (at > 0 and all(self.planned[1:])) or (bool(self.wells) and at != self._at)
            if is_bound and size > planned:
                raise ConfigError(f"OME-Zarr: {name} cannot get longer than {planned}")

    @property
    def _at(self) -> int:
        return self.axes.index(POSITION)

    @property
    def _others(self) -> tuple[int, ...]:
        return self._without_position(self.planned)

    def _without_position(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(value for at, value in enumerate(values) if at != self._at)

    @cached_property
    def _positions(self) -> Mapping[str, Sequence[int]]:
        """The positions in each well."""
        found: dict[str, list[int]] = defaultdict(list)
        for position, well in enumerate(self.wells):
            found[well].append(position)
        return found

    @cached_property
    def _ranks(self) -> Sequence[int]:
        """The number of each position in its well."""
        ranks = [0] * len(self.wells)
        for positions in self._positions.values():
            for rank, position in enumerate(positions):
                ranks[position] = rank
        return ranks


def _number(member: Sequence[int], sizes: Sequence[int]) -> int:
    return member_number(member, sizes, numbering_of(sizes))


def _member(number: int, sizes: Sequence[int]) -> Position:
    return numbered_member(number, sizes, numbering_of(sizes))


def has_fields(axes: Sequence[str], planned: Sequence[int]) -> bool:
    """Return True if images can be fields of wells: they have positions, and known sizes along all other axes."""
    return POSITION in axes and all(size for name, size in zip(axes, planned, strict=True) if name != POSITION)
