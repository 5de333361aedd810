"""Cuts the array of a mosaic whose size is not known yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import Plan

_TILES = 16  # per side: the number of levels is that of a picture of this size
_ENDLESS = 2**28  # items; more than any picture has


def plan_picture(found: ChunkFormat[Any], options: Any, spec: ArraySpec, tile: Sequence[int]) -> Plan:
    """Cut an array as its format does. tile: (y, x) in items, of the tiles that make up its picture; () for none.

    A size of 0 along y or x is not known yet. Then chunks are those of a picture without an end. There are as many
    levels as for 16 x 16 tiles, but an item of the last one covers no more than a tile, so that each level has an item
    as soon as there is a tile. Raises ConfigError.
    """
    sides = dict(zip(("y", "x"), tile, strict=False))
    unknown = {name: side for name, side in sides.items() if not spec.shape[spec.axes.index(name)]}
    if not unknown:
        return found.plan(spec, options)
    near = found.plan(_with_sizes(spec, {name: _TILES * side for name, side in unknown.items()}), options)
    endless = found.plan(_with_sizes(spec, dict.fromkeys(unknown, _ENDLESS)), options)
    levels = []
    for one, level in zip(near.levels, endless.levels, strict=False):
        factors = dict(zip(level.axes, level.factors, strict=True))
        if one.factors != level.factors or any(factors[name] > side for name, side in unknown.items()):
            break
        levels.append(_with_sizes(level, dict.fromkeys(unknown, 0)))
    return endless.with_levels(levels)


def _with_sizes(spec: ArraySpec, sizes: dict[str, int]) -> ArraySpec:
    shape = tuple(sizes.get(name, size) for name, size in zip(spec.axes, spec.shape, strict=True))
    return replace(spec, shape=shape)
