"""Describes one level of an array cut into chunks. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from acqstream.description.channels import ChannelLook
from acqstream.description.image_positions import NO_PLACES, ImagePlaces
from acqstream.description.space import UM, Coordinates, OwnSpacing, StageAxes
from acqstream.description.spacing import PlacedValues
from acqstream.grid.block_sizes import reduced_shape
from acqstream.model.axes import POSITION, AxisValue

Position = tuple[int, ...]
"""Position of a chunk in the grid: an item per axis, in the order of the axes, from 0."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")  # a label that stands for one
_LENGTHS = ("z", "y", "x")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """One level of an array cut into chunks. All per-axis values are in the order of `axes`.

    axes are names, slowest first, in C order: the axes of the frames, then z, y, x, and c for the components of RGB;
    foreign arrays may have any. dtype is in the byte order of this machine. chunk_shape is what the engine assembles
    and hands over complete; () where the format has not yet chosen (`ChunkFormat.plan`). block_shape: a chunk is handed
    over as blocks of this shape, each contiguous in memory; (): as one. shard_shape is the part of the level that one
    object of a store (a file) holds; (): a chunk. factors: an item of this level covers so many of
    level 0. scale is the distance of two items of this level in `units` ("um", "s", ... or "" where nothing is known),
    translation the place of the centre of item 0. coordinates are those of level 0 along axes without one distance;
    evidence: who says what the distance along an axis is. places: of positions, and of tiles that are images of their
    own; stage_axes: how they follow from the stage. own: spacings of positions, by place and axis, along axes where
    they are not those of all; scale and units are those that all share.
    labels are names of positions along an axis, e.g. of channels; looks those of channels by place, or one without
    channels, () where nothing is known; bits are the significant ones, 0: all.
    attributes are the user's and are kept where the format has a place for them.

    shown_axes are the axes as readers show them, slowest first; others have one item and are hidden. (): as stored.
    absent: positions along the axes before z, y and x that have no frame, of an array that will not grow.
    axis_values are the values of frames at the places along an axis, None for places without a frame, which are hidden.
    See docs/arrays.md.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunk_shape: tuple[int, ...] = ()
    block_shape: tuple[int, ...] = ()
    shard_shape: tuple[int, ...] = ()
    factors: tuple[int, ...] = ()
    scale: tuple[float, ...] = ()
    units: tuple[str, ...] = ()
    translation: tuple[float, ...] = ()
    coordinates: Mapping[str, Coordinates] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    places: ImagePlaces = NO_PLACES
    stage_axes: StageAxes = ""
    own: Mapping[int, Mapping[str, OwnSpacing]] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absent: frozenset[Position] = frozenset()
    looks: tuple[ChannelLook, ...] = ()
    bits: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shown_axes: tuple[str, ...] = ()
    axis_values: Mapping[str, Sequence[AxisValue | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ndim = len(self.axes)
        defaults = {"factors": (1,) * ndim, "scale": (1.0,) * ndim, "units": ("",) * ndim, "translation": (0.0,) * ndim}
        for name, default in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, default)
        chosen = [name for name in ("chunk_shape", "block_shape", "shard_shape") if getattr(self, name)]
        for name in ("shape", *defaults, *chosen):
            if len(getattr(self, name)) != ndim:
                raise ValueError(f"{name} {getattr(self, name)} has not one item for each of the axes {self.axes}")
        if any(size % block for size, block in zip(self.chunk_shape, self.block_shape, strict=False)):
            raise ValueError(f"chunks of {self.chunk_shape} cannot be made of blocks of {self.block_shape}")

    @property
    def unknown_distances(self) -> tuple[str, ...]:
        """Axes among z, y and x that have no unit although they are longer than one item."""
        axes = zip(self.axes, self.units, self.shape, strict=True)
        return tuple(name for name, unit, size in axes if name in _LENGTHS and not unit and size != 1)

    def with_values(self, other: ArraySpec) -> ArraySpec:
        """The same array with the shown axes and the values of another one."""
        return replace(self, shown_axes=other.shown_axes, axis_values=other.axis_values)

    def with_space(self, other: ArraySpec) -> ArraySpec:
        """The same array with distances, places and values of another one."""
        return replace(
            self,
            scale=other.scale,
            units=other.units,
            translation=other.translation,
            coordinates=other.coordinates,
            evidence=other.evidence,
            places=other.places,
            stage_axes=other.stage_axes,
            own=other.own,
            looks=other.looks,
            bits=other.bits,
            shown_axes=other.shown_axes,
            axis_values=other.axis_values,
        )

    def of_image(self, at: Mapping[str, int]) -> ArraySpec:
        """The same level with distances and place of one image, by its places along the axes that separate images."""
        own = self.own.get(at.get(POSITION, -1), {})
        place = self.places.find(at) if self.places.axes and {*self.places.axes} <= {*at} else None
        starts = {} if place is None else dict(zip(_LENGTHS, place, strict=True))
        scale, units, translation = [*self.scale], [*self.units], [*self.translation]
        for number, (axis, factor) in enumerate(zip(self.axes, self.factors, strict=True)):
            start, step, units[number] = own.get(axis, (starts.get(axis), scale[number] / factor, units[number]))
            scale[number] = step * factor if axis in own else scale[number]
            # Places of tiles are in items where the size of a pixel is unknown; z is known from the stage alone.
            if start is not None and (axis != "z" or units[number] == UM):
                translation[number] = start + (factor - 1) / 2 * step
        return replace(self, scale=tuple(scale), units=tuple(units), translation=tuple(translation))

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a full chunk, not encoded."""
        return math.prod(self.chunk_shape) * self.dtype.itemsize

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of a chunk as it is handed over: that of the grid of its blocks, then that of a block."""
        if not self.block_shape:
            return self.chunk_shape
        counts = (size // block for size, block in zip(self.chunk_shape, self.block_shape, strict=True))
        return (*counts, *self.block_shape)

    @property
    def object_shape(self) -> tuple[int, ...]:
        """The part of the level that one object holds. Only one process may write to it at a time."""
        return self.shard_shape or self.chunk_shape

    def region(self, position: Position) -> tuple[slice, ...]:
        """The part of the array that the chunk at `position` holds; chunks at the end are cropped to the array."""
        places = zip(position, self.chunk_shape, self.shape, strict=True)
        return tuple(slice(at * step, min((at + 1) * step, size)) for at, step, size in places)

    def ordered(self, axes: Sequence[str]) -> ArraySpec:
        """The full resolution, not cut yet, with its axes in this order; one that it has not is new, with one item."""
        places = [self.axes.index(name) if name in self.axes else None for name in axes]

        def moved(values: Sequence[_Item], of_new_axis: _Item) -> tuple[_Item, ...]:
            return tuple(of_new_axis if place is None else values[place] for place in places)

        return replace(
            self,
            axes=tuple(axes),
            shape=moved(self.shape, 1),
            chunk_shape=(),
            block_shape=(),
            shard_shape=(),
            factors=(1,) * len(places),
            scale=moved(self.scale, 1.0),
            units=moved(self.units, ""),
            translation=moved(self.translation, 0.0),
        )

    def is_uneven(self, axis: str) -> bool:
        """Whether items that are stored side by side lie apart unequally: levels do not join them."""
        named = [int(text) if _INTEGER.fullmatch(text) else text for text in self.labels.get(axis, ())]
        return axis in self.coordinates or PlacedValues.of(self.axis_values.get(axis) or named).gap is None

    def reduced(self, factors: Sequence[int]) -> ArraySpec:
        """The level of this full resolution whose items are means of blocks of so many; they lie in their centres."""
        per_axis = list(zip(factors, self.scale, self.translation, strict=True))
        return replace(
            self,
            shape=reduced_shape(self.shape, factors),
            factors=tuple(factors),
            scale=tuple(scale * factor for factor, scale, _ in per_axis),
            translation=tuple(place + (factor - 1) / 2 * scale for factor, scale, place in per_axis),
        )
