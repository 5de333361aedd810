"""Options of an OME-Zarr mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from acqstream.errors import ConfigError
from acqstream.formats.ome_zarr.compression import Compressor, parse_option

MAX_LEVELS = 16
DEFAULT_CHUNKS = (1, 512, 512)
DEFAULT_COMPRESSION = "blosc"
_KNOWN = ("compression", "chunks", "shards", "levels", "plate")
_MAX_CHUNK_ITEMS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class OmeZarrOptions:
    """chunks: extents (z, y, x) of a chunk, the unit that viewers read. is_sharded: many chunks in one file.

    levels: number of resolution levels; None: until a plane is one chunk. is_plate: positions are fields of the wells
    that their names mean; False: never.
    """

    compression: Compressor
    chunks: tuple[int, int, int] = DEFAULT_CHUNKS
    is_sharded: bool = True
    levels: int | None = None
    is_plate: bool = True

    @property
    def is_raw(self) -> bool:
        """True without a compressor."""
        return self.compression.name == "none"

    @property
    def compressors(self) -> tuple[Compressor, ...]:
        """The compressors of a chunk."""
        return () if self.is_raw else (self.compression,)

    def resumed(self, existing: OmeZarrOptions) -> OmeZarrOptions:
        """These options with the compression of an existing container, unless the user named another one."""
        return replace(self, compression=self.compression.resumed(existing.compression))

    def to_json(self) -> dict[str, Any]:
        """The options in our note."""
        return {
            "compression": self.compression.option(),
            "chunks": [*self.chunks],
            "shards": self.is_sharded,
            "levels": "auto" if self.levels is None else self.levels,
            "plate": self.is_plate,
        }


def parse_options(given: Mapping[str, object]) -> OmeZarrOptions:
    """From what a user wrote, e.g. {"compression": "zstd", "chunks": [1, 256, 256], "shards": false, "levels": 1}.

    Raises ConfigError naming the option and what was expected.
    """
    for name in given:
        if name not in _KNOWN:
            raise ConfigError(f"OME-Zarr has no option {name!r}, only {', '.join(_KNOWN)}")
    return OmeZarrOptions(
        compression=parse_option(given.get("compression", DEFAULT_COMPRESSION)),
        chunks=_chunks(given.get("chunks", "auto")),
        is_sharded=_flag(given, "shards"),
        levels=_levels(given.get("levels", "auto")),
        is_plate=_flag(given, "plate"),
    )


def _flag(given: Mapping[str, object], name: str) -> bool:
    """An option that is true unless it is turned off."""
    value = given.get(name, True)
    if not isinstance(value, bool):
        raise ConfigError(f"OME-Zarr {name} is {value!r:.80}, expected true or false")
    return value


def _chunks(given: object) -> tuple[int, int, int]:
    if given == "auto":
        return DEFAULT_CHUNKS
    if isinstance(given, list | tuple) and len(given) == 3 and all(type(size) is int and size > 0 for size in given):
        z, y, x = given
        if z * y * x <= _MAX_CHUNK_ITEMS:
            return z, y, x
    expected = f'"auto" or three positive integers, the extents in z, y, x, of at most {_MAX_CHUNK_ITEMS} items'
    raise ConfigError(f"OME-Zarr chunks are {given!r:.80}, expected {expected}")


def _levels(given: object) -> int | None:
    if given == "auto":
        return None
    if type(given) is int and 0 < given <= MAX_LEVELS:
        return given
    raise ConfigError(f'OME-Zarr levels are {given!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')
