"""The options of a WKW mirror, as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from acqstream.formats.array_options import OptionReader
from acqstream.formats.wkw.header import MAX_SIDE, BlockType
from acqstream.formats.wkw.magnification import is_power_of_two

BLOCK_SIDE = 32  # what webKNOSSOS streams; it shows no other
Downsample = Literal["xyz", "xy"]

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
    downsample: Downsample = "xyz"


def parse_options(given: Mapping[str, object]) -> WkwOptions:
    """From what a user wrote, e.g. {"compression": "lz4", "cube": 256, "levels": 1, "downsample": "xy"}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("WKW", given, ("compression", "cube", "levels", "downsample"))
    block_type = _BLOCK_TYPES[options.choice("compression", tuple(_BLOCK_TYPES))]
    cube, largest = given.get("cube", BLOCK_SIDE), BLOCK_SIDE * MAX_SIDE
    if type(cube) is not int or not is_power_of_two(cube) or not BLOCK_SIDE <= cube <= largest:
        raise options.wrong("cube", f"a power of two from {BLOCK_SIDE} to {largest} voxels")
    return WkwOptions(
        block_type,
        cube if "cube" in given else _CUBE_SIDES[block_type],
        options.levels(),
        options.choice("downsample", get_args(Downsample)),
    )
