"""Type of a pixel: dtype, samples and significant bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SIGNIFICANT_BITS = {"|u1": (8,), "<u2": (16, 10, 11, 12, 14)}
MAX_SIDE = 2**20
_NUMPY_DTYPES: dict[str, np.dtype[np.generic]] = {dtype: np.dtype(dtype) for dtype in SIGNIFICANT_BITS}


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
