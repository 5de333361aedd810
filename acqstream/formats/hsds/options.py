"""Options of an HSDS mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from acqstream.errors import ConfigError
from acqstream.formats.array_options import OptionReader

Pixels = Literal["reference", "copy"]
Compression = Literal["lz4", "zstd", "zlib", "none"]

PIXELS: tuple[Pixels, ...] = get_args(Pixels)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
_MAX_CHUNK_ITEMS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class HsdsOptions:
    """pixels: "copy" stores chunks of the array; "reference" refers to those in the stacks.

    compression: "lz4" and "zstd" are blosc-1 with byte shuffle, "zlib" is deflate after the shuffle of HDF5. chunks:
    extents (z, y, x); None: a frame, or several small ones. levels: number of resolution levels; None: until a plane
    fits into 512 x 512.
    """

    pixels: Pixels = "reference"
    compression: Compression = "lz4"
    chunks: tuple[int, int, int] | None = None
    levels: int | None = None


def parse_options(given: Mapping[str, object]) -> HsdsOptions:
    """From what a user wrote, e.g. {"pixels": "copy", "compression": "zlib", "chunks": [1, 512, 512], "levels": 3}.

    The other options need pixels of their own: with one of them "copy" is the default.

    Raises ConfigError naming the option and what was expected.
    """
    names = ("pixels", "compression", "chunks", "levels")
    options = OptionReader("HSDS", given, names)
    others = [name for name in names[1:] if name in given]
    pixels = options.choice("pixels", PIXELS, "copy" if others else "reference", verb="are")
    if pixels == "reference" and others:
        raise ConfigError(f'HSDS {others[0]} needs chunks of its own: expected pixels "copy", found "reference"')
    return HsdsOptions(
        pixels=pixels,
        compression=options.choice("compression", COMPRESSIONS),
        chunks=options.chunks(max_items=_MAX_CHUNK_ITEMS),
        levels=options.levels(),
    )
