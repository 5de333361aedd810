"""The layout of a container of precomputed volumes whose chunks lie in shards, and the choice of layouts. Pure.

Ids of chunks depend on the size in `info`, so this states more planes than there are until ids no longer change; the
note of the container has the planes that are stored. docs/decisions/039-sharded-precomputed.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.codecs import gzip
from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Encoded, Plan
from acqstream.formats.precomputed.layout import PrecomputedLayout, parse_note, scale_folder, volume_info
from acqstream.formats.precomputed.metadata import PrecomputedOptions, ShardOptions, encode_info, is_single
from acqstream.formats.precomputed.shard_slots import MAX_SLOTS, MAX_Z_BITS, ShardSlots, free_z_bits
from acqstream.formats.precomputed.sharding import Sharding, id_bits, unpacked
from acqstream.storage.stores.shard_index import ShardIndex
from acqstream.storage.stores.store import Capability

_SHARD_BYTES = 2**30  # of a shard with all its chunks, not encoded
_SHARD_CHUNKS = 2**13  # their places take 400 KB of memory
_MINISHARD_BITS = 9  # of the chunks of a minishard: readers fetch their index, 12 KiB, before the first of them
_GZIP_LEVEL = 1  # pixels gain little from more


@dataclass(frozen=True)
class ShardedPrecomputedLayout(PrecomputedLayout):
    """shards are those of each level."""

    @property
    def needs(self) -> Capability:
        """See ChunkLayout."""
        return "append"

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout: the shard."""
        shards = self.shards[level]
        folder = self._folder(position[: self._leading])
        return f"{folder}{scale_folder(level)}/{shards.sharding.shard_name(self._place(level, position)[0])}"

    def parse_key(self, key: str) -> None:
        """See ChunkLayout: no chunk has a key of its own."""
        del key

    def slot(self, level: int, position: Position) -> int:
        """See ChunkLayout."""
        return self._place(level, position)[1]

    def shard_index(self, key: str) -> ShardIndex:
        """See ChunkLayout. Raises ValueError for another key."""
        found = self._parse_shard(key)
        if found is None:
            raise ValueError(f"{key!r} is not a shard")
        level, _, shard = found
        return self.shards[level].index(shard)

    def shard_level(self, key: str) -> int | None:
        """See ChunkLayout."""
        found = self._parse_shard(key)
        return None if found is None else found[0]

    def slot_position(self, key: str, slot: int) -> Position | None:
        """See ChunkLayout."""
        found = self._parse_shard(key)
        if found is None:
            return None
        level, member, shard = found
        cell = self.shards[level].cell(shard, slot)
        if cell is None:
            return None
        components = (0,) * (len(self.plan.full.axes) - len(member) - 3)
        return (*member, *components, *cell[::-1])

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout."""
        encoded = super().encode(level, position, chunk)
        if self.shards[level].sharding.data_encoding == "raw":
            return encoded
        return [gzip.encode(b"".join(encoded) if len(encoded) > 1 else encoded[0], _GZIP_LEVEL)]

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        if self.shards[level].sharding.data_encoding == "gzip":
            data = unpacked(data, super().max_chunk_bytes(level), where, 0)
        return super().decode(level, position, data, where)

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout: packing takes more."""
        is_packed = self.shards[0].sharding.data_encoding == "gzip"
        return super().max_encode_memory(spec) + (2 * spec.chunk_bytes + 2 * SPARE_BYTES if is_packed else 0)

    def max_chunk_bytes(self, level: int) -> int:
        """See ChunkLayout: those of a chunk."""
        return super().max_chunk_bytes(level) + SPARE_BYTES

    def check_growth(self, shape: Sequence[int]) -> None:
        """See ChunkLayout."""
        super().check_growth(shape)
        axis, step = self.plan.full.axes[-3], self.plan.full.chunk_shape[-3]
        most = min(shards.cells[2] for shards in self.shards) * step
        if shape[-3] > most:
            text = f"precomputed cannot get longer than {most} along {axis!r}: with more, ids of stored chunks change"
            raise ConfigError(f"{text}. Rebuilt afterwards the mirror has all")

    def _info_of(self, levels: Sequence[ArraySpec]) -> bytes:
        info = volume_info(levels, self.encoding, self.depth, self.shards)
        return b"" if info is None else encode_info(info)

    def _place(self, level: int, position: Position) -> tuple[int, int]:
        z, y, x = position[-3:]
        return self.shards[level].place((x, y, z))

    def _parse_shard(self, key: str) -> tuple[int, Position, int] | None:
        """Level, member and number of the shard at a key."""
        folder, _, name = key.rpartition("/")
        above, _, scale = folder.rpartition("/")
        member = self._parse_folder(f"{above}/" if above else "")
        levels = {scale_folder(at): at for at in range(len(self.plan.levels))}
        if member is None or scale not in levels:
            return None
        shard = self.shards[levels[scale]].sharding.parse_shard_name(name)
        return None if shard is None else (levels[scale], member, shard)


