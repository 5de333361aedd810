"""Cells under a microscope: they move, divide, lie at different depths, and look different in each channel.

The scene is an unbounded picture for each time, plane and channel, and every frame is a window of it, so stitching can
be proved. Each pixel follows from seed, axes and position, on every computer alike; so does the noise of the camera.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import AxisValue
from acqstream.simulate.axes_counter import AxesCounter
from acqstream.simulate.cells import HALF_PX, MAX_BLUR, Area, Stain, cells_near, sprite

_SEED = 5271
_OFFSET = 100  # counts of a camera without light
_BACKGROUND = {Stain.NUCLEI: 60, Stain.MEMBRANE: 90, Stain.GRANULES: 70, Stain.TRANSMITTED: 1500}
_GLOW = 80  # counts by which the background varies slowly
_GLOW_PERIODS_PX = 1531, 1277
_BAND_PX = 64
_FULL = 4095  # counts of the brightest pixel at 12 bits
_FIELD_PX = 1_000_003  # between positions
_RGB = Stain.GRANULES, Stain.MEMBRANE, Stain.NUCLEI
_STAINS = {
    Stain.TRANSMITTED: ("bright", "phase", "trans", "dic", "bf"),
    Stain.NUCLEI: ("dapi", "hoechst", "nuc", "h2b", "draq"),
    Stain.MEMBRANE: ("fitc", "gfp", "membrane", "actin", "488"),
    Stain.GRANULES: ("tritc", "rfp", "cy3", "mito", "mcherry", "561"),
}


@dataclass(frozen=True, slots=True)
class SceneIndex:
    """The picture that a frame is a window of. z: in planes; field: a part of the culture; number: of its noise."""

    time: int = 0
    z: int = 0
    stain: Stain | None = None
    field: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene whose cells are spread over `depth` planes."""

    depth: int = 1
    seed: int = _SEED

    def window(
        self, top: int, left: int, shape: tuple[int, ...], dtype: str, *, bits: int | None = None, index: SceneIndex
    ) -> NDArray[Any]:
        """Pixels [top, top + Y) x [left, left + X) of a picture, shape (Y, X) or (Y, X, 3), dtype "uint8" or "uint16".

        bits are the significant bits, default all; 16 bits are used to a quarter. RGB shows three stains.
        """
        left += index.field * _FIELD_PX
        out = np.empty(shape, dtype)
        if len(shape) == 3:
            for colour, stain in enumerate(_RGB[: shape[2]]):
                self._draw(out[:, :, colour], top, left, bits=bits, index=index, stains=(stain,))
        else:
            stains = (Stain.NUCLEI, Stain.MEMBRANE) if index.stain is None else (index.stain,)
            self._draw(out, top, left, bits=bits, index=index, stains=stains)
        return out

    def _draw(
        self, out: NDArray[Any], top: int, left: int, *, bits: int | None, index: SceneIndex, stains: tuple[Stain, ...]
    ) -> None:
        """Draw one picture into `out`, shape (Y, X)."""
        light = self._light(top, left, out.shape, index, stains)
        largest = 2 ** (bits or 8 * out.dtype.itemsize) - 1
        scale = np.float32(min(largest / _FULL, 4.0))
        picture = 4 * index.number + int(stains[0])  # each colour of a frame has noise of its own
        for first in range(0, len(out), _BAND_PX):  # small enough for the processor's cache
            counts = light[first : first + _BAND_PX].astype(np.float32)
            add_noise(counts, top + first, left, seed=self.seed, picture=picture)
            counts += np.float32(_OFFSET)
            counts *= scale
            np.rint(counts, out=counts)
            out[first : first + _BAND_PX] = np.clip(counts, 0, largest, out=counts)

    def _light(
        self, top: int, left: int, shape: tuple[int, ...], index: SceneIndex, stains: tuple[Stain, ...]
    ) -> NDArray[np.int32]:
        """Counts without noise and offset, shape (Y, X)."""
        height, width = shape
        light = _glow(top, left, height, width, sum(_BACKGROUND[stain] for stain in stains))
        area = Area(top - HALF_PX, left - HALF_PX, height + 2 * HALF_PX, width + 2 * HALF_PX)
        for cell in cells_near(self.seed, area, depth=self.depth, time=index.time):
            blur = min(MAX_BLUR, abs(20 * index.z - cell.z) // 10)
            y, x = cell.y - HALF_PX - top, cell.x - HALF_PX - left
            rows = slice(max(0, y), min(height, y + 2 * HALF_PX + 1))
            columns = slice(max(0, x), min(width, x + 2 * HALF_PX + 1))
            if rows.start >= rows.stop or columns.start >= columns.stop:
                continue
            for stain in stains:
                whole = sprite(stain, cell.size, cell.angle, cell.variant, blur, is_dividing=cell.is_dividing)
                part = whole[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
                light[rows, columns] += part if cell.share == 256 else part * cell.share // 256
        return light


@dataclass(frozen=True, slots=True)
class SceneCamera:
    """Frames of the scene for the axes that a camera counts through."""

    axes: AxesCounter

    @property
    def scene(self) -> Scene:
        sizes = {axis.name: axis.size for axis in self.axes.axes}
        return Scene(depth=sizes.get("z") or 1)

    def index(self, number: int) -> SceneIndex:
        """The picture of frame `number`. Axes but time, z and channel lead to other fields of the culture."""
        values = self.axes.at(number)
        field = 0
        for axis in self.axes.axes:
            if axis.name not in ("time", "z", "channel"):
                field = field * 101 + _index(values, axis.name, axis.labels)
        labels = next((axis.labels for axis in self.axes.axes if axis.name == "channel"), ())
        return SceneIndex(
            time=_index(values, "time"),
            z=_index(values, "z"),
            stain=_stain(values["channel"], _index(values, "channel", labels)) if "channel" in values else None,
            field=field,
            number=number,
        )

    def frame(self, number: int, shape: tuple[int, ...], dtype: str, bits: int | None = None) -> NDArray[Any]:
        """The image of frame `number`, as `Scene.window` at the origin."""
        return self.scene.window(0, 0, shape, dtype, bits=bits, index=self.index(number))


def _index(values: Mapping[str, AxisValue], name: str, labels: tuple[str, ...] = ()) -> int:
    """The index on an axis; 0 where the frame has no such axis. Names count in their order."""
    value = values.get(name, 0)
    if isinstance(value, int):
        return value
    return labels.index(value) if value in labels else 0


def _stain(name: AxisValue, index: int) -> Stain:
    """What a channel shows: by its name, else by its index."""
    text = str(name).lower()
    named = (stain for stain, words in _STAINS.items() if any(word in text for word in words))
    return next(named, Stain(index % len(Stain)))


def _glow(top: int, left: int, height: int, width: int, level: int) -> NDArray[np.int32]:
    """The background, slowly brighter and darker, shape (height, width)."""
    y, x = (
        np.abs(np.arange(first, first + size, dtype=np.int64) % (2 * period) - period) * _GLOW // period
        for first, size, period in ((top, height, _GLOW_PERIODS_PX[0]), (left, width, _GLOW_PERIODS_PX[1]))
    )
    light: NDArray[np.int32] = (level + y[:, np.newaxis] + x[np.newaxis, :]).astype(np.int32)
    return light


_SIDE_PX = 1024
_READ_NOISE = 4.0  # counts
_COUNTS_PER_ELECTRON = 2.0


def add_noise(counts: NDArray[np.float32], top: int, left: int, *, seed: int, picture: int) -> None:
    """Add noise to counts of shape (Y, X), whose first pixel is at (top, left) of its picture.

    A pixel of a picture has the same noise in every window. Pictures of other numbers have other noise.
    """
    table = _table(seed)
    # Another part of the table for each picture, with large odd steps: neighbours have nothing in common.
    first_row, first_column = top + 389 * picture, left + 661 * picture
    height, width = counts.shape
    strength = np.sqrt(np.maximum(counts, 0) * np.float32(_COUNTS_PER_ELECTRON) + np.float32(_READ_NOISE**2))
    row = 0
    while row < height:
        from_row = (first_row + row) % _SIDE_PX
        rows = min(_SIDE_PX - from_row, height - row)
        column = 0
        while column < width:
            from_column = (first_column + column) % _SIDE_PX
            columns = min(_SIDE_PX - from_column, width - column)
            part = slice(row, row + rows), slice(column, column + columns)
            strength[part] *= table[from_row : from_row + rows, from_column : from_column + columns]
            column += columns
        row += rows
    counts += strength


@lru_cache(maxsize=2)
def _table(seed: int) -> NDArray[np.float32]:
    """Values with mean 0 and standard deviation 1, shape (_SIDE_PX, _SIDE_PX): sums of eight random bytes."""
    raw = np.random.PCG64(seed).random_raw(_SIDE_PX * _SIDE_PX).astype("<u8", copy=False)
    sums = raw.view(np.uint8).reshape(_SIDE_PX, _SIDE_PX, 8).sum(axis=2, dtype=np.int32)
    spread = np.float32(math.sqrt(8 * (256 * 256 - 1) / 12))
    table: NDArray[np.float32] = (sums - 1020).astype(np.float32) / spread
    table.flags.writeable = False
    return table
