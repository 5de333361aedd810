"""Options of an HSDS mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from acqstream.errors import ConfigError

Pixels = Literal["reference", "copy"]
Compression = Literal["lz4", "zstd", "zlib", "none"]

PIXELS: tuple[Pixels, ...] = get_args(Pixels)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
MAX_LEVELS = 16
DEFAULT_COMPRESSION: Compression = "lz4"
_MAX_CHUNK_ITEMS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class HsdsOptions:
    """pixels: "copy" stores chunks of the array; "reference" refers to those in the stacks.

    compression: "lz4" and "zstd" are blosc-1 with byte shuffle, "zlib" is deflate after the shuffle of HDF5. chunks:
    extents (z, y, x); None: a frame, or several small ones. levels: number of resolution levels; None: until a plane
    fits into 512 x 512.
    """

    pixels: Pixels = "reference"
    compression: Compression = DEFAULT_COMPRESSION
    chunks: tuple[int, int, int] | None = None
    levels: int | None = None


def parse_options(given: Mapping[str, object]) -> HsdsOptions:
    """From what a user wrote, e.g. {"pixels": "copy", "compression": "zlib", "chunks": [1, 512, 512], "levels": 3}.

    The other options need pixels of their own: with one of them "copy" is the default.

    Raises ConfigError naming the option and what was expected.
    """
    known = ("pixels", "compression", "chunks", "levels")
    for name in given:
        if name not in known:
            raise ConfigError(f"HSDS has no option {name!r}, only {', '.join(known)}")
    others = [name for name in known[1:] if name in given]
    pixels = given.get("pixels", "copy" if others else "reference")
    compression = given.get("compression", DEFAULT_COMPRESSION)
    if pixels not in PIXELS:
        raise ConfigError(f"HSDS pixels are {pixels!r:.80}, expected one of {', '.join(PIXELS)}")
    if pixels == "reference" and others:
        raise ConfigError(f'HSDS {others[0]} needs chunks of its own: expected pixels "copy", found "reference"')
    if compression not in COMPRESSIONS:
        raise ConfigError(f"HSDS compression is {compression!r:.80}, expected one of {', '.join(COMPRESSIONS)}")
    return HsdsOptions(
        pixels=pixels,
        compression=compression,
        chunks=_chunks(given.get("chunks", "auto")),
        levels=_levels(given.get("levels", "auto")),
    )


def _chunks(given: object) -> tuple[int, int, int] | None:
    if given == "auto":
        return None
    if isinstance(given, list | tuple) and len(given) == 3 and all(type(size) is int and size > 0 for size in given):
        z, y, x = given
        if z * y * x <= _MAX_CHUNK_ITEMS:
            return z, y, x
    expected = f'"auto" or three positive integers, the extents in z, y, x, of at most {_MAX_CHUNK_ITEMS} items'
    raise ConfigError(f"HSDS chunks are {given!r:.80}, expected {expected}")


def _levels(given: object) -> int | None:
    if given == "auto":
        return None
    if type(given) is int and 0 < given <= MAX_LEVELS:
        return given
    raise ConfigError(f'HSDS levels are {given!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')