def choose_shards(plan: Plan, options: ShardOptions) -> tuple[ShardSlots, ...]:
    """The shards of each level. Raises ConfigError for parameters that cannot hold its chunks."""
    return tuple(_shards_of_level(level, options) for level in plan.levels)


def _shards_of_level(level: ArraySpec, options: ShardOptions) -> ShardSlots:
    z, y, x = (-(-size // step) for size, step in zip(level.shape[-3:], level.chunk_shape[-3:], strict=True))
    # It may get longer than declared where this changes no id.
    is_open = options.hash == "identity" and (not z or (z - 1).bit_length() >= free_z_bits(x, y))
    if not z and not is_open:
        raise ConfigError(
            f"precomputed: shards with hash {options.hash} need to know how long {level.axes[-3]!r} will be: declare "
            'the axes with their sizes, make the mirror afterwards, or take "identity"'
        )
    z_bits = MAX_Z_BITS if is_open else (z - 1).bit_length()
    given = (options.preshift_bits, options.minishard_bits, options.shard_bits)
    if is_open and None not in given:  # they bound the ids
        least = max(free_z_bits(x, y), max(0, z - 1).bit_length())
        z_bits = max(least, min(z_bits, sum(bits or 0 for bits in given) - id_bits((x, y, 1))))
    shards = ShardSlots(_sharding(level, id_bits((x, y, 1 << z_bits)), options), (x, y, 1 << z_bits))
    if not shards.is_bounded:
        text = f"{level.shape[-3:]} in chunks of {level.chunk_shape[-3:]} (z, y, x) in shards of {shards.sharding}"
        raise ConfigError(
            f"precomputed: {text}: expected at most {MAX_SLOTS} chunks a shard, and bits for all ids; leave out the "
            "bits to have them chosen"
        )
    return shards


def _sharding(level: ArraySpec, bits: int, options: ShardOptions) -> Sharding:
    most = int(math.log2(min(_SHARD_CHUNKS, max(1, _SHARD_BYTES // level.chunk_bytes))))
    within = min(most, bits)
    preshift, minishard = options.preshift_bits, options.minishard_bits
    if preshift is None:
        preshift = min(within - (minishard or 0), _MINISHARD_BITS) if within > (minishard or 0) else 0
    if minishard is None:
        minishard = max(0, within - preshift)
    shard = options.shard_bits
    if shard is None:
        shard = max(0, bits - preshift - minishard)
    given: dict[str, Any] = {
        "hash": options.hash,
        "index_encoding": options.minishard_index_encoding,
        "data_encoding": options.data_encoding,
    }
    return Sharding(preshift_bits=preshift, minishard_bits=minishard, shard_bits=shard, **given)


def create_layout(plan: Plan, options: PrecomputedOptions) -> PrecomputedLayout:
    """The layout of a new container; plan is that of `plan`. Raises ConfigError for shards that are too small."""
    full = plan.full
    common = (plan, options.encoding, full.shape[-3], is_single(full.axes, full.shape))
    if options.shards is None:
        return PrecomputedLayout(*common, jpeg_quality=options.jpeg_quality)
    return ShardedPrecomputedLayout(*common, choose_shards(plan, options.shards), options.jpeg_quality)


def noted_layout(content: bytes, path: str) -> tuple[PrecomputedLayout, bool]:
    """The layout of an existing container by its note in the file `path`, and whether it is complete.

    Raises CorruptDataset.
    """
    found, complete = parse_note(content, path)
    if found.shards:
        found = ShardedPrecomputedLayout(found.plan, found.encoding, found.depth, found.is_single, found.shards)
    return found, complete
