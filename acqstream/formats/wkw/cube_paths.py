"""Where cube files lie in a folder of cubes: `z<k>/y<j>/x<i>.wkw`, and `header.wkw` for all of them.

Source: fact sheet section 1. Cube (k, j, i) covers x from i times the side of a cube on, and so on; a cube that holds
nothing need not be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from acqstream.errors import StorageError

Cube = tuple[int, int, int]
"""(z, y, x) number of a cube file along each axis."""

_NUMBER = "(0|[1-9][0-9]{0,9})"
_Z = re.compile(f"z{_NUMBER}")
_Y = re.compile(f"y{_NUMBER}")
_X = re.compile(rf"x{_NUMBER}\.wkw")


def cube_path(cube: Cube) -> str:
    """Of the file below its folder."""
    z, y, x = cube
    return f"z{z}/y{y}/x{x}.wkw"


def find_cubes(folder: Path) -> Iterator[Cube]:
    """The cube files of a folder; temporary files and whatever else lies there are passed over. In any order."""
    for z, z_folder in _numbered(folder, _Z):
        for y, y_folder in _numbered(z_folder, _Y):
            for x, _ in _numbered(y_folder, _X):
                yield z, y, x


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except NotADirectoryError:
        return
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error
    for name in names:
        if found := pattern.fullmatch(name):
            yield int(found[1]), folder / name
