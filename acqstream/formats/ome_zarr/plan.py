"""Options of an OME-Zarr mirror, and how they cut an array into chunks, shards and levels. Pure.

A shard holds complete planes, or parts of large ones, and several of them along one axis: z if an image has planes
along it, else time. Raw chunks all have one length, so a shard's index is known beforehand and each of its planes is
written in place. A compressed shard is put complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.array_members import MAX_MEMBERS, has_too_many
from acqstream.formats.array_options import OptionReader
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.compression import ZARR_COMPRESSION, Compressor
from acqstream.formats.level_plan import PLANE, chunk_shape, reduced_levels
from acqstream.formats.ome_zarr.image_folders import split_axes
from acqstream.formats.ome_zarr.zarr_json import DTYPES, MAX_CHUNK_BYTES
from acqstream.model.axes import TIME, Z

DEFAULT_CHUNKS = (1, 512, 512)
DEFAULT_COMPRESSION = "blosc"
_MAX_CHUNK_ITEMS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class OmeZarrOptions:
    """chunks: extents (z, y, x) of a chunk, the unit that viewers read. is_sharded: many chunks in one file.

    levels: number of resolution levels; None: until a plane is one chunk. is_plate: positions are fields of the wells
    that their names mean; False: never.
    """

    compression: Compressor
    chunks: tuple[int, int, int] = DEFAULT_CHUNKS
    is_sharded: bool = True
    levels: int | None = None
    is_plate: bool = True

    @property
    def is_raw(self) -> bool:
        """True without a compressor."""
        return self.compression.name == "none"

    @property
    def compressors(self) -> tuple[Compressor, ...]:
        """The compressors of a chunk."""
        return () if self.is_raw else (self.compression,)

    def resumed(self, existing: OmeZarrOptions) -> OmeZarrOptions:
        """These options with the compression of an existing container, unless the user named another one."""
        return replace(self, compression=self.compression.resumed(existing.compression))

    def to_json(self) -> dict[str, Any]:
        """The options in our note."""
        return {
            "compression": self.compression.to_json(),
            "chunks": [*self.chunks],
            "shards": self.is_sharded,
            "levels": "auto" if self.levels is None else self.levels,
            "plate": self.is_plate,
        }


def parse_options(given: Mapping[str, object]) -> OmeZarrOptions:
    """From what a user wrote, e.g. {"compression": "zstd", "chunks": [1, 256, 256], "shards": false, "levels": 1}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("OME-Zarr", given, ("compression", "chunks", "shards", "levels", "plate"))
    return OmeZarrOptions(
        compression=ZARR_COMPRESSION.parse(given.get("compression", DEFAULT_COMPRESSION)),
        chunks=options.chunks(max_items=_MAX_CHUNK_ITEMS) or DEFAULT_CHUNKS,
        is_sharded=options.flag("shards"),
        levels=options.levels(),
        is_plate=options.flag("plate"),
    )


MAX_RAW_SHARD_BYTES = 512 * 2**20
MAX_COMPRESSED_SHARD_BYTES = 64 * 2**20  # it is in memory until it is complete
MAX_SHARD_PLANE_BYTES = 16 * 2**20  # of pixels: a tile of a mosaic meets few shards, and all of them are in memory
_UNPLANNED_DEPTH = 64
_MAX_SHARD_CHUNKS = 16384  # its index, which viewers read first, has 256 KiB then


def plan(array: ArraySpec, options: OmeZarrOptions) -> Plan:
    """The levels of an array, the finest first, with their chunks; an image for each place along the other axes.

    Levels halve y and x until a plane is one chunk. Raises ConfigError for an array without y or x, for a dtype that
    Zarr does not have, for chunks that are too large, and for too many images.
    """
    if array.dtype.name not in DTYPES:
        raise ConfigError(f"OME-Zarr: dtype {array.dtype} cannot be stored, only {', '.join(DTYPES)}")
    members, image = split_axes(array.axes)
    full = array.ordered((*members, *image))
    if has_too_many(full.shape[: len(members)]):
        raise ConfigError(f"OME-Zarr: {', '.join(members)} of {full.shape} are more than {MAX_MEMBERS:,} images")
    _, height, width = options.chunks
    levels = reduced_levels(full, options.levels, (height, width))
    sides = _shard_sides(full, _chunk_shape(full, options))
    depth = _depth(full, options, sides)  # equal in all levels, so that their shards end at the same plane
    return Plan(levels=tuple(_cut(level, options, sides, depth) for level in levels), member_axes=members)


