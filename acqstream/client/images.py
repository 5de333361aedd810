"""Images, and what each of many frames has of its own besides: checked, and pixels copied into the buffer.

Pixels are copied into C order, little-endian. Rows are axes, metadata and capture times, for `put_many`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.client.plain_values import (
    Changes,
    MicroManagerAxes,
    merged_axes,
    plain_arguments,
    plain_scalar,
)
from acqstream.errors import AcqStreamError, FrameRefused, ProtocolError
from acqstream.model.axes import AxisValue, are_good_columns
from acqstream.model.frame_header import PixelType, pixel_type_of
from acqstream.model.metadata import AXES_KEY, TIME_KEY
from acqstream.model.units import count_text
from acqstream.protocol.frame_batch import MAX_METADATA_BYTES, FrameKind

_MAX_DIMENSIONS = 3
_PIECE_BYTES = 256 * 2**10
_SMALL_BYTES = 64 * 2**10  # numpy's calls take longer than the copy, which is too short to let other threads run


def as_image(image: object) -> NDArray[Any]:
    """`image` as an array (Y, X) or (Y, X, 3), without a copy where it is an array or shares its memory.

    Raises ValueError if it is not an array, and for masked pixels, as a stack cannot store the mask.
    """
    if type(image) is np.ndarray:
        return image
    if isinstance(image, np.ndarray):  # numpy's masked arrays, and those of astropy
        masked = np.count_nonzero(getattr(image, "mask", False))
        if masked:
            text = f"{count_text(int(masked), 'pixel', 'are')} masked, and a mask cannot be stored"
            raise ValueError(f"{text}; pass image.filled(value), or image.data to store what is below the mask")
    try:
        array = np.asarray(image)
        if array.dtype == object and hasattr(image, "__dlpack__"):
            raise TypeError(
                "numpy finds no pixels in it; convert it to a numpy array, as numpy.from_dlpack(image) does"
            )
        return array
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{type(image).__name__} is not an image: {error}") from error


def as_stack(images: object) -> NDArray[Any]:
    """As `as_image` for images of one kind: an array (N, Y, X) or (N, Y, X, 3)."""
    array = as_image(images)
    if array.ndim not in (_MAX_DIMENSIONS, _MAX_DIMENSIONS + 1):
        raise ValueError(f"shape {array.shape} must be (N, Y, X), or (N, Y, X, 3) for RGB; for one image use put")
    return array


def significant_bits(bits: object) -> int:
    """The argument `bits` of `put`. Raises ValueError."""
    try:
        return operator.index(bits)  # type: ignore[arg-type]
    except TypeError:
        pass
    if isinstance(bits, float | np.floating) and float(bits).is_integer():
        return int(bits)
    raise ValueError(f"bits={bits!r:.60} must be a number of significant bits")


@functools.lru_cache(maxsize=256)  # called for every frame
def kind_of_image(
    dtype: np.dtype[Any], shape: tuple[int, ...], axes: tuple[str, ...], bits: int | None = None
) -> FrameKind:
    """The frame kind of images with this dtype and shape. Raises ValueError that names the supported ones."""
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"shape {shape} must be (Y, X), or (Y, X, 3) for RGB")
    little_endian = "<u2" if dtype.str == ">u2" else dtype.str  # the copy swaps the bytes
    return _kind(pixel_type_of(little_endian, shape, bits), shape, axes)


def kind_of_buffer(shape: Sequence[int], dtype: object, axes: tuple[str, ...], bits: int | None = None) -> FrameKind:
    """As `kind_of_image`, of an image to come. Raises ValueError."""
    try:
        sides = tuple(int(side) for side in shape)
        return _kind(pixel_type_of(np.dtype(dtype).str, sides, bits), sides, axes)  # type: ignore[call-overload]
    except (TypeError, OverflowError, SyntaxError) as error:  # the last of numpy's texts for dtypes
        raise ValueError(f"shape {shape!r:.60} and dtype {dtype!r:.60} are not those of an image: {error}") from error


def _kind(pixel_type: PixelType, shape: tuple[int, ...], axes: tuple[str, ...]) -> FrameKind:
    return FrameKind(pixel_type, shape, axes, math.prod(shape) * pixel_type.sample_bytes)


def copy_pixels(image: NDArray[Any], pixel_type: PixelType, memory: memoryview, start: int) -> int:
    """Write the pixels at `start` of `memory`, C order, in the byte order of `pixel_type`; their XXH3-64.

    Large images are copied piece by piece, so that each is still in the processor's cache for its checksum, which
    saves a fifth of the time.
    """
    size = image.nbytes
    if size <= _SMALL_BYTES and image.flags.c_contiguous and image.dtype == pixel_type.numpy_dtype:
        place = memory[start : start + size]
        place[:] = image.data.cast("B")
        return xxhash.xxh3_64_intdigest(place)
    target: NDArray[Any] = np.ndarray(image.shape, pixel_type.numpy_dtype, memory, start)
    if target.nbytes <= 2 * _PIECE_BYTES:
        target[...] = image
        return xxhash.xxh3_64_intdigest(target)  # type: ignore[arg-type] # types have no buffer before 3.12
    rows = max(1, _PIECE_BYTES * len(image) // image.nbytes)
    digest = xxhash.xxh3_64()
    for first in range(0, len(image), rows):
        piece = target[first : first + rows]
        np.copyto(piece, image[first : first + rows], casting="equiv")
        digest.update(piece.data)
    return digest.intdigest()


def copy_stack(images: NDArray[Any], pixel_type: PixelType, memory: memoryview, start: int) -> list[int]:
    """As `copy_pixels` for images (N, Y, X) or (N, Y, X, 3), which come to lie back to back; the XXH3-64 of each."""
    if len(images) == 1:
        return [copy_pixels(images[0], pixel_type, memory, start)]
    target: NDArray[Any] = np.ndarray(images.shape, pixel_type.numpy_dtype, memory, start)
    target[...] = images
    size = target.nbytes // len(images)
    ends = range(start + size, start + target.nbytes + 1, size)
    return [xxhash.xxh3_64_intdigest(memory[end - size : end]) for end in ends]


def no_image(number: int, error: ValueError) -> FrameRefused:
    """The error of frame `number`, whose array cannot be stored, for the reason in `error`."""
    return FrameRefused(f"frame {number}: {error}", code="dtype_unsupported", number=number)


FrameRow = tuple[tuple[AxisValue, ...], bytes, int | None]
"""A value for each axis, metadata as `encode_given` makes them, capture time."""


class FrameRows(NamedTuple):
    """names are those of the axes. error: why there is no row after these.

    changes: what was changed in metadata, with the position of the frame.
    """

    names: tuple[str, ...]
    rows: Sequence[FrameRow]
    changes: Sequence[tuple[int, Changes]] = ()
    error: AcqStreamError | None = None

    @property
    def largest_metadata(self) -> int:
        """Bytes."""
        return max((len(row[1]) for row in self.rows), default=0)

    @property
    def storable(self) -> int:
        """The number of rows before the first one with more metadata than a frame may have."""
        return next((at for at, row in enumerate(self.rows) if len(row[1]) > MAX_METADATA_BYTES), len(self.rows))


def frame_rows(
    count: int,
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Any,
    time_ns: Any,
    *,
    micromanager: MicroManagerAxes | None = None,
) -> FrameRows:
    """The rows of `count` frames, from the arguments of `put_many`. Nothing of them changes with what was given.

    Raises ProtocolError where an argument has not one item for each frame; an error of one frame is in the result.
    """
    columns: dict[Any, list[Any]] = {
        plain_scalar(name): _column(f"axis {name!r:.60}", value, count)
        for name, value in merged_axes(axes, axis_values).items()
    }
    times = _column("time_ns", time_ns, count)
    is_one_map = isinstance(meta, Mapping)
    maps = [meta] * count if is_one_map else _column("meta", meta, count)
    is_alike = meta is None or (isinstance(meta, Mapping) and AXES_KEY not in meta and TIME_KEY not in meta)
    if is_alike and micromanager is None and are_good_columns(columns) and _are_good_times(times) and count:
        _, text, _, changes = plain_arguments(None, {}, meta, None, None)
        values = zip(*columns.values(), strict=True) if columns else [()] * count
        rows = list(zip(values, [text] * count, times, strict=True))
        return FrameRows(tuple(columns), rows, [(0, changes)])
    return _one_by_one(columns, maps, times, micromanager)


def _one_by_one(
    columns: Mapping[str, Sequence[Any]],
    maps: Sequence[Any],
    times: Sequence[Any],
    micromanager: MicroManagerAxes | None,
) -> FrameRows:
    rows: list[FrameRow] = []
    changes: list[tuple[int, Changes]] = []
    for position, (meta, time_ns) in enumerate(zip(maps, times, strict=True)):
        values = {name: column[position] for name, column in columns.items()}
        try:
            plain, text, plain_time, changed = plain_arguments(None, values, meta, time_ns, micromanager)
        except AcqStreamError as error:
            return FrameRows(tuple(columns), rows, changes, error)
        rows.append((tuple(plain.values()), text, plain_time))
        changes.append((position, changed))
    return FrameRows(tuple(columns), rows, changes)


def _column(name: str, value: object, count: int) -> list[Any]:
    """An item for each frame: those of a sequence or an array, or the same for all. Raises ProtocolError."""
    if isinstance(value, np.ndarray):
        value = value.tolist()  # of an array without axes: its value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [value] * count
    if len(value) != count:
        raise ProtocolError(f"{name} has {len(value)} values for {count} frames; pass one for each, or one for all")
    return list(value)


def _are_good_times(times: Sequence[object]) -> bool:
    kinds = set(map(type, times))
    return kinds == {type(None)} or (kinds == {int} and min(times) >= 0 and max(times) < 2**63)  # type: ignore[type-var,operator]
