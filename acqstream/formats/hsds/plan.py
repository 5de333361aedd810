"""Cuts an array into chunks and levels. Pure.

A chunk is a frame; frames of less than 1 MiB share a chunk, since file systems get slow with many small files. A larger
picture, such as a mosaic, is cut into smaller pieces, so that those that one tile meets fit into memory. The last
two axes are y and x, followed by c of RGB, so a frame lies in a chunk as in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.hsds.hdf_type import type_to_json
from acqstream.formats.hsds.object_id import MAX_NDIM
from acqstream.formats.hsds.options import MAX_LEVELS, HsdsOptions
from acqstream.model.axes import TIME, Z

MAX_CHUNK_BYTES = 1 << 27  # the server caches chunks in 128 MiB
_PICTURE = ("y", "x")
_SAMPLE = "c"
_MAX_SIDE = 4096
_SIDE_OF_PIECES = 2048  # of a picture that is larger, in all of its levels
_SMALL_BYTES = 1 << 20
_SMALLEST_PICTURE = 512


def plan(array: ArraySpec, options: HsdsOptions) -> Plan:
    """The levels of an array, the full resolution first, with their chunks. Levels halve y and x.

    Raises ConfigError for an array without y or x, for items that HDF5 has not, and for chunks of more than 128 MiB.
    """
    if not set(_PICTURE) <= set(array.axes) or len(set(array.axes)) < len(array.axes) or len(array.axes) > MAX_NDIM:
        raise ConfigError(f"HSDS needs an array with axes y and x, each once, not {array.axes}")
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}")
    try:
        type_to_json(array.dtype)
    except ValueError as error:
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}") from error
    picture = (*_PICTURE, *((_SAMPLE,) if _SAMPLE in array.axes else ()))
    others = [name for name in array.axes if name not in (*picture, Z)]
    full = array.ordered((*others, *((Z,) if Z in array.axes else ()), *picture))
    levels = [full]
    while _needs_another(levels[-1], len(levels), options):
        factors = tuple(
            factor * (2 if name in _PICTURE and size > 1 else 1)
            for name, factor, size in zip(full.axes, levels[-1].factors, levels[-1].shape, strict=True)
        )
        if factors == levels[-1].factors:
            break
        levels.append(full.reduced(factors))
    extents = {**_depth(full, options), **_sides(full, options)}
    return Plan(levels=tuple(_cut(level, extents) for level in levels))


def _needs_another(last: ArraySpec, count: int, options: HsdsOptions) -> bool:
    if options.levels is not None:
        return count < options.levels
    sides = [size for name, size in zip(last.axes, last.shape, strict=True) if name in _PICTURE]
    return count < MAX_LEVELS and max(sides) > _SMALLEST_PICTURE


def _depth(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along the axes of the frames, equal in all levels; 1 along those that are not named.

    A size that is not known bounds nothing.
    """
    sizes = dict(zip(full.axes, full.shape, strict=True))
    if options.chunks is not None:
        extent = options.chunks[0]
        return {Z: min(extent, sizes[Z]) if sizes[Z] else extent} if Z in sizes else {}
    axis = Z if sizes.get(Z, 1) != 1 else TIME
    if sizes.get(axis, 1) == 1:
        return {}
    frame_bytes = full.dtype.itemsize * math.prod(sizes.get(name, 1) for name in (*_PICTURE, _SAMPLE))
    extent = max(1, _SMALL_BYTES // max(1, frame_bytes))
    return {axis: min(extent, sizes[axis]) if sizes[axis] else extent}


def _sides(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along y and x, at most, equal in all levels."""
    if options.chunks is not None:
        return dict(zip(_PICTURE, options.chunks[1:], strict=True))
    is_large = any(size > _MAX_SIDE for name, size in zip(full.axes, full.shape, strict=True) if name in _PICTURE)
    return dict.fromkeys(_PICTURE, _SIDE_OF_PIECES if is_large else _MAX_SIDE)


def _cut(level: ArraySpec, extents: dict[str, int]) -> ArraySpec:
    """Cut a level into chunks. extents: of a chunk along the axes that have more than 1."""
    chunk = []
    for name, size in zip(level.axes, level.shape, strict=True):
        side = size if name == _SAMPLE else extents.get(name, 1)
        chunk.append(min(side, size) if name in _PICTURE and size else side)
    cut = replace(level, chunk_shape=tuple(chunk))
    if cut.chunk_bytes > MAX_CHUNK_BYTES:
        raise ConfigError(f"HSDS chunks of {cut.chunk_shape} of {cut.dtype} have more than {MAX_CHUNK_BYTES} bytes")
    return cut
