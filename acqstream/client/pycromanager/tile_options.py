"""What Pycro-Manager's tiled acquisitions call their options, as `acqstream.create` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.errors import ConfigError

_FREE = -1  # of max_multi_res_index: as many levels as are needed


def with_tiles(options: Mapping[str, Any]) -> dict[str, Any]:
    """options without tile_overlap (pixels; a number or (x, y)) and max_multi_res_index, which become tiles and levels.

    Source: `pycromanager.XYTiledAcquisition`. Raises ConfigError for overlaps that are none, or given twice.
    """
    plain = dict(options)
    overlap, most = plain.pop("tile_overlap", None), plain.pop("max_multi_res_index", None)
    if overlap is None:
        if most is not None:
            raise ConfigError("max_multi_res_index is for tiles: pass tile_overlap too")
        return plain
    if "tiles" in plain or "levels" in plain:
        raise ConfigError("pass either tile_overlap and max_multi_res_index, or tiles and levels")
    both = overlap if isinstance(overlap, tuple | list) else (overlap, overlap)
    if len(both) != 2:
        raise ConfigError(f"tile_overlap={overlap!r:.60} must be pixels, or (x, y) in pixels")
    plain["tiles"] = {"overlap": (both[1], both[0])}
    if most is not None and most != _FREE:
        plain["levels"] = most
    return plain
