"""The layouts in which frames are served: those of the formats, without shards and compression. Pure.

A new layout is a line here and, if no format has it yet, a pure layout in the format's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.formats.compression import N5_COMPRESSION, ZARR_COMPRESSION
from acqstream.formats.n5.layout import create_layout as create_n5
from acqstream.formats.n5.layout import plan as plan_n5
from acqstream.formats.n5.member_folders import N5Options
from acqstream.formats.ome_zarr.layout import create_layout as create_ome_zarr
from acqstream.formats.ome_zarr.plan import OmeZarrOptions
from acqstream.formats.ome_zarr.plan import plan as plan_ome_zarr
from acqstream.formats.ome_zarr.viewer_layouts import XarrayLayout, create_layout_v2, plan_for_xarray
from acqstream.formats.precomputed.layout import plan as plan_precomputed
from acqstream.formats.precomputed.metadata import PrecomputedOptions
from acqstream.formats.precomputed.shard_layout import create_layout as create_precomputed

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
    """byte_order: of items in the objects. make: the layout of an array with planned sizes, 0 for unknown ones.

    shows_time_as_z: time takes the place of z in an array without z, so the option `z=time` has a meaning.
    """

    name: str
    byte_order: Literal["<", ">"]
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
            VirtualLayout("ome.zarr", "<", _ome_zarr),
            VirtualLayout("v2.ome.zarr", "<", _ome_zarr_v2),
            VirtualLayout("n5", ">", _n5),
            VirtualLayout("precomputed", "<", _precomputed, shows_time_as_z=True),
            VirtualLayout("xarray.zarr", "<", _xarray),
        )
    }
)
