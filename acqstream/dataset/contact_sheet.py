"""A sheet of small pictures of a dataset, for a look without a viewer."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.chunk_source import position_at
from acqstream.dataset.dataset import Dataset, small_array
from acqstream.dataset.level_array import import_optional
from acqstream.description.channels import CHANNEL, ChannelLook, contrast_of
from acqstream.errors import ConfigError, DatasetError, UnsupportedFeature
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PICTURES = 24
SIDE = 240
"""Longer side of a picture in pixels."""

_MAX_PIXELS = 1024  # taken along the longer side of a canvas
_COLUMNS = 6
_GAP, _LINE = 6, 14  # pixels between pictures, and of a line of text
_BACKGROUND, _INK = (24, 24, 24), (224, 224, 224)


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame, or all tiles of one place together; pixels (Y, X), or (Y, X, 3) for RGB.

    bar: pixels of the scale bar, 0 without one; bar_text: its length.
    """

    key: Mapping[str, AxisValue]
    pixels: NDArray[Any]
    bar: int = 0
    bar_text: str = ""


def save_contact_sheet(dataset: Dataset, file: Path) -> int:
    """Write a PNG with up to MAX_PICTURES frames and their scale bars, and return their number.

    Frames are chosen evenly in order of arrival, as many of each channel; a bar needs a known size of a pixel. Colours
    and contrast are those of the channels; where no contrast is known, it is that of the pictures. Raises ConfigError
    without Pillow or if `file` is not called .png, DatasetError before the first frame.
    """
    if file.suffix.lower() != ".png":
        raise ConfigError(f"{file}: a contact sheet is written to a file whose name ends in .png")
    image = import_optional("PIL.Image", "view")
    pictures = [_shrunk(image, picture, _field_um(dataset, picture)) for picture in choose_pictures(dataset)]
    if not pictures:
        raise DatasetError(f"{dataset.path}: holds no frame yet, so there is nothing to see")
    looks, shown = dataset.channel_looks(), []
    for picture in pictures:
        channel = picture.key.get(CHANNEL)
        look = looks.get(channel, ChannelLook("", "#ffffff"))  # of a frame without one
        own = (one.pixels.reshape(-1) for one in pictures if one.key.get(CHANNEL) == channel)
        low, high = look.limits or contrast_of(np.concatenate([*own]))
        shown.append(replace(picture, pixels=_in_colour(picture.pixels, low, high, look.color)))
    _sheet(image, f"{dataset.path.name}  {' x '.join(map(str, dataset.shape))}  {dataset.dtype}", shown).save(
        file, "PNG"
    )
    return len(shown)


def choose_pictures(dataset: Dataset) -> Iterator[Picture]:
    """Evenly chosen frames; for tiled datasets and arrays complete pictures, from the smallest level that suffices.

    A far larger picture is thinned out: without levels it may have any size.
    """
    if not dataset.levels[0].item_count:
        return
    if not dataset.has_frames or dataset.levels[0].is_stitched:
        yield from _pictures_of_level(dataset)
        return
    # One key at a time: a list of a million would take hundreds of megabytes.
    counts = Counter(key.get(CHANNEL) for key in dataset.keys())  # noqa: SIM118 - no mapping
    channels = [[*counts][number] for number in _evenly(len(counts), MAX_PICTURES)]
    numbers = {channel: set(_evenly(counts[channel], MAX_PICTURES // len(channels))) for channel in channels}
    passed = Counter[AxisValue | None]()
    for key in dataset.keys():  # noqa: SIM118 - no mapping
        channel = key.get(CHANNEL)
        if passed[channel] in numbers.get(channel, ()):
            yield Picture(key, dataset.read_frame(key))
        passed[channel] += 1


def _pictures_of_level(dataset: Dataset) -> Iterator[Picture]:
    """Complete pictures. Raises UnsupportedFeature for an array whose last axes are not y and x."""
    array = small_array(dataset, {}, SIDE)
    if not array.layout.pixels:
        raise UnsupportedFeature(f"{dataset.path}: has the axes {', '.join(array.axes)}; a picture needs y and x last")
    values = array.values
    step = -(-max(len(axis.values) for axis in array.layout.pixels[:2]) // _MAX_PIXELS)
    thinned = (slice(None, None, step), slice(None, None, step))
    shape = [len(places) for name, places in values.items() if name != CHANNEL]
    channels = _evenly(len(values.get(CHANNEL, (0,))), MAX_PICTURES)
    chosen = [position_at(number, shape) for number in _evenly(math.prod(shape), MAX_PICTURES // len(channels))]
    if CHANNEL in values:
        at = [*values].index(CHANNEL)
        chosen = sorted((*one[:at], channel, *one[at:]) for one in chosen for channel in channels)
    for position in chosen:
        key = {name: places[at] for (name, places), at in zip(values.items(), position, strict=True)}
        yield Picture(key, array[(*position, *thinned)])


def _evenly(count: int, max_count: int) -> list[int]:
    """Up to max_count numbers below `count`, the first and the last among them."""
    n_pictures = min(count, max_count)
    return [round(number * (count - 1) / max(n_pictures - 1, 1)) for number in range(n_pictures)]


def _field_um(dataset: Dataset, picture: Picture) -> float:
    """The width of a picture in micrometres; 0 if that is not known."""
    full = dataset.levels[0]
    is_frame = dataset.has_frames and not full.is_stitched
    width = picture.pixels.shape[1] if is_frame else full.shape[full.axes.index("x")]
    return width * (full.pixel_size_um or 0.0)


def _shrunk(image: Any, picture: Picture, field_um: float = 0.0) -> Picture:
    """The picture with means over the pixels that become one, and a scale bar; small ones stay as they are."""
    height, width = picture.pixels.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    pixels = picture.pixels if picture.pixels.ndim == 3 else picture.pixels.astype(np.float32)
    small = Picture(picture.key, np.asarray(image.fromarray(pixels).resize(size, image.Resampling.BOX)))
    if not field_um:
        return small
    digit = 10.0 ** math.floor(math.log10(field_um / 3))
    bar_um = max(step * digit for step in (1, 2, 5) if step * digit <= field_um / 3)
    return replace(small, bar=max(1, round(size[0] * bar_um / field_um)), bar_text=f"{bar_um:g} \xb5m")


def _in_colour(pixels: NDArray[Any], low: float, high: float, color: str) -> NDArray[np.uint8]:
    """(Y, X, 3), 8 bits per component; RGB is taken as it is. color: #rrggbb."""
    if pixels.ndim == 3:
        return pixels.astype(np.uint8)
    share = ((pixels.astype(np.float64) - low) / (high - low)).clip(0, 1)
    return np.asarray(share[..., None] * [*bytes.fromhex(color[1:])], np.uint8)


def _sheet(image: Any, title: str, pictures: Sequence[Picture]) -> Image:
    from PIL import ImageDraw

    columns = min(_COLUMNS, len(pictures))
    lines = max(len(picture.key) for picture in pictures) + any(picture.bar for picture in pictures)
    width = max(picture.pixels.shape[1] for picture in pictures)
    width = max(width, SIDE // 2)  # space for the text
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
        below = y + picture.pixels.shape[0] + 2
        if picture.bar:
            draw.rectangle((x, below + 4, x + picture.bar - 1, below + 6), fill=_INK)
            draw.text((x + picture.bar + _GAP, below), picture.bar_text, fill=_INK)
            below += _LINE
        draw.multiline_text((x, below), _printable(text), fill=_INK, spacing=2)
    return sheet


def _printable(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")  # what the font without a file holds
