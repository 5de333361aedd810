"""The options of a WKW mirror, as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from acqstream.errors import ConfigError
from acqstream.formats.wkw.header import MAX_SIDE, BlockType
from acqstream.formats.wkw.magnification import is_power_of_two

BLOCK_SIDE = 32  # what webKNOSSOS streams; it shows no other
MAX_LEVELS = 16

_BLOCK_TYPES = {"raw": BlockType.RAW, "lz4": BlockType.LZ4, "lz4hc": BlockType.LZ4HC}
_CUBE_SIDES = {BlockType.RAW: 0, BlockType.LZ4: 128, BlockType.LZ4HC: 128}


@dataclass(frozen=True, slots=True)
class WkwOptions:
    """cube_side is in voxels; 0: it follows the volume. levels: how many, with the full resolution; None: as many as
    make sense. downsample: the axes along which lower levels are reduced; z only once its steps are not larger than
    those of the others.
    """

    block_type: BlockType = BlockType.RAW
    cube_side: int = _CUBE_SIDES[BlockType.RAW]
    levels: int | None = None
    downsample: Literal["xyz", "xy"] = "xyz"


def parse_options(given: Mapping[str, object]) -> WkwOptions:
    """From what a user wrote, e.g. {"compression": "lz4", "cube": 256, "levels": 1, "downsample": "xy"}.

    Raises ConfigError naming the option and what was expected.
    """
    known = ("compression", "cube", "levels", "downsample")
    for name in given:
        if name not in known:
            raise ConfigError(f"WKW has no option {name!r}, only {', '.join(known)}")
    compression = given.get("compression", "raw")
    if not isinstance(compression, str) or compression not in _BLOCK_TYPES:
        raise ConfigError(f"WKW compression is {compression!r:.80}, expected one of {', '.join(_BLOCK_TYPES)}")
    block_type = _BLOCK_TYPES[compression]
    largest = BLOCK_SIDE * MAX_SIDE
    cube = given.get("cube", BLOCK_SIDE)
    if type(cube) is not int or not is_power_of_two(cube) or not BLOCK_SIDE <= cube <= largest:
        raise ConfigError(f"WKW cube is {cube!r:.80}, expected a power of two from {BLOCK_SIDE} to {largest} voxels")
    levels = given.get("levels", "auto")
    if levels != "auto" and (type(levels) is not int or not 1 <= levels <= MAX_LEVELS):
        raise ConfigError(f'WKW levels are {levels!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')
    downsample = given.get("downsample", "xyz")
    if downsample not in {"xyz", "xy"}:
        raise ConfigError(f"WKW downsample is {downsample!r:.80}, expected one of xyz, xy")
    side = cube if "cube" in given else _CUBE_SIDES[block_type]
    return WkwOptions(block_type, side, levels if type(levels) is int else None, "xy" if downsample == "xy" else "xyz")
