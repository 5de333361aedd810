"""Paths of cube files in a folder of cubes: `z<k>/y<j>/x<i>.wkw`, and `header.wkw` for all of them.

Source: webknossos-wrap, format description version 1. Cube (k, j, i) covers x from i times the side of a cube on, and
so on; a cube that holds nothing need not be there.
"""

from __future__ import annotations

import re

Cube = tuple[int, int, int]
"""(z, y, x) number of a cube file along each axis."""

_NUMBER = "(0|[1-9][0-9]{0,9})"
Z_NAME = re.compile(f"z{_NUMBER}")
Y_NAME = re.compile(f"y{_NUMBER}")
X_NAME = re.compile(rf"x{_NUMBER}\.wkw")


def cube_path(cube: Cube) -> str:
    """Path of the file below its folder."""
    z, y, x = cube
    return f"z{z}/y{y}/x{x}.wkw"


def parse_cube_path(path: str) -> Cube | None:
    """The inverse of `cube_path`; None for any other path."""
    found = re.fullmatch(f"{Z_NAME.pattern}/{Y_NAME.pattern}/{X_NAME.pattern}", path)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))