def _chunk_shape(level: ArraySpec, options: OmeZarrOptions) -> dict[str, int]:
    """The chunk of a level by axis, never larger than the level where its size is known."""
    shape = chunk_shape(level, dict(zip((Z, *PLANE), options.chunks, strict=True)))
    if math.prod(shape) * level.dtype.itemsize > MAX_CHUNK_BYTES:
        raise ConfigError(f"OME-Zarr chunks of {shape} of {level.dtype} have more than {MAX_CHUNK_BYTES} bytes")
    return dict(zip(level.axes, shape, strict=True))


def _shard_sides(full: ArraySpec, chunk: dict[str, int]) -> dict[str, int]:
    """The sides of a shard along y and x, in items: complete chunks, MAX_SHARD_PLANE_BYTES of pixels at most.

    Sides of the full resolution, the larger one first, are halved until they fit, but never below a chunk.
    """
    counts = {name: -(-full.shape[full.axes.index(name)] // chunk[name]) for name in PLANE}

    def sides() -> dict[str, int]:
        return {name: count * chunk[name] for name, count in counts.items()}

    while math.prod(sides().values()) * full.dtype.itemsize > MAX_SHARD_PLANE_BYTES and max(counts.values()) > 1:
        size = sides()
        larger = max((name for name in PLANE if counts[name] > 1), key=size.__getitem__)
        counts[larger] = -(-counts[larger] // 2)
    return sides()


def _plane_shape(level: ArraySpec, chunk: dict[str, int], sides: dict[str, int]) -> dict[str, int]:
    """A plane of chunks by axis: complete, or of these sides where the level is longer."""
    sizes = dict(zip(level.axes, level.shape, strict=True))
    ends = {name: -(-min(sizes[name], sides[name]) // chunk[name]) * chunk[name] for name in PLANE}
    return {name: ends.get(name, size) for name, size in chunk.items()}


def _depth_axis(level: ArraySpec) -> str:
    """The axis along which a shard has several planes of chunks; "" for none."""
    sizes = dict(zip(level.axes, level.shape, strict=True))
    if sizes.get(Z, 1) != 1:
        return Z
    return TIME if sizes.get(TIME, 1) != 1 else ""


def _depth(full: ArraySpec, options: OmeZarrOptions, sides: dict[str, int]) -> int:
    """Number of planes of chunks in a shard: never more than the planned ones, and a power of two without a plan.

    A compressed shard counts with all shards beside it, which are in memory with it.
    """
    axis = _depth_axis(full)
    if not axis or not options.is_sharded:
        return 1
    chunk = _chunk_shape(full, options)
    plane = _plane_shape(full, chunk, sides)
    complete = _plane_shape(full, chunk, dict(zip(full.axes, full.shape, strict=True)))
    max_bytes, held = (MAX_RAW_SHARD_BYTES, plane) if options.is_raw else (MAX_COMPRESSED_SHARD_BYTES, complete)
    plane_chunks = math.prod(plane[name] // chunk[name] for name in plane)
    plane_bytes = math.prod(held.values()) * full.dtype.itemsize
    most = max(1, min(max_bytes // plane_bytes, _MAX_SHARD_CHUNKS // plane_chunks))
    planned = -(-full.shape[full.axes.index(axis)] // chunk[axis])
    if not planned:
        return 1 << (min(most, _UNPLANNED_DEPTH).bit_length() - 1)
    return -(-planned // -(-planned // most))  # shards of equal depth


def _cut(level: ArraySpec, options: OmeZarrOptions, sides: dict[str, int], depth: int) -> ArraySpec:
    """A level with its chunks.

    For a raw shard the engine's chunk is a plane of the shard, one run of bytes in the file; for a compressed one the
    shard. Without shards it is a chunk.
    """
    chunk = _chunk_shape(level, options)
    if not options.is_sharded:
        return replace(level, chunk_shape=tuple(chunk.values()))
    plane, axis = _plane_shape(level, chunk, sides), _depth_axis(level)
    shard = {name: size * depth if name == axis else size for name, size in plane.items()}
    return replace(
        level,
        chunk_shape=tuple((plane if options.is_raw else shard).values()),
        block_shape=tuple(chunk.values()),
        shard_shape=tuple(shard.values()),
    )
