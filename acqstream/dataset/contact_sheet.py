"""A sheet of small pictures of a dataset, for a look without a viewer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.channel_looks import CHANNEL, contrast_of
from acqstream.dataset.level_array import LevelArray, view_of
from acqstream.dataset.optional import needed
from acqstream.errors import ConfigError, DatasetError
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    from PIL.Image import Image

    from acqstream.dataset.dataset import Dataset

MOST_PICTURES = 24
SIDE = 240
"""Longer side of a picture in pixels."""

_MOST_PIXELS = 1024  # taken along the longer side of a canvas
_COLUMNS = 6
_GAP, _LINE = 6, 14  # pixels between pictures, and of a line of text
_BACKGROUND, _INK = (24, 24, 24), (224, 224, 224)


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame, or all tiles of one place together; pixels (Y, X), or (Y, X, 3) for RGB."""

    key: Mapping[str, AxisValue]
    pixels: NDArray[Any]


def save_contact_sheet(dataset: Dataset, file: Path) -> int:
    """Write a PNG with up to MOST_PICTURES frames, evenly chosen in order of arrival; how many there are.

    The contrast is that of the channel, by what the pictures hold. Raises ConfigError without Pillow or if `file` is
    not called .png, DatasetError while there is no frame.
    """
    if file.suffix.lower() != ".png":
        raise ConfigError(f"{file}: a contact sheet is written to a file whose name ends in .png")
    image = needed("PIL.Image", "view")
    pictures = [_shrunk(image, picture) for picture in choose_pictures(dataset)]
    if not pictures:
        raise DatasetError(f"{dataset.path}: holds no frame yet, so there is nothing to see")
    limits: dict[AxisValue | None, list[tuple[float, float]]] = {}
    for picture in pictures:
        limits.setdefault(picture.key.get(CHANNEL), []).append(contrast_of(picture.pixels))
    shown = []
    for picture in pictures:
        lows, highs = zip(*limits[picture.key.get(CHANNEL)], strict=True)
        shown.append(Picture(picture.key, _as_grey(picture.pixels, min(lows), max(highs))))
    _sheet(image, f"{dataset.path.name}  {' x '.join(map(str, dataset.shape))}  {dataset.dtype}", shown).save(
        file, "PNG"
    )
    return len(shown)


def choose_pictures(dataset: Dataset) -> Iterator[Picture]:
    """Evenly chosen frames; of tiled datasets whole canvases, from the level that is large enough.

    Of a canvas that is far larger not all pixels are taken: without levels it may have any size.
    """
    if not dataset.levels[0].frame_count:
        return
    if dataset.levels[0].is_stitched:
        array = _small_array(dataset)
        values = array.view.values
        positions = itertools.product(*(range(len(some)) for some in values.values()))
        wanted = set(_evenly(math.prod(map(len, values.values()))))
        step = -(-max(array.view.window.size) // _MOST_PIXELS)
        thinned = (slice(None, None, step), slice(None, None, step))
        for number, position in enumerate(positions):
            if number in wanted:
                key = {name: values[name][i] for name, i in zip(values, position, strict=True)}
                yield Picture(key, array[(*position, *thinned)])
        return
    keys = dataset.keys()
    count = sum(1 for _ in keys)  # one at a time: a list of a million would take hundreds of megabytes
    wanted = set(_evenly(count))
    chosen = (key for number, key in enumerate(dataset.keys()) if number in wanted)
    for key in chosen:
        yield Picture(key, dataset.read_frame(key))


def _evenly(count: int) -> list[int]:
    """Up to MOST_PICTURES numbers below `count`, the first and the last among them."""
    return sorted({int(number) for number in np.linspace(0, count - 1, min(count, MOST_PICTURES)).round()})


def _small_array(dataset: Dataset) -> LevelArray:
    """What the full resolution shows, from the lowest level where it is not smaller than a picture."""
    full = view_of(dataset.levels[0])
    for number, level in reversed(list(enumerate(dataset.levels))):
        view = full.reduced(2**number)
        if max(view.window.size) >= SIDE and level.frame_count and level.axes == dataset.levels[0].axes:
            return LevelArray(level, view)
    return LevelArray(dataset.levels[0], full)


def _shrunk(image: Any, picture: Picture) -> Picture:
    """The picture with means over the pixels that become one; small ones stay as they are."""
    height, width = picture.pixels.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    pixels = picture.pixels if picture.pixels.ndim == 3 else picture.pixels.astype(np.float32)
    return Picture(picture.key, np.asarray(image.fromarray(pixels).resize(size, image.Resampling.BOX)))


def _as_grey(pixels: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """8 bits per component; RGB is taken as it is."""
    if pixels.ndim == 3:
        return pixels.astype(np.uint8)
    scaled = (pixels.astype(np.float64) - low) * (255 / (high - low))
    return scaled.clip(0, 255).astype(np.uint8)


def _sheet(image: Any, title: str, pictures: Sequence[Picture]) -> Image:
    from PIL import ImageDraw

    columns = min(_COLUMNS, len(pictures))
    lines = max(len(picture.key) for picture in pictures)
    width = max(picture.pixels.shape[1] for picture in pictures)
    width = max(width, SIDE // 2)  # room for the text
    height = max(picture.pixels.shape[0] for picture in pictures) + lines * _LINE + _GAP
    rows = -(-len(pictures) // columns)
    size = (columns * (width + _GAP) + _GAP, rows * (height + _GAP) + _LINE + 2 * _GAP)
    sheet: Image = image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, _GAP), _printable(title), fill=_INK)
    for picture, (row, column) in zip(pictures, itertools.product(range(rows), range(columns)), strict=False):
        x, y = _GAP + column * (width + _GAP), _LINE + 2 * _GAP + row * (height + _GAP)
        sheet.paste(image.fromarray(picture.pixels), (x, y))
        text = "\n".join(f"{name} {value}" for name, value in picture.key.items())
        draw.multiline_text((x, y + picture.pixels.shape[0] + 2), _printable(text), fill=_INK, spacing=2)
    return sheet


def _printable(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")  # what the font without a file holds
