"""Maps the outer axes of an array to images with time, channel and z, as OME and ImageJ have them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acqstream.arrays.level_layout import LevelAxis
from acqstream.model.axes import AxisValue

_ROLES = {"time": "T", "t": "T", "channel": "C", "c": "C", "z": "Z"}
ORDER = "TCZ"
"""Slowest first: OME's DimensionOrder XYZCT."""


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """outer are the axes of the array, slowest first. Those without a role of their own count images."""

    outer: tuple[LevelAxis, ...]

    def axis(self, role: str) -> LevelAxis | None:
        """The axis of a role "T", "C" or "Z"; the first one where several could have it."""
        return next((axis for axis in self.outer if _ROLES.get(axis.name) == role), None)

    def size(self, role: str) -> int:
        """Number of positions along a role; 1 without its axis."""
        axis = self.axis(role)
        return 1 if axis is None else len(axis.values)

    @property
    def image_axes(self) -> tuple[LevelAxis, ...]:
        """The axes that count images, such as `position`."""
        own = [axis.name for role in ORDER if (axis := self.axis(role)) is not None]
        return tuple(axis for axis in self.outer if axis.name not in own)

    def images(self) -> Iterator[tuple[int, ...]]:
        """Positions along `image_axes` of every image, last axis fastest."""
        yield from itertools.product(*(range(len(axis.values)) for axis in self.image_axes))

    def planes(self, image: Sequence[int], order: str = ORDER) -> Iterator[tuple[int, ...]]:
        """Positions of the planes of an image along `outer`, in the order of roles, slowest first."""
        for roles in itertools.product(*(range(self.size(role)) for role in order)):
            at = dict(zip((axis.name for axis in self.image_axes), image, strict=True))
            for role, number in zip(order, roles, strict=True):
                axis = self.axis(role)
                if axis is not None:
                    at[axis.name] = number
            yield tuple(at[axis.name] for axis in self.outer)

    def values(self, image: Sequence[int]) -> dict[str, AxisValue]:
        """The values of an image on `image_axes`."""
        return {axis.name: axis.values[at] for axis, at in zip(self.image_axes, image, strict=True)}
