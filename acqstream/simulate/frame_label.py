"""Burns a number into a corner of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS = (  # of the digits 0 to 9, five pixels each, the highest bit left
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_HEIGHT, _WIDTH = 7, 5


def burn_number(image: NDArray[Any], number: int, value: int) -> None:
    """Write `number` into the upper left corner, in pixels of `value` on a box of zeros.

    image: shape (Y, X) or (Y, X, 3), changed in place. What does not fit into a small image is cut off.
    """
    digits = [_ROWS[int(digit)] for digit in str(number)]
    mask = np.zeros((_HEIGHT + 2, len(digits) * (_WIDTH + 1) + 1), bool)
    for index, rows in enumerate(digits):
        for row, bits in enumerate(rows):
            for column in range(_WIDTH):
                # bit 4 is the leftmost pixel
                mask[row + 1, index * (_WIDTH + 1) + column + 1] = bits >> (_WIDTH - 1 - column) & 1
    scale = max(1, image.shape[0] // 110)
    large = mask.repeat(scale, 0).repeat(scale, 1)[: image.shape[0], : image.shape[1]]
    corner = image[: large.shape[0], : large.shape[1]]
    corner[...] = 0
    corner[large] = value
