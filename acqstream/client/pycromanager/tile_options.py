"""Converts options of Pycro-Manager's tiled acquisitions to those of `acqstream.create`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.errors import ConfigError

_FREE = -1  # of max_multi_res_index: as many levels as are needed


def with_tiles(options: Mapping[str, Any]) -> dict[str, Any]:
    """options without tile_overlap (pixels; a number or (x, y)) and max_multi_res_index, which become tiles and levels.

    Source: `pycromanager.XYTiledAcquisition`. Raises ConfigError for invalid overlaps, or for options given twice.
    """
    plain = dict(options)
    overlap, max_index = plain.pop("tile_overlap", None), plain.pop("max_multi_res_index", None)
    if overlap is None:
        if max_index is not None:
            raise ConfigError("max_multi_res_index is for tiles: pass tile_overlap too")
        return plain
    if "tiles" in plain or "levels" in plain:
        raise ConfigError("pass either tile_overlap and max_multi_res_index, or tiles and levels")
    both = overlap if isinstance(overlap, tuple | list) else (overlap, overlap)
    if len(both) != 2:
        raise ConfigError(f"tile_overlap={overlap!r:.60} must be pixels, or (x, y) in pixels")
    plain["tiles"] = {"overlap": (both[1], both[0])}
    if max_index is not None and max_index != _FREE:
        plain["levels"] = max_index
    return plain
