"""Sums of the null view, computed by numpy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


def sums_of(images: Iterable[NDArray[Any]]) -> dict[str, Any]:
    """The state of a null view that took these images."""
    frames = payload_bytes = pixel_sum = hash_sum = 0
    for image in images:
        frames += 1
        payload_bytes += image.nbytes
        pixel_sum += sum(int(row.sum(dtype=np.int64)) for row in image.reshape(len(image), -1))
        hash_sum += int(xxhash.xxh3_64(image.tobytes()).hexdigest(), 16)
    return {
        "frames": frames,
        "payload_bytes": payload_bytes,
        "pixel_sum": str(pixel_sum),
        "hash_sum": f"{hash_sum % 2**64:016x}",
    }
