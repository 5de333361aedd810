"""Names what to export, and reports what was exported. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from acqstream.errors import ConfigError
from acqstream.export.choice import Choice

Kind = Literal["hdf5", "ome-tiff", "tiff", "table"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIXES: Mapping[Kind, str] = {"hdf5": ".h5", "ome-tiff": ".ome.tif", "tiff": ".tif", "table": ".csv"}
COMPRESSIONS: Mapping[Kind, tuple[str, ...]] = {
    "hdf5": ("none", "zlib"),  # other filters are no part of HDF5 itself: most programs lack them
    "ome-tiff": ("none", "zlib", "zstd"),
    "tiff": ("none",),
    "table": ("none",),
}
_TILE_UNIT = 16  # TIFF 6.0: sides of tiles are multiples of it
_DEFAULT_TILE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """One export. choices are values of axes to take, by axis. Raises ConfigError for options that do not fit.

    is_copy: copy the pixels into an HDF5 file instead of referring to them. tile: longest side of tiles in pixels, of
    OME-TIFF. is_separate: each tile of a tiled dataset is an image; else they make up one picture. is_replaced: replace
    an existing file.
    """

    kind: Kind
    is_copy: bool = False
    choices: Mapping[str, Choice] = field(default_factory=dict)
    compression: str = "none"
    tile: int = _DEFAULT_TILE
    is_separate: bool = False
    is_replaced: bool = False

    def __post_init__(self) -> None:
        possible = COMPRESSIONS[self.kind]
        if self.compression not in possible:
            raise ConfigError(f"{self.kind} has no compression {self.compression!r}; it has {', '.join(possible)}")
        if self.is_copy and self.kind != "hdf5":
            has = "has no" if self.kind == "table" else "always copies"
            raise ConfigError(f"{self.kind} {has} pixels; --copy is for hdf5")
        if self.kind == "hdf5" and self.compression != "none" and not self.is_copy:
            raise ConfigError("referenced pixels stay as they are; compression of hdf5 needs --copy")
        if self.tile != _DEFAULT_TILE and self.kind != "ome-tiff":
            raise ConfigError(f"{self.kind} has no tiles; --tile is for ome-tiff")
        if self.tile < _TILE_UNIT or self.tile % _TILE_UNIT:
            raise ConfigError(f"the side of tiles must be a multiple of {_TILE_UNIT}, not {self.tile}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported. missing counts frames, tiles or chunks of the source that are not stored: they read as 0.

    levels are the shapes of a plane in each level. references counts the external datasets that point at the stacks,
    0 for a copy. notes are for the user.
    """

    path: str
    source: str
    kind: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    missing: int
    images: int = 1
    levels: tuple[tuple[int, ...], ...] = ()
    references: int = 0
    notes: tuple[str, ...] = ()
