"""A frame without its pixels: what a stack file needs to know of it; its pixel type; and runs of frames of one kind.

A run keeps columns: an object for each frame would cost more than its pixels do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from acqstream.model.axes import AxisValue, axes_json

if TYPE_CHECKING:
    import numpy as np

SIGNIFICANT_BITS = {"|u1": (8,), "<u2": (16, 10, 11, 12, 14)}
MAX_SIDE = 2**20
_NUMPY_DTYPES: dict[str, np.dtype[np.generic]] = {}  # made when asked for: numpy takes a third of a second to load


@dataclass(frozen=True, slots=True)
class PixelType:
    """A pixel type that a stack can hold.

    dtype is a numpy type string with its byte order: "|u1" or "<u2". samples is 1, or 3 for interleaved RGB (uint8
    only). bits are the significant bits, in the low end of each sample.
    """

    dtype: str
    samples: int
    bits: int
    pixel_bytes: int = field(init=False)  # of one pixel, all samples

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixel_bytes", self.sample_bytes * self.samples)

    @property
    def sample_bytes(self) -> int:
        return 1 if self.dtype == "|u1" else 2

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        if self.dtype not in _NUMPY_DTYPES:
            import numpy as np

            _NUMPY_DTYPES[self.dtype] = np.dtype(self.dtype)
        return _NUMPY_DTYPES[self.dtype]

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """Array shape of a frame: (Y, X), or (Y, X, 3) for RGB."""
        return (height, width, 3) if self.samples == 3 else (height, width)


def pixel_type_of(dtype: str, shape: Sequence[int], bits: int | None = None) -> PixelType:
    """The pixel type of frames with this dtype string and shape (Y, X) or (Y, X, 3).

    Raises ValueError with the supported types and what to do instead.
    """
    if dtype == "<u1" or dtype == ">u1":
        dtype = "|u1"
    if dtype not in SIGNIFICANT_BITS:
        raise ValueError(
            f"dtype {dtype!r} cannot be stored: NDTiff holds uint8 ('|u1') and little-endian uint16 ('<u2'); "
            "convert the image, for example image.astype('uint16') after scaling"
        )
    if len(shape) == 3 and shape[2] == 3:
        if dtype != "|u1":
            raise ValueError("RGB frames must be uint8 of shape (Y, X, 3); reduce to 8 bits or send one channel each")
        samples = 3
    elif len(shape) == 2:
        samples = 1
    else:
        raise ValueError(f"shape {tuple(shape)} must be (Y, X), or (Y, X, 3) for RGB")
    if not all(type(side) is int and 1 <= side <= MAX_SIDE for side in shape):
        raise ValueError(f"shape {tuple(shape)}: sides must be 1 to {MAX_SIDE}")
    allowed = SIGNIFICANT_BITS[dtype]
    if bits is None:
        bits = allowed[0]
    if bits not in allowed:
        raise ValueError(f"{bits} significant bits do not fit dtype {dtype!r}; allowed are {sorted(allowed)}")
    return PixelType(dtype, samples, bits)


MAX_NUMBER = 2**48 - 1
"""Upper limit of the frame numbers of an acquisition, skipped ones included."""


class FrameHeader(NamedTuple):
    """One frame of an acquisition, without its pixels. A tuple, because one is made for every frame.

    number counts 0, 1, 2 ... without holes. metadata is the frame's JSON object as ASCII bytes, `Axes` included.
    checksum is the XXH3-64 of the pixel bytes as the producer computed it, or None; metadata_checksum that of
    metadata. time_ns is the capture time in nanoseconds since 1970, or None; metadata has it too. axes_text is
    `axes_json(axes)` where it was made already, else empty.
    """

    number: int
    pixel_type: PixelType
    height: int
    width: int
    axes: dict[str, AxisValue]
    metadata: bytes
    checksum: int | None = None
    time_ns: int | None = None
    axes_text: bytes = b""
    metadata_checksum: int | None = None

    @property
    def payload_bytes(self) -> int:
        """Bytes of the pixels, C order."""
        return self.height * self.width * self.pixel_type.pixel_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """(Y, X), or (Y, X, 3) for RGB."""
        return self.pixel_type.shape(self.height, self.width)


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Frames number, number + 1, ...: an item of each column per frame, what it means as in `FrameHeader`.

    axes has a column for each axis; all frames have the same axes. As a sequence it gives single headers.
    """

    number: int
    pixel_type: PixelType
    height: int
    width: int
    axes: Mapping[str, Sequence[AxisValue]]
    axes_texts: list[bytes]
    metadata: list[bytes]
    checksums: list[int | None]
    times_ns: list[int | None]
    metadata_checksums: list[int | None]

    @staticmethod
    def of(headers: Sequence[FrameHeader]) -> FrameRun:
        """These headers, at least one, as columns. Raises KeyError where they have not the same axes."""
        first = headers[0]
        return FrameRun(
            first.number,
            first.pixel_type,
            first.height,
            first.width,
            {name: [header.axes[name] for header in headers] for name in first.axes},
            [header.axes_text or axes_json(header.axes) for header in headers],
            [header.metadata for header in headers],
            [header.checksum for header in headers],
            [header.time_ns for header in headers],
            [header.metadata_checksum for header in headers],
        )

    @staticmethod
    def joined(runs: Sequence[FrameRun]) -> FrameRun:
        """Runs of one kind, each where the one before ends, as one; its axes are only in axes_texts."""
        first = runs[0]
        if len(runs) == 1:
            return first
        return FrameRun(
            first.number,
            *first.kind,
            {},
            list(chain.from_iterable(run.axes_texts for run in runs)),
            list(chain.from_iterable(run.metadata for run in runs)),
            list(chain.from_iterable(run.checksums for run in runs)),
            list(chain.from_iterable(run.times_ns for run in runs)),
            list(chain.from_iterable(run.metadata_checksums for run in runs)),
        )

    def __len__(self) -> int:
        return len(self.metadata)

    def __getitem__(self, position: int) -> FrameHeader:
        number = range(self.number, self.next_number)[position]
        return FrameHeader(
            number,
            *self.kind,
            {name: column[position] for name, column in self.axes.items()},
            self.metadata[position],
            self.checksums[position],
            self.times_ns[position],
            self.axes_texts[position],
            self.metadata_checksums[position],
        )

    def __iter__(self) -> Iterator[FrameHeader]:
        return map(self.__getitem__, range(len(self)))

    @property
    def next_number(self) -> int:
        return self.number + len(self.metadata)

    @property
    def kind(self) -> tuple[PixelType, int, int]:
        """Pixel type, height and width."""
        return self.pixel_type, self.height, self.width

    @property
    def frame_bytes(self) -> int:
        """Bytes of the pixels of each frame."""
        return self.height * self.width * self.pixel_type.pixel_bytes

    @property
    def payload_bytes(self) -> int:
        """Bytes of the pixels of all frames."""
        return len(self.metadata) * self.frame_bytes

    def part(self, first: int, stop: int) -> FrameRun:
        """The frames at these positions; those that there are."""
        some = slice(first, stop)
        return FrameRun(
            self.number + first,
            *self.kind,
            {name: column[some] for name, column in self.axes.items()},
            self.axes_texts[some],
            self.metadata[some],
            self.checksums[some],
            self.times_ns[some],
            self.metadata_checksums[some],
        )
