"""Axes of an OME-Zarr image, and which axes of an array become separate images.

Source: OME-NGFF 0.5, "axes": at most one time and one channel axis, then two or three of space, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acqstream.arrays.axis_order import TIME, Z
from acqstream.errors import ConfigError
from acqstream.formats.level_plan import PLANE

CHANNEL = "channel"
SAMPLE = "c"  # colour samples of RGB
_NAMES = {TIME: ("t", "time"), CHANNEL: ("c", "channel"), SAMPLE: ("c", "channel")}


@dataclass(frozen=True, slots=True)
class ImageAxis:
    """An axis as the metadata have it."""

    name: str
    type: str


def split_axes(axes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes along which images are separate, slowest first, and those of an image.

    Colour samples take the place of channels; a channel axis beside them separates images. Raises ConfigError for an
    array without y or x.
    """
    if not set(PLANE) <= set(axes) or len(set(axes)) < len(axes):
        raise ConfigError(f"OME-Zarr needs an array with axes y and x, each once, not {tuple(axes)}")
    channel = SAMPLE if SAMPLE in axes else CHANNEL
    image = tuple(name for name in (TIME, channel, Z, *PLANE) if name in axes)
    return tuple(name for name in axes if name not in image), image


def image_axis(name: str) -> ImageAxis:
    """The axis of an image in the words of the format."""
    return ImageAxis(*_NAMES.get(name, (name, "space")))
