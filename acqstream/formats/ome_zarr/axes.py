"""Axes of an OME-Zarr image, and which axes of an array become separate images.

Source: OME-NGFF 0.5, "axes": at most one time and one channel axis, then two or three of space, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acqstream.errors import ConfigError
from acqstream.model.axes import TIME, Z

CHANNEL = "channel"
SAMPLE = "c"  # colour samples of RGB
PLANE = ("y", "x")
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


def image_number(member: Sequence[int], sizes: Sequence[int]) -> int:
    """The number of an image by its place along the separating axes.

    sizes are planned ones. If all but the first are known, images are numbered in rows, the last axis fastest. Else by
    the bits of their places taken in turn, the last axis lowest: these numbers depend on no size, and leave gaps.
    """
    number = 0
    if all(sizes[1:]):
        for at, size in zip(member, sizes, strict=True):
            number = number * size + at
        return number
    for bit in range(max((at.bit_length() for at in member), default=0)):
        for place, at in enumerate(reversed(member)):
            number |= (at >> bit & 1) << (bit * len(member) + place)
    return number


def member_of(number: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """The inverse of `image_number`."""
    places = [0] * len(sizes)
    if all(sizes[1:]):
        for axis in range(len(sizes) - 1, 0, -1):
            number, places[axis] = divmod(number, sizes[axis])
        if sizes:
            places[0] = number
        return tuple(places)
    for bit in range(number.bit_length()):
        place = len(sizes) - 1 - bit % len(sizes)
        places[place] |= (number >> bit & 1) << (bit // len(sizes))
    return tuple(places)
