"""Magnifications: how many voxels of the full resolution a voxel of a level covers along x, y and z.

Source: datasets of webKNOSSOS. Powers of two, named "1", "2-2-1", "4-4-2"; no two of a layer have the same largest one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

Magnification = tuple[int, int, int]
"""(x, y, z), as webKNOSSOS writes it."""

FULL: Magnification = (1, 1, 1)
_NAME = re.compile(r"([1-9][0-9]{0,9})(?:-([1-9][0-9]{0,9})-([1-9][0-9]{0,9}))?")


def magnification_name(magnification: Magnification) -> str:
    """Name of its folder: one number where it is the same along all axes."""
    x, y, z = magnification
    return str(x) if x == y == z else f"{x}-{y}-{z}"


def folder_names(magnification: Magnification) -> tuple[str, ...]:
    """All names that its folder may have, the usual one first."""
    return tuple(dict.fromkeys((magnification_name(magnification), "-".join(map(str, magnification)))))


def parse_magnification(name: str) -> Magnification | None:
    """The magnification that a folder of this name holds; None if the name is not one."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    x, y, z = (int(part) if part else int(found[1]) for part in found.groups())
    return (x, y, z) if all(is_power_of_two(side) for side in (x, y, z)) else None


def is_power_of_two(number: int) -> bool:
    """True for 1, 2, 4, ..."""
    return number > 0 and not number & (number - 1)


def coarser(voxel_size: tuple[float, float, float] | None) -> Iterator[Magnification]:
    """Magnifications beyond the full one, each with twice the largest component of the one before, without end.

    voxel_size is (x, y, z) in one unit: the axes with the finest voxels are doubled until doubling all is the better
    match, as the webknossos library does. None, where it is not known: x and y only.
    """
    magnification = FULL
    while True:
        largest = max(magnification)
        magnification = _next(magnification, voxel_size)
        if max(magnification) > largest:
            yield magnification


def _next(magnification: Magnification, voxel_size: tuple[float, float, float] | None) -> Magnification:
    x, y, z = magnification
    if voxel_size is None:
        return 2 * x, 2 * y, z
    sizes = [step * size for step, size in zip(magnification, voxel_size, strict=True)]
    x_step, y_step, z_step = (2 if math.isclose(size, min(sizes), rel_tol=1e-6) else 1 for size in sizes)
    finest = [size * step for size, step in zip(sizes, (x_step, y_step, z_step), strict=True)]
    if max(sizes) / min(sizes) < max(finest) / min(finest):
        return 2 * x, 2 * y, 2 * z
    return x_step * x, y_step * y, z_step * z
