"""Names of chunk files of scales without shards: the voxels of the chunk along x, y and z. Pure.

The name has absolute places, `voxel_offset` included; ends are cut at the size of the scale: `0-64_0-64_32-40`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RANGE = r"(-?[0-9]{1,20})-(-?[0-9]{1,20})"
_NAME = re.compile(f"{_RANGE}_{_RANGE}_{_RANGE}")


def chunk_name(starts: Sequence[int], ends: Sequence[int]) -> str:
    """The name of the file with these voxels; items in the order x, y, z."""
    return "_".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def parse_chunk_name(name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Starts and ends in a name; None if it is not that of a chunk."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    numbers = [*map(int, found.groups())]
    starts, ends = tuple(numbers[::2]), tuple(numbers[1::2])
    return (starts, ends) if chunk_name(starts, ends) == name else None
