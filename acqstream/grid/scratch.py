"""Memory for steps in between, used again and again."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SHIFT_BYTES = 1088
"""Bytes by which the places of arrays differ within a page. If loads and stores are at the same place of different
pages, processors assume that one depends on the other, and every step lasts half as long again."""


class Scratch:
    """Arrays by number, of any shape and dtype; what was in them is lost. Used by one thread."""

    def __init__(self) -> None:
        self._memory: dict[int, NDArray[np.uint8]] = {}

    def array(self, number: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Each number has its own place within a page, and images have another."""
        length = math.prod(shape) * dtype.itemsize
        memory = self._memory.get(number)
        if memory is None or len(memory) < length:
            room = np.empty(length + 2 * mmap.PAGESIZE, np.uint8)
            start = -room.ctypes.data % mmap.PAGESIZE + (number + 1) * _SHIFT_BYTES % mmap.PAGESIZE
            memory = self._memory[number] = room[start : start + length]
        return memory[:length].view(dtype).reshape(shape)
