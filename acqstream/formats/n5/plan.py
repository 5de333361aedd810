"""How an array is cut into blocks, and which levels there will be."""

from __future__ import annotations

from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.n5.attributes import MAX_BLOCK_BYTES, dtype_name
from acqstream.formats.n5.layouts import has_too_many, too_many_text
from acqstream.formats.n5.options import MAX_LEVELS, N5Options

SPATIAL = ("z", "y", "x")
COMPONENT = "c"
_Z_EXTENT = 16
_SIDE, _SIDE_OF_PLANES = 512, 1024  # in y and x: 8 MiB of 16 bit, 2 MiB where a block is one plane


def plan(array: ArraySpec, options: N5Options) -> tuple[ArraySpec, ...]:
    """All levels, the full resolution first. Axes are the others, c of RGB, then z (of extent 1 if need be), y, x.

    Lower levels have floor(size / factor) items along an axis, at least 1. Raises ConfigError for an array that has no
    y or x, whose dtype N5 does not know, or whose blocks would be too large. A size of 0 is one that is not yet known.
    """
    if dtype_name(array.dtype) is None:
        raise ConfigError(f"N5 has no items of dtype {array.dtype}")
    full = _ordered(array)
    blocks = options.blocks or _default_blocks(full)
    sides = [min(block, size) if size else block for block, size in zip(blocks, full.shape[-3:], strict=True)]
    full = replace(full, chunk_shape=(*(1 for _ in full.axes[:-3]), *sides))
    if full.chunk_bytes > MAX_BLOCK_BYTES:
        raise ConfigError(f"N5 blocks of {sides} of {full.dtype} (z, y, x) are larger than {MAX_BLOCK_BYTES} bytes")
    if has_too_many(options.layout, full.axes, full.shape):
        raise ConfigError(f"{too_many_text(options.layout)} ({', '.join(full.axes)}: {full.shape})")
    levels = [full]
    while _needs_another(levels[-1], len(levels), options):
        factors = _next_factors(levels[-1], options)
        if factors == levels[-1].factors:
            break
        levels.append(full.reduced(factors))
    return tuple(levels)


def _ordered(array: ArraySpec) -> ArraySpec:
    """The same array with its axes in our order; z added where there is none."""
    if not {"y", "x"} <= set(array.axes) or len(set(array.axes)) < len(array.axes):
        raise ConfigError(f"N5 needs an array with axes y and x, each once, not {array.axes}")
    others = [name for name in array.axes if name not in (*SPATIAL, COMPONENT)]
    names = (*others, *((COMPONENT,) if COMPONENT in array.axes else ()), *SPATIAL)
    return array.ordered(names)


def _default_blocks(full: ArraySpec) -> tuple[int, int, int]:
    depth = min(_Z_EXTENT, full.shape[-3] or _Z_EXTENT)
    side = _SIDE if depth > 1 else _SIDE_OF_PLANES
    return depth, side, side


def _needs_another(last: ArraySpec, count: int, options: N5Options) -> bool:
    if options.levels is not None:
        return count < options.levels
    sides = zip(last.shape[-2:], last.chunk_shape[-2:], strict=True)
    return count < MAX_LEVELS and any(size > block for size, block in sides)


def _next_factors(last: ArraySpec, options: N5Options) -> tuple[int, ...]:
    """Twice those of the last level along the axes with the smallest items: anisotropic ones become isotropic."""
    halved = [last.shape[-2] > 1, last.shape[-1] > 1]
    finest = min(last.scale[-2:])
    halve_z = options.downsample == "xyz" and last.shape[-3] != 1 and last.scale[-3] < 2 * finest
    steps = (*(1 for _ in last.axes[:-3]), 2 if halve_z else 1, *(2 if possible else 1 for possible in halved))
    return tuple(factor * step for factor, step in zip(last.factors, steps, strict=True))
