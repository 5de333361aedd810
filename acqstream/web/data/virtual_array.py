"""A virtual dataset: in which layout, and which object a key names, a document or a chunk. Pure, and knows no HTTP.

The layouts are those of the formats, without shards and compression. A new layout is a line in VIRTUAL_LAYOUTS and, if
no format has it yet, a pure layout in the format's folder.

Folders of images must not change while a viewer reads them. So names that were known before the first frame decide for
ever whether positions are fields of a plate; names that came with the frames decide when the run has ended, as for a
mirror that is made afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import BESIDE, ChunkLayout, Encoded
from acqstream.formats.compression import N5_COMPRESSION, ZARR_COMPRESSION
from acqstream.formats.n5.layout import create_layout as create_n5
from acqstream.formats.n5.layout import plan as plan_n5
from acqstream.formats.n5.member_folders import N5Options
from acqstream.formats.ome_zarr.image_folders import split_axes
from acqstream.formats.ome_zarr.layout import create_layout as create_ome_zarr
from acqstream.formats.ome_zarr.metadata import find_wells, planned_wells
from acqstream.formats.ome_zarr.plan import OmeZarrOptions
from acqstream.formats.ome_zarr.plan import plan as plan_ome_zarr
from acqstream.formats.ome_zarr.viewer_layouts import XarrayLayout, create_layout_v2, plan_for_xarray
from acqstream.formats.precomputed.layout import plan as plan_precomputed
from acqstream.formats.precomputed.metadata import PrecomputedOptions
from acqstream.formats.precomputed.shard_layout import create_layout as create_precomputed
from acqstream.frames.frame_pixels import Region
from acqstream.model.axes import PICTURE_AXES, POSITION


def plate_array(
    planned: ArraySpec, sizes: Mapping[str, int], labels: Mapping[str, Sequence[str]], *, is_ended: bool
) -> ArraySpec | None:
    """The array from which the layout of a plate is made; None if the positions make up a collection.

    planned: with planned sizes, 0 for unknown ones, and the names known before the first frame. sizes, labels: of the
    frames, by axis. is_ended: no other frame will come, and unknown sizes are those of the frames.
    """
    if POSITION not in planned.axes:
        return None
    if not planned_wells(planned):
        names = labels.get(POSITION, ())
        if not (is_ended and find_wells(names, planned.attributes)):
            return None
        # Fewer names than declared may have come; no other one will.
        shape = [
            len(names) if name == POSITION else size for name, size in zip(planned.axes, planned.shape, strict=True)
        ]
        planned = replace(planned, shape=tuple(shape), labels=labels)
    if is_ended:
        shape = [size or sizes.get(name, 0) for name, size in zip(planned.axes, planned.shape, strict=True)]
        planned = replace(planned, shape=tuple(shape))
    members, _ = split_axes(planned.axes)
    others = [planned.shape[planned.axes.index(name)] for name in members if name != POSITION]
    return planned if all(others) else None


MAX_WHOLE_BYTES = 8 * 2**20  # of a frame that is one chunk: it needs no copy
PIECE_SIDE = 512
_SMALLEST_SIDE = 512  # no level is added to one that fits into this


@dataclass(frozen=True, slots=True)
class ChunkCut:
    """How pictures are cut: sides (y, x) of a chunk in pixels, and number of levels.

    is_plate: positions are fields of the wells that their names mean, in formats that have plates.
    """

    sides: tuple[int, int]
    n_levels: int
    is_plate: bool = False


@dataclass(frozen=True, slots=True)
class VirtualLayout:
    """make: the layout of an array with planned sizes, 0 for unknown ones.

    shows_time_as_z: time takes the place of z in an array without z, so the option `z=time` has a meaning.
    """

    name: str
    make: Callable[[ArraySpec, ChunkCut], ChunkLayout]
    shows_time_as_z: bool = False


def choose_cut(
    picture: tuple[int, int], item_bytes: int, *, tile: tuple[int, int] | None, side: int | None
) -> ChunkCut:
    """Cut a picture (y, x): whole frames or tiles if they are small enough, else squares.

    item_bytes: of a pixel. tile: the shown part of a tile of a mosaic. side: as the user asked.
    """
    whole = tile or picture
    if side is not None:
        sides = (side, side)
    elif whole[0] * whole[1] * item_bytes <= MAX_WHOLE_BYTES:
        sides = whole
    else:
        sides = (PIECE_SIDE, PIECE_SIDE)
    n_levels, longest = 1, max(picture)
    while longest > _SMALLEST_SIDE:
        longest //= 2
        n_levels += 1
    return ChunkCut(sides, n_levels)


def announce(
    layout: ChunkLayout, sizes: Mapping[str, int], labels: Mapping[str, Sequence[str]], name: str
) -> ChunkLayout:
    """The layout with announced sizes along the axes of the frames, the names of places and that of the dataset."""
    levels = []
    for level in layout.plan.levels:
        shape = tuple(sizes.get(axis, size) for axis, size in zip(level.axes, level.shape, strict=True))
        levels.append(replace(level, shape=shape, labels=labels))
    return replace(layout, plan=replace(layout.plan, name=name)).with_levels(levels)


def _zarr_options(cut: ChunkCut) -> OmeZarrOptions:
    return OmeZarrOptions(
        compression=ZARR_COMPRESSION.parse("none"),
        chunks=(1, *cut.sides),
        is_sharded=False,
        levels=cut.n_levels,
        is_plate=cut.is_plate,
    )


def _ome_zarr(array: ArraySpec, cut: ChunkCut) -> ChunkLayout:
    options = _zarr_options(cut)
    return create_ome_zarr(plan_ome_zarr(array, options), options)


def _ome_zarr_v2(array: ArraySpec, cut: ChunkCut) -> ChunkLayout:
    options = _zarr_options(cut)
    return create_layout_v2(plan_ome_zarr(array, options), options)


def _n5(array: ArraySpec, cut: ChunkCut) -> ChunkLayout:
    options = N5Options(
        layout="array",
        compression=N5_COMPRESSION.parse("raw"),
        blocks=(1, *cut.sides),
        levels=cut.n_levels,
        downsample="xy",
    )
    return create_n5(plan_n5(array, options), options)


def _precomputed(array: ArraySpec, cut: ChunkCut) -> ChunkLayout:
    options = PrecomputedOptions(chunks=(1, *cut.sides), levels=cut.n_levels)
    return create_precomputed(plan_precomputed(array, options), options)


def _xarray(array: ArraySpec, cut: ChunkCut) -> ChunkLayout:
    return XarrayLayout(plan_for_xarray(array, cut.sides))


VIRTUAL_LAYOUTS: Mapping[str, VirtualLayout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            VirtualLayout("ome.zarr", _ome_zarr),
            VirtualLayout("v2.ome.zarr", _ome_zarr_v2),
            VirtualLayout("n5", _n5),
            VirtualLayout("precomputed", _precomputed, shows_time_as_z=True),
            VirtualLayout("xarray.zarr", _xarray),
        )
    }
)


_MAX_LISTED_MEMBERS = 100


@dataclass(frozen=True, slots=True)
class ServedChunk(Region):
    """A chunk, which lies in one picture: its position in the grid, and its colour samples [first, stop)."""

    position: Position
    samples: tuple[int, int]


@dataclass(frozen=True)
class VirtualArray:
    """layout: with announced sizes. name: of the dataset. complete: no frame will
    come.
    """

    layout: ChunkLayout
    name: str
    complete: bool

    @property
    def full(self) -> ArraySpec:
        """The full resolution."""
        return self.layout.plan.full

    def document(self, key: str) -> bytes | None:
        """The document at a key; None if it has none. Documents of one array agree: all are of one snapshot."""
        found = self._documents.get(key)
        if found is not None:
            return found
        member = self.layout.member_of(key)
        if member is None or not self._has_member(member):
            return None
        return self.layout.member_documents(member).get(key)

    def chunk(self, key: str) -> ServedChunk | None:
        """The chunk at a key; None if the key names none inside the announced shape, or spells it in another way."""
        found = self.layout.parse_key(key)
        if found is None:
            return None
        level, position = found
        spec = self.layout.plan.levels[level]
        if not all(0 <= at < count for at, count in zip(position, spec.grid_shape, strict=True)):
            return None
        spans = {name: (part.start, part.stop) for name, part in zip(spec.axes, spec.region(position), strict=True)}
        outer = {name: first for name, (first, _) in spans.items() if name not in PICTURE_AXES}
        return ServedChunk(level, outer, spans["y"], spans["x"], position, spans.get("c", (0, 1)))

    def folder(self, key: str) -> list[str] | None:
        """The documents and folders of documents in a folder, names of folders with "/" at their end; None elsewhere.

        Chunks are not listed: there may be millions. Of many images, the first ones are, and each in its own folder.
        """
        prefix = f"{key}/" if key else ""
        keys = dict(self._documents)
        for member in itertools.islice(self.layout.plan.members(), _MAX_LISTED_MEMBERS):
            keys.update(self.layout.member_documents(member))
        own = self.layout.member_of(prefix)
        if own is not None and self._has_member(own):
            keys.update(self.layout.member_documents(own))
        rests = [one.removeprefix(prefix) for one in keys if one.startswith(prefix)]
        names = dict.fromkeys(name + sign for name, sign, _ in (rest.partition("/") for rest in rests))
        return [*names] or None

    def encode(self, place: ServedChunk, picture: NDArray[np.generic]) -> Encoded:
        """The bytes of a chunk. picture: its pixels (Y, X) or (Y, X, samples), all samples of the frame."""
        spec = self.layout.plan.levels[place.level]
        own = [name for name in spec.axes if name in PICTURE_AXES]
        if picture.ndim == 3:
            picture = picture[..., place.samples[0] : place.samples[1]]
        ordered = picture.transpose([PICTURE_AXES.index(name) for name in own])
        dtype = spec.dtype.newbyteorder(self.layout.byte_order)
        inside: list[int | slice] = [0] * len(spec.axes)
        for name, size in zip(own, ordered.shape, strict=True):
            inside[spec.axes.index(name)] = slice(0, size)
        if ordered.size == np.prod(spec.chunk_shape):
            chunk = ordered.astype(dtype, copy=False).reshape(spec.chunk_shape)
        else:  # at the end of the array: items beyond it are zeros
            chunk = np.zeros(spec.chunk_shape, dtype)
            chunk[tuple(inside)] = ordered
        return self.layout.encode(place.level, place.position, chunk)

    def frame_head(self, place: ServedChunk, frame_shape: tuple[int, ...]) -> bytes | None:
        """The bytes before the frame if the chunk is one frame of this shape as it is in memory; else None."""
        spec = self.layout.plan.levels[place.level]
        sides = dict(zip(spec.axes, spec.chunk_shape, strict=True))
        if place.level or (sides["y"], sides["x"], *((sides.get("c"),) if len(frame_shape) > 2 else ())) != frame_shape:
            return None
        if len(frame_shape) > 2 and spec.axes[-1] != "c":  # the samples of a pixel lie together in a frame
            return None
        if (place.y[1] - place.y[0], place.x[1] - place.x[0]) != frame_shape[:2]:
            return None
        return self.layout.raw_head(place.level, place.position)

    @cached_property
    def _documents(self) -> dict[str, bytes]:
        """Those of the container, and of the array if it is the only one."""
        found = {**self.layout.documents(complete=self.complete), **self.layout.listings(self.name)}
        if not self.layout.plan.member_axes:
            found.update(self.layout.member_documents(()))
        return {key: content for key, content in found.items() if not key.startswith(BESIDE)}

    def _has_member(self, member: Position) -> bool:
        return all(at < size for at, size in zip(member, self.layout.plan.member(self.full.shape), strict=True))
