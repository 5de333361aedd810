"""The 2x reduction of image tiles, exactly as the Java library writes the levels of an NDTiff pyramid.

Source: lower levels of the Java reference writer. W, H is a full tile, ox, oy the overlaps, w = W - ox, h = H - oy:
tiles of all lower levels are w x h. A tile (row, column) becomes a quadrant of tile (row // 2, column // 2) of the
next level, with floor division. Each pixel there is the sum of up to 2 x 2 pixels, divided by their number,
truncated. With an odd w the quadrants share column w // 2, with an odd h row h // 2: the one painted last wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.grid import kernels
from acqstream.grid.kernels import Scratch

_BLOCK_BYTES = 256 * 2**10  # of source pixels: with the scratch it stays in the processor's cache
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {np.dtype("<u2"): np.dtype("<u4"), np.dtype("u1"): np.dtype("<u2")}


def levels_needed(rows: int, columns: int) -> int:
    """Number of levels until one tile holds the complete picture: smallest L with 2^L >= both."""
    return (max(rows, columns, 1) - 1).bit_length()


def inner_tile(tile: NDArray[Any], overlap: tuple[int, int]) -> NDArray[Any]:
    """The part of a full tile (H, W[, 3]) that goes into level 1, for an overlap (oy, ox) in pixels; a view.

    (h, w[, 3]), one row or column more where that is odd and there is overlap: the reduction looks beyond the edge.
    """
    slices = []
    for size, lap in zip(tile.shape[:2], overlap, strict=True):
        inner = size - lap
        slices.append(slice(lap // 2, lap // 2 + inner + (inner % 2 if lap else 0)))
    return tile[slices[0], slices[1]]


def quadrant(row: int, column: int, height: int, width: int) -> tuple[slice, slice]:
    """The quadrant of tile (row, column) in the tile of the next level, which has height x width pixels."""
    top, left = row % 2 * height // 2, column % 2 * width // 2
    return slice(top, top + (height + 1) // 2), slice(left, left + (width + 1) // 2)


class Halving:
    """Halves images of one dtype: uint8, or uint16 little endian. Used by one thread; keeps its scratch memory."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = np.dtype(dtype)
        self._wide = _WIDER[self._dtype]
        self._scratch = Scratch()
        self._copy = np.empty(0, self._dtype)

    def halve(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        """Means of 2 x 2 pixels, truncated, of `source` (y, x[, 3]) into `out` ((y + 1) // 2, (x + 1) // 2[, 3]).

        At an odd edge of 2 pixels or 1.
        """
        if not kernels.halve(source, out, is_half_up=False):
            self._halve_by_numpy(source, out)

    def _halve_by_numpy(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        height, width = source.shape[:2]
        even = source[: height // 2 * 2, : width // 2 * 2]
        if even.size:
            self._halve_even(even, out[: height // 2, : width // 2])
        if width % 2 and height > 1:
            edge = source[: height // 2 * 2, -1].astype(self._wide)
            out[: height // 2, -1] = (edge[0::2] + edge[1::2]) >> 1
        if height % 2 and width > 1:
            edge = source[-1, : width // 2 * 2].astype(self._wide)
            out[-1, : width // 2] = (edge[0::2] + edge[1::2]) >> 1
        if height % 2 and width % 2:
            out[-1, -1] = source[-1, -1]

    def _halve_even(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        height = source.shape[0]
        at_once = max(2, _BLOCK_BYTES // max(1, source[0].nbytes) // 2 * 2)
        halve = self._halve_rgb if source.ndim == 3 else self._halve_grey
        is_fit = _is_fit(source, self._wide.itemsize)  # and so all its pieces are
        for top in range(0, height, at_once):
            piece = source[top : top + at_once]
            halve(piece if is_fit else self._copied(piece), out[top // 2 : (top + at_once) // 2])

    def _copied(self, source: NDArray[Any]) -> NDArray[Any]:
        if len(self._copy) < source.size:
            self._copy = np.empty(source.size, self._dtype)
        copy = self._copy[: source.size].reshape(source.shape)
        np.copyto(copy, source)
        return copy

    def _halve_grey(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        sums, means = self._split(source)
        np.add(sums, means, out=sums)
        # Adds every row to the next one, although each second would do: without gaps it takes half the time.
        width = sums.shape[1]
        np.add(sums.reshape(-1)[:-width], sums.reshape(-1)[width:], out=means.reshape(-1)[:-width])
        np.right_shift(means, 2, out=means)
        np.copyto(out, means[0::2], casting="unsafe")

    def _halve_rgb(self, source: NDArray[Any], out: NDArray[Any]) -> None:
        """Two pixels are three numbers: R G, B R, G B."""
        rows = len(out)
        both = self._split(source.reshape(len(source), -1))
        even, odd = (samples[:rows] for samples in both)
        for part, samples in zip((even, odd), both, strict=True):
            np.add(samples[0::2], samples[1::2], out=part)
        for sample, left, right in ((0, even[:, 0::3], odd[:, 1::3]), (2, even[:, 1::3], odd[:, 2::3])):
            np.add(left, right, out=left)
            np.right_shift(left, 2, out=left)
            np.copyto(out[:, :, sample], left, casting="unsafe")
        left, right = odd[:, 0::3], even[:, 2::3]
        np.add(left, right, out=left)
        np.right_shift(left, 2, out=left)
        np.copyto(out[:, :, 1], left, casting="unsafe")

    def _split(self, source: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples at even and at odd places of `source` (y, x), as wider numbers: two lie in one of those.

        So all steps work on complete rows, and need no casts.
        """
        pairs = source.view(self._wide)
        even, odd = (self._scratch.array(number, pairs.shape, self._wide) for number in range(2))
        bits = 8 * self._dtype.itemsize
        np.bitwise_and(pairs, self._wide.type(2**bits - 1), out=even)
        np.right_shift(pairs, bits, out=odd)
        return even, odd


def _is_fit(image: NDArray[Any], step: int) -> bool:
    """True if rows have no gaps, and each begins at a multiple of `step` bytes."""
    is_dense = all(a == b for a, b in zip(image.strides[1:], image[:1].copy().strides[1:], strict=True))
    return bool(is_dense and image.ctypes.data % step == 0 and image.strides[0] % step == 0)
