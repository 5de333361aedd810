"""Options of an OME-Zarr mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from acqstream.formats.array_options import OptionReader
from acqstream.formats.compression import ZARR_COMPRESSION, Compressor

DEFAULT_CHUNKS = (1, 512, 512)
DEFAULT_COMPRESSION = "blosc"
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
            "compression": self.compression.to_json(),
            "chunks": [*self.chunks],
            "shards": self.is_sharded,
            "levels": "auto" if self.levels is None else self.levels,
            "plate": self.is_plate,
        }


def parse_options(given: Mapping[str, object]) -> OmeZarrOptions:
    """From what a user wrote, e.g. {"compression": "zstd", "chunks": [1, 256, 256], "shards": false, "levels": 1}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("OME-Zarr", given, ("compression", "chunks", "shards", "levels", "plate"))
    return OmeZarrOptions(
        compression=ZARR_COMPRESSION.parse(given.get("compression", DEFAULT_COMPRESSION)),
        chunks=options.chunks(max_items=_MAX_CHUNK_ITEMS) or DEFAULT_CHUNKS,
        is_sharded=options.flag("shards"),
        levels=options.levels(),
        is_plate=options.flag("plate"),
    )
