"""Writes an array as TIFF: an OME-TIFF, or an ordinary stack.

An OME-TIFF is a BigTIFF of tiled pages, with lower levels in SubIFDs. Sources: TIFF 6.0, "Tiled Images"; BigTIFF; Adobe
TIFF Tech Note 1 (SubIFDs); OME-TIFF specification. tifffile lays out the file; tiles are encoded here, with the codecs
of our own formats.

An ordinary stack is an ImageJ hyperstack where that fits, else pages that name their frame. Sources: TIFF 6.0; ImageJ's
description ("ImageJ=", "hyperstack=true") and its metadata tags 50838 and 50839, as tifffile writes them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from acqstream import __version__
from acqstream.arrays.level_layout import LevelAxis
from acqstream.codecs import gzip
from acqstream.codecs.streams import encode_zstd
from acqstream.dataset.level_array import LevelArray
from acqstream.export.ome_images import ImageGrid, OmeImage, OmePixels, ome_xml
from acqstream.export.plane_levels import PlaneLevels
from acqstream.storage.files.new_file import NewFile

TileCompression = Literal["none", "zlib", "zstd"]
_TAGS = {"none": 1, "zlib": 8, "zstd": 50000}  # values of the tag Compression
TILE_UNIT = 16  # TIFF 6.0: sides of tiles are multiples of it


@dataclass(frozen=True, slots=True)
class TileEncoder:
    """tile is the longest side of a tile, a multiple of 16."""

    compression: TileCompression = "none"
    tile: int = 512

    def sides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Sides (y, x) of the tiles of a picture: small pictures have smaller ones."""
        height, width = (min(self.tile, -(-side // TILE_UNIT) * TILE_UNIT) for side in shape[:2])
        return height, width

    def encode(self, tile: NDArray[np.generic]) -> bytes:
        """The bytes of a tile: its pixels in C order, little endian, compressed."""
        data = np.ascontiguousarray(tile, tile.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
        if self.compression == "zlib":
            return gzip.encode(data, zlib=True)
        if self.compression == "zstd":
            return encode_zstd(data)
        return bytes(data)


def write_ome_tiff(
    file: NewFile,
    grid: ImageGrid,
    levels: PlaneLevels,
    images: list[OmeImage],
    pixels: OmePixels,
    *,
    tiles: TileEncoder,
    on_progress: Callable[[int, int], None],
) -> None:
    """Write the pages of all images with their levels, each once. Raises UnsupportedFeature."""
    import tifffile  # slow to import, and of no use to other verbs

    description: bytes | None = ome_xml(images, pixels, f"acqstream {__version__}")
    shapes = levels.shapes
    total, done, n_pages = len(images) * pixels.plane_count, 0, 0
    dtype = levels.full.dtype.newbyteorder("<")
    photometric = "rgb" if len(shapes[0]) > 2 else "minisblack"
    with tifffile.TiffWriter(cast("IO[bytes]", file), bigtiff=True, byteorder="<") as writer:
        for at, image in zip(grid.images(), images, strict=True):
            for page, position in zip(image.pages, grid.planes(at), strict=True):
                for number, shape in enumerate(shapes if page == n_pages else ()):
                    writer.write(
                        _tiles(levels, position, number, tiles),
                        shape=shape,
                        dtype=dtype,
                        photometric=photometric,
                        planarconfig="contig" if len(shape) > 2 else None,
                        tile=tiles.sides(shape),
                        compression=_TAGS[tiles.compression],
                        subifds=len(shapes) - 1 if not number else None,
                        subfiletype=1 if number else 0,
                        description=description if not number else None,
                        resolution=_resolution(pixels.steps, _CENTIMETRE_UM / 2**number),
                        resolutionunit="CENTIMETER",
                        software="acqstream" if not number else None,
                        metadata=None,
                        contiguous=False,
                    )
                n_pages, done = max(n_pages, page + 1), done + 1
                description = None
                on_progress(done, total)


def _tiles(levels: PlaneLevels, position: tuple[int, ...], level: int, tiles: TileEncoder) -> Iterator[bytes]:
    """The encoded tiles of a plane, row by row; what lies beyond its edges is 0."""
    shape = levels.shapes[level]
    height, width = tiles.sides(shape)
    for band in levels.bands(position, level, height):
        for left in range(0, shape[1], width):
            part = band[:, left : left + width]
            if part.shape[:2] != (height, width):
                tile = np.zeros((height, width, *shape[2:]), part.dtype)
                tile[: part.shape[0], : part.shape[1]] = part
                part = tile
            yield tiles.encode(part)


MAX_CLASSIC_BYTES = 2**32 - 32 * 2**20
"""Of pixels in a TIFF with 32-bit offsets: the remainder is for page directories and metadata."""

_IMAGEJ_ORDER = "TZC"
_IMAGEJ_TYPES = frozenset({"uint8", "uint16", "float32"})
_CENTIMETRE_UM = 1e4
_PAGE_BYTES = 1024  # of a page directory with its values
Progress = Callable[[int, int], None]


def is_hyperstack(array: LevelArray, grid: ImageGrid) -> bool:
    """True if ImageJ can have the array: its types, no axis beside time, channel and z, and less than 4 GiB."""
    is_rgb = len(array.layout.pixels) > 2
    has_type = array.dtype.name in _IMAGEJ_TYPES and (not is_rgb or array.dtype.name == "uint8")
    n_images = math.prod(len(axis.values) for axis in grid.image_axes)
    return has_type and n_images == 1 and not is_large(array)


def is_large(array: LevelArray) -> bool:
    """True if the pages need the 64-bit offsets of BigTIFF."""
    pages = math.prod(array.shape[: len(array.outer)])
    return array.size * array.dtype.itemsize + pages * _PAGE_BYTES > MAX_CLASSIC_BYTES


def write_plain_tiff(
    file: NewFile, array: LevelArray, grid: ImageGrid, steps: Mapping[str, tuple[float, str]], on_progress: Progress
) -> None:
    """Write every plane as a page. steps: (distance, unit) along "X", "Y", "Z" and "T" where they are known."""
    if is_hyperstack(array, grid):
        _write_hyperstack(file, array, grid, steps, on_progress)
    else:
        _write_pages(file, array, grid, steps, on_progress)


def _write_hyperstack(
    file: NewFile, array: LevelArray, grid: ImageGrid, steps: Mapping[str, tuple[float, str]], on_progress: Progress
) -> None:
    import tifffile

    image = tuple(0 for _ in grid.image_axes)
    positions = list(grid.planes(image, _IMAGEJ_ORDER))
    sizes = tuple(grid.size(role) for role in _IMAGEJ_ORDER)
    plane = array.shape[len(array.outer) :]
    metadata: dict[str, Any] = {
        "axes": _IMAGEJ_ORDER + "YXS"[: len(plane)],
        "Labels": [_label(array.outer, position) for position in positions],
    }
    if sizes[2] > 1:
        metadata["mode"] = "composite"
    if steps.get("X", (0.0, ""))[1] == "um":
        metadata["unit"] = "um"
    if steps.get("Z", (0.0, ""))[1] == "um":
        metadata["spacing"] = steps["Z"][0]
    if steps.get("T", (0.0, ""))[1] == "s":
        metadata["finterval"] = steps["T"][0]
    with tifffile.TiffWriter(cast("IO[bytes]", file), imagej=True, byteorder="<") as writer:
        writer.write(
            _pages(array, positions, on_progress),
            shape=(*sizes, *plane),
            dtype=array.dtype.newbyteorder("<"),
            photometric="rgb" if len(plane) > 2 else "minisblack",
            resolution=_resolution(steps),
            metadata=metadata,
        )


def _write_pages(
    file: NewFile, array: LevelArray, grid: ImageGrid, steps: Mapping[str, tuple[float, str]], on_progress: Progress
) -> None:
    import tifffile

    plane = array.shape[len(array.outer) :]
    positions = list(itertools.chain.from_iterable(grid.planes(image) for image in grid.images()))
    with tifffile.TiffWriter(cast("IO[bytes]", file), bigtiff=is_large(array), byteorder="<") as writer:
        for position, page in zip(positions, _pages(array, positions, on_progress), strict=True):
            key = {axis.name: axis.values[at] for axis, at in zip(array.outer, position, strict=True)}
            writer.write(
                page,
                dtype=array.dtype.newbyteorder("<"),
                photometric="rgb" if len(plane) > 2 else "minisblack",
                description=json.dumps(key, ensure_ascii=True),
                resolution=_resolution(steps, _CENTIMETRE_UM),
                resolutionunit="CENTIMETER",
                software="acqstream",
                metadata=None,
                contiguous=False,
            )


def _pages(array: LevelArray, positions: list[tuple[int, ...]], on_progress: Progress) -> Iterator[NDArray[np.generic]]:
    for number, position in enumerate(positions):
        yield array[position]
        on_progress(number + 1, len(positions))


def _label(outer: tuple[LevelAxis, ...], position: tuple[int, ...]) -> str:
    return " ".join(f"{axis.name}={axis.values[at]}" for axis, at in zip(outer, position, strict=True))


def _resolution(steps: Mapping[str, tuple[float, str]], length_um: float = 1.0) -> tuple[float, float] | None:
    """Pixels (x, y) in a length, for readers that know no OME-XML; None if unknown. ImageJ knows that they are um."""
    (x_um, x_unit), (y_um, y_unit) = (steps.get(role, (0.0, "")) for role in "XY")
    is_known = x_unit == y_unit == "um" and x_um > 0 and y_um > 0
    return (length_um / x_um, length_um / y_um) if is_known else None
