"""`info` of the volumes of a container that our writer makes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.precomputed.info import Scale, Three, VolumeInfo
from acqstream.formats.precomputed.members import COMPONENT, member_count
from acqstream.formats.precomputed.options import Encoding
from acqstream.formats.precomputed.shard_slots import ShardSlots

NM_PER_UNIT = {"nm": 1.0, "um": 1e3, "µm": 1e3, "μm": 1e3, "mm": 1e6, "cm": 1e7, "m": 1e9, "angstrom": 0.1}
NM_PER_UNIT |= {"nanometer": 1.0, "micrometer": 1e3, "micron": 1e3, "millimeter": 1e6, "meter": 1e9}
_BLOCK = 8  # voxels a side, of compressed segmentation


def scale_folder(level: int) -> str:
    """The folder of a level in its volume, which is the scale's key. Resolutions may be known later than chunks."""
    return f"s{level}"


def block_of(level: ArraySpec) -> tuple[int, int, int]:
    """Blocks (z, y, x) of compressed segmentation, not larger than a chunk."""
    z, y, x = (min(_BLOCK, side) for side in level.chunk_shape[-3:])
    return z, y, x


def announced_depth(size: int, step: int, depth: int) -> int:
    """The size along z that `info` states: `size`, with the remainder of its last chunk of `step` planes.

    depth is the size at which the last chunk is cut, 0 for none.
    """
    full = -(-size // step) * step
    return min(full, depth) if size <= depth else full


def volume_info(
    levels: Sequence[ArraySpec], encoding: Encoding, depth: int, shards: Sequence[ShardSlots] = ()
) -> VolumeInfo | None:
    """The volume of each member; None while the full resolution has no items: no reader accepts a size of 0.

    shards are those of each level; empty: a file for each chunk.
    """
    full = levels[0]
    scales = []
    for number, level in enumerate(levels):
        if 0 in level.shape[member_count(level.axes) :]:
            break
        scale = _scale(number, level, encoding, depth)
        scales.append(_in_shards(scale, shards[number], depth) if shards else scale)
    if not scales:
        return None
    channels = full.shape[-4] if full.axes[-4:-3] == (COMPONENT,) else 1
    kind = "segmentation" if encoding == "compressed_segmentation" else "image"
    return VolumeInfo(kind, full.dtype.newbyteorder("="), channels, tuple(scales))


def _scale(number: int, level: ArraySpec, encoding: Encoding, depth: int) -> Scale:
    size, height, width = level.shape[-3:]
    step = level.chunk_shape[-3]
    return Scale(
        key=scale_folder(number),
        size=(width, height, announced_depth(size, step, depth)),
        offset=(0, 0, 0),
        resolution=_resolution(level),
        chunk=_reversed(level.chunk_shape[-3:]),
        encoding=encoding,
        block=_reversed(block_of(level)),
    )


def _in_shards(scale: Scale, shards: ShardSlots, depth: int) -> Scale:
    """The same scale; as deep as readers need it to find the ids of its chunks."""
    x, y, z = scale.size
    least = shards.min_depth * scale.chunk[2]
    return replace(scale, size=(x, y, max(z, min(least, depth or least))), sharding=shards.sharding)


def _resolution(level: ArraySpec) -> tuple[float, float, float]:
    """Distances (x, y, z) in nm; 1 for each item of the full resolution along an axis without a known length."""
    sides = zip(level.scale[-3:], level.units[-3:], level.factors[-3:], strict=True)
    z, y, x = (_nanometers(scale, unit, factor) for scale, unit, factor in sides)
    return x, y, z


def _nanometers(scale: float, unit: str, factor: int) -> float:
    size = scale * NM_PER_UNIT.get(unit, 0.0)
    # Binary fractions of decimal distances (0.65 um) would make 650.0000000000001.
    return float(f"{size:.12g}") if math.isfinite(size) and size > 0 else float(factor)


def _reversed(values: Sequence[int]) -> Three:
    z, y, x = values
    return x, y, z
