"""Writes an array as an OME-TIFF: a BigTIFF of tiled pages, with lower levels in SubIFDs.

Sources: TIFF 6.0, "Tiled Images"; BigTIFF; Adobe TIFF Tech Note 1 (SubIFDs); OME-TIFF specification. tifffile lays out
the file; tiles are encoded here, with the codecs of our own formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from acqstream import __version__
from acqstream.codecs import gzip
from acqstream.codecs.streams import encode_zstd
from acqstream.export.ome_images import ImageGrid, OmeImage, OmePixels, ome_xml
from acqstream.export.plane_levels import PlaneLevels
from acqstream.storage.files.new_file import NewFile

TileCompression = Literal["none", "zlib", "zstd"]
_TAGS = {"none": 1, "zlib": 8, "zstd": 50000}  # values of the tag Compression
TILE_UNIT = 16  # sides of tiles are multiples of it


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
                        resolution=_resolution(pixels, 2**number),
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


def _resolution(pixels: OmePixels, factor: int) -> tuple[float, float] | None:
    """Pixels per centimetre (x, y), for readers that know no OME-XML; None if unknown."""
    sizes = [pixels.steps.get(role, (0.0, "")) for role in "XY"]
    if any(unit != "um" or step <= 0 for step, unit in sizes):
        return None
    return 1e4 / (sizes[0][0] * factor), 1e4 / (sizes[1][0] * factor)
