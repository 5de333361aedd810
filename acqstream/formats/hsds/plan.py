"""Cuts an array into chunks and levels. Pure.

A chunk is a frame; frames of less than 1 MiB share a chunk, since file systems get slow with many small files. A larger
picture, such as a mosaic, is cut into smaller pieces, so that those that one tile meets fit into memory. The last
two axes are y and x, followed by c of RGB, so a frame lies in a chunk as in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_order import TIME, Z
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.hsds.hdf_type import type_to_json
from acqstream.formats.hsds.object_id import MAX_NDIM
from acqstream.formats.hsds.options import HsdsOptions
from acqstream.formats.level_plan import PLANE, chunk_shape, reduced_levels

MAX_CHUNK_BYTES = 1 << 27  # the server caches chunks in 128 MiB
_SAMPLE = "c"
_MAX_SIDE = 4096
_SIDE_OF_PIECES = 2048  # of a picture that is larger, in all of its levels
_SMALL_BYTES = 1 << 20


def plan(array: ArraySpec, options: HsdsOptions) -> Plan:
    """The levels of an array, the full resolution first, with their chunks. Levels halve y and x.

    Raises ConfigError for an array without y or x, for items that HDF5 has not, and for chunks of more than 128 MiB.
    """
    if not set(PLANE) <= set(array.axes) or len(set(array.axes)) < len(array.axes) or len(array.axes) > MAX_NDIM:
        raise ConfigError(f"HSDS needs an array with axes y and x, each once, not {array.axes}")
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}")
    try:
        type_to_json(array.dtype)
    except ValueError as error:
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}") from error
    picture = (*PLANE, *((_SAMPLE,) if _SAMPLE in array.axes else ()))
    others = [name for name in array.axes if name not in (*picture, Z)]
    full = array.ordered((*others, *((Z,) if Z in array.axes else ()), *picture))
    extents = {**_depth(full, options), **_sides(full, options)}
    return Plan(levels=tuple(_cut(level, extents) for level in reduced_levels(full, options.levels)))


def _depth(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along the axes of the frames, equal in all levels; 1 along those that are not named."""
    sizes = dict(zip(full.axes, full.shape, strict=True))
    if options.chunks is not None:
        return {Z: options.chunks[0]}
    axis = Z if sizes.get(Z, 1) != 1 else TIME
    if sizes.get(axis, 1) == 1:
        return {}
    frame_bytes = full.dtype.itemsize * math.prod(sizes.get(name, 1) for name in (*PLANE, _SAMPLE))
    return {axis: max(1, _SMALL_BYTES // max(1, frame_bytes))}


def _sides(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along y and x, at most, equal in all levels."""
    if options.chunks is not None:
        return dict(zip(PLANE, options.chunks[1:], strict=True))
    is_large = any(size > _MAX_SIDE for name, size in zip(full.axes, full.shape, strict=True) if name in PLANE)
    return dict.fromkeys(PLANE, _SIDE_OF_PIECES if is_large else _MAX_SIDE)


def _cut(level: ArraySpec, extents: dict[str, int]) -> ArraySpec:
    """Cut a level into chunks. extents: of a chunk along the axes that have more than 1."""
    samples = {_SAMPLE: level.shape[-1]} if level.axes[-1] == _SAMPLE else {}
    cut = replace(level, chunk_shape=chunk_shape(level, {**extents, **samples}))
    if cut.chunk_bytes > MAX_CHUNK_BYTES:
        raise ConfigError(f"HSDS chunks of {cut.chunk_shape} of {cut.dtype} have more than {MAX_CHUNK_BYTES} bytes")
    return cut
