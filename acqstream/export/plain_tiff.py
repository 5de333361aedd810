"""Writes an array as an ordinary TIFF stack: an ImageJ hyperstack where that fits, else pages that name their frame.

Sources: TIFF 6.0; ImageJ's description ("ImageJ=", "hyperstack=true") and its metadata tags 50838 and 50839, as
tifffile writes them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.level_layout import LevelAxis
from acqstream.dataset.level_array import LevelArray
from acqstream.export.ome_images import ImageGrid
from acqstream.storage.files.new_file import NewFile

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
                resolution=_resolution(steps, pixels_per=_CENTIMETRE_UM),
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


def _resolution(steps: Mapping[str, tuple[float, str]], pixels_per: float = 1.0) -> tuple[float, float] | None:
    """Pixels (x, y) per length in um; None if unknown. ImageJ takes the unit from its description."""
    (x_um, x_unit), (y_um, y_unit) = (steps.get(role, (0.0, "")) for role in "XY")
    is_known = x_unit == y_unit == "um" and x_um > 0 and y_um > 0
    return (pixels_per / x_um, pixels_per / y_um) if is_known else None
