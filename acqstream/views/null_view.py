"""The null view: stores nothing, and proves by sums that it got every frame once, with the right pixels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xxhash

from acqstream.errors import CannotResume
from acqstream.views.base import View
from acqstream.views.checkpoint import field
from acqstream.views.frame_feed import Lease

_MODULUS = 2**64
_DECIMAL = re.compile("[0-9]{1,60}")
_HEXADECIMAL = re.compile("[0-9a-f]{16}")


class FrameSums(NamedTuple):
    """Pixel bytes of one frame, the sum of all its pixel values, and XXH3-64 of the bytes."""

    payload_bytes: int
    pixel_sum: int
    hash: int


class NullView(View):
    """Counts and sums of all frames.

    pixel_sum is exact. hash_sum is the sum of XXH3-64 over the frames, modulo 2**64: frames may come in any order, and
    a wrong, missing or doubled one changes it.
    """

    def __init__(self) -> None:
        self.frames = 0
        self.payload_bytes = 0
        self.pixel_sum = 0
        self.hash_sum = 0

    def take(self, lease: Lease) -> FrameSums:
        pixels = lease.pixels
        return FrameSums(pixels.nbytes, int(pixels.sum(dtype=np.uint64)), xxhash.xxh3_64_intdigest(pixels.data))

    def keep(self, taken: FrameSums) -> None:
        self.frames += 1
        self.payload_bytes += taken.payload_bytes
        self.pixel_sum += taken.pixel_sum
        self.hash_sum = (self.hash_sum + taken.hash) % _MODULUS

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        return self.summary(), lambda: None

    def summary(self) -> dict[str, Any]:
        """Return the sums as text: they are larger than the JSON numbers of many programs."""
        return {
            "frames": self.frames,
            "payload_bytes": self.payload_bytes,
            "pixel_sum": str(self.pixel_sum),
            "hash_sum": f"{self.hash_sum:016x}",
        }

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        del cursor
        frames, payload_bytes = field(state, "frames", int), field(state, "payload_bytes", int)
        pixel_sum, hash_sum = field(state, "pixel_sum", str), field(state, "hash_sum", str)
        if not _DECIMAL.fullmatch(pixel_sum) or not _HEXADECIMAL.fullmatch(hash_sum):
            raise CannotResume(f"invalid sums in the state: {pixel_sum!r:.60}, {hash_sum!r:.60}")
        self.frames, self.payload_bytes = frames, payload_bytes
        self.pixel_sum, self.hash_sum = int(pixel_sum), int(hash_sum, 16)
