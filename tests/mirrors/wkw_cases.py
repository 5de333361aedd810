"""WKW mirrors as other software sees them: what `datasource-properties.json` announces, read by the wkw package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wkw
from numpy.typing import NDArray

from tests.mirrors.mirror_cases import halved


def announced(container: Path) -> Iterator[tuple[str, str, str, NDArray[Any]]]:
    """Folder of the dataset, layer, magnification and voxels (z, y, x), as far as the bounding box says."""
    for path in sorted(container.rglob("datasource-properties.json")):
        for layer in json.loads(path.read_text())["dataLayers"]:
            box = layer["boundingBox"]
            for entry in layer["mags"]:
                sides = (box["width"], box["height"], box["depth"])
                size = tuple(-(-side // step) for side, step in zip(sides, entry["mag"], strict=True))
                with wkw.Dataset.open(str(path.parent / entry["path"])) as cubes:
                    voxels = cubes.read((0, 0, 0), size)[0].transpose(2, 1, 0)
                yield path.parent.name, layer["name"], entry["path"].rpartition("/")[2], voxels


def check_announced(
    container: Path,
    right: NDArray[Any],
    channels: Sequence[str] = ("C0", "C1"),
    steps: Sequence[tuple[int, int, int]] = (),
    *,
    has_holes: bool = False,
) -> set[tuple[int, int, int]]:
    """Everything that is announced is equal to `right`, (time, channel, z, y, x), or a mean of it.

    steps, along z, y, x, lead from each level to the next. has_holes: planes may be zeros, in some blocks or in all;
    levels are not looked at then. Gives (time, channel, depth) of what was there.
    """
    found: set[tuple[int, int, int]] = set()
    names = ["1"]
    for level in range(len(steps)):
        z, y, x = np.prod(steps[: level + 1], axis=0)
        names.append(f"{x}-{y}-{z}")
    for dataset, layer, mag, voxels in announced(container):
        if has_holes and mag != "1":
            continue
        times = re.fullmatch("time([0-9]{4})", dataset)
        time, channel = int(times[1]) if times else 0, channels.index(layer)
        expected = right[time, channel]
        for step in steps[: names.index(mag)]:
            expected = halved(expected, step)
        depth, height, width = (min(pair) for pair in zip(voxels.shape, expected.shape, strict=True))
        if has_holes:
            expected = np.where(_is_there(voxels)[:depth, :height, :width], expected[:depth], 0)
        assert np.array_equal(voxels[:depth, :height, :width], expected[:depth]), (dataset, layer, mag)
        rest = voxels.copy()
        rest[:depth, :height, :width] = 0
        assert not rest.any()
        if mag == "1":
            found.add((time, channel, depth))
    return found


def _is_there(voxels: NDArray[Any]) -> NDArray[np.bool_]:
    """For each item whether the plane of its block holds anything."""
    _, height, width = voxels.shape
    padded = np.pad(voxels, ((0, 0), (0, -height % 32), (0, -width % 32)))
    planes = padded.reshape(len(voxels), padded.shape[1] // 32, 32, padded.shape[2] // 32, 32).any(axis=(2, 4))
    there: NDArray[np.bool_] = planes.repeat(32, axis=1).repeat(32, axis=2)
    return there
