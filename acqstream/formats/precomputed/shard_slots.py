"""Where each chunk of a scale lies in the shards that our writer fills. Pure.

A slot is the place of a chunk in its shard, in the order of chunk ids. With the hash "identity" a shard has the ids of
one run, with holes for ids without a chunk; with another hash it has the ids of many runs, which a table lists.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import gzip
from acqstream.errors import CorruptDataset
from acqstream.formats.precomputed.sharding import (
    MinishardReader,
    Sharding,
    Three,
    cell_of,
    chunk_id,
    encode_minishard_index,
    id_bits,
)
from acqstream.storage.stores.shard_index import MISSING, Extents
from acqstream.storage.stores.store import Store

MAX_SLOTS = 2**16  # of a shard: each takes memory while the shard is open
MAX_Z_BITS = 32  # of the cells along z that ids allow where the number of planes is not known
_MAX_RUN_BITS = 18  # of the runs of ids in the table of a hash
_MAX_ID_BITS = 64

_Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ShardSlots:
    """The shards of a scale. cells is the number of chunks along x and y, and the most there can be along z.

    Ids do not depend on the number of planes, as long as z has `free_z_bits` or more, or exactly those of `cells`.
    """

    sharding: Sharding
    cells: Three

    @property
    def min_depth(self) -> int:
        """Chunks along z that `info` must state at least: readers compute other ids for fewer."""
        bits = min(free_z_bits(self.cells[0], self.cells[1]), max(0, self.cells[2] - 1).bit_length())
        return (1 << (bits - 1)) + 1 if bits else 1

    def place(self, cell: Three) -> tuple[int, int]:
        """The shard and the slot of the chunk in a cell (x, y, z)."""
        sharding, chunk = self.sharding, chunk_id(cell, self.cells)
        if sharding.hash == "identity":
            bits = sharding.preshift_bits + sharding.minishard_bits
            return (chunk >> bits) & ((1 << sharding.shard_bits) - 1), chunk & ((1 << bits) - 1)
        shard = sharding.place(chunk)[0]
        run, low = chunk >> sharding.preshift_bits, chunk & ((1 << sharding.preshift_bits) - 1)
        # The hash moves whole runs of ids, so only the run has to be looked up.
        rank = int(np.searchsorted(self._runs(shard), np.uint64(run)))
        return shard, (rank << sharding.preshift_bits) | low

    def cell(self, shard: int, slot: int) -> Three | None:
        """The inverse of `place`; None for a slot without a cell."""
        sharding = self.sharding
        if sharding.hash == "identity":
            found = cell_of((shard << (sharding.preshift_bits + sharding.minishard_bits)) | slot, self.cells)
        else:
            rank, low = slot >> sharding.preshift_bits, slot & ((1 << sharding.preshift_bits) - 1)
            run = int(self._runs(shard)[rank])
            found = cell_of((run << sharding.preshift_bits) | low, self.cells)
        return None if found is None else (found[0], found[1], found[2])

    def index(self, shard: int) -> SlotIndex:
        """The index of a shard, for `ShardFile`."""
        sharding = self.sharding
        if sharding.hash == "identity":
            bits = sharding.preshift_bits + sharding.minishard_bits
            return SlotIndex(sharding, np.arange(1 << bits, dtype=np.uint64) + np.uint64(shard << bits))
        low = np.arange(1 << sharding.preshift_bits, dtype=np.uint64)
        starts = self._runs(shard) << np.uint64(sharding.preshift_bits)
        return SlotIndex(sharding, (starts[:, None] + low).reshape(-1))

    @property
    def is_bounded(self) -> bool:
        """True if all ids have slots, and the memory for the slots of any shard is small."""
        sharding, bits = self.sharding, id_bits(self.cells)
        if bits > _MAX_ID_BITS:
            return False
        if sharding.hash == "identity":
            within = sharding.preshift_bits + sharding.minishard_bits
            return 1 << within <= MAX_SLOTS and bits <= within + sharding.shard_bits
        if bits - sharding.preshift_bits > _MAX_RUN_BITS:
            return False
        _, _, ends = _run_table(sharding, bits)
        return int(np.diff(ends).max()) << sharding.preshift_bits <= MAX_SLOTS

    def _runs(self, shard: int) -> _Numbers:
        """Ids without their lowest bits, of the chunks of a shard, ascending."""
        runs, shards, ends = _run_table(self.sharding, id_bits(self.cells))
        row = int(np.searchsorted(shards, np.uint64(shard)))
        is_known = row < len(shards) and int(shards[row]) == shard
        return runs[ends[row] : ends[row + 1]] if is_known else runs[:0]


@dataclass(frozen=True, slots=True)
class SlotIndex:
    """The index of one shard: a ShardIndex. ids are those of its slots, ascending; uint64."""

    sharding: Sharding
    ids: _Numbers

    @property
    def slots(self) -> int:
        """See ShardIndex."""
        return len(self.ids)

    @property
    def head_bytes(self) -> int:
        """See ShardIndex."""
        return self.sharding.index_bytes

    def encode(self, extents: Extents, end: int) -> tuple[bytes, bytes]:
        """See ShardIndex. The tail has the indices of all minishards, the head says where each begins and ends."""
        rows = np.flatnonzero(extents[:, 0] != MISSING)
        minishards = self.sharding.minishards(self.ids[rows])
        order = np.argsort(minishards, kind="stable")  # ids stay ascending in each
        rows, minishards = rows[order], minishards[order]
        numbers, firsts = np.unique(minishards, return_index=True)
        head = np.zeros((1 << self.sharding.minishard_bits, 2), "<u8")
        at, tail = end - self.head_bytes, []  # all offsets count from the end of the head
        bounds = itertools.pairwise([*firsts.tolist(), len(rows)])
        for number, (first, last) in zip(numbers.tolist(), bounds, strict=True):
            chosen = rows[first:last]
            starts = extents[chosen, 0] - np.uint64(self.head_bytes)
            content = encode_minishard_index(self.ids[chosen], starts, extents[chosen, 1])
            if self.sharding.index_encoding == "gzip":
                content = gzip.encode(content)
            tail.append(content)
            head[number] = at, at + len(content)
            at += len(content)
        return head.tobytes(), b"".join(tail)

    def decode(self, store: Store, key: str) -> Extents:
        """See ShardIndex."""
        extents = np.full((len(self.ids), 2), MISSING, np.uint64)
        for minishard, index in MinishardReader(store, self.sharding).all(key):
            slots = np.searchsorted(self.ids, index.ids)
            # An id behind the last one has no slot, and one between two ids the slot of another.
            is_known = slots < len(self.ids)
            is_known[is_known] = self.ids[slots[is_known]] == index.ids[is_known]
            is_known &= self.sharding.minishards(index.ids) == minishard
            if not is_known.all() or len(np.unique(slots)) < len(slots):
                text = f"minishard {minishard} lists chunks twice, or chunks that do not belong to it"
                raise CorruptDataset(text, path=f"{store.url}/{key}")
            extents[slots, 0] = index.starts + np.uint64(self.head_bytes)
            extents[slots, 1] = index.sizes
        return extents


def free_z_bits(x: int, y: int) -> int:
    """Bits of a number of cells along z from which on more of them change no id, with so many cells along x and y.

    Bits of ids come in turn, z last: all bits of z beyond those of x and y lie above them, the first of these too.
    """
    return max(0, (max(x, y) - 1).bit_length() - 1)


@lru_cache(maxsize=16)
def _run_table(sharding: Sharding, bits: int) -> tuple[_Numbers, _Numbers, NDArray[np.intp]]:
    """All runs of 2^preshift_bits ids, sorted by shard; the shards; and where each begins in the runs, and the end."""
    count = 1 << max(0, bits - sharding.preshift_bits)
    runs = np.arange(count, dtype=np.uint64)
    shards = sharding.shards(runs << np.uint64(sharding.preshift_bits))
    order = np.argsort(shards, kind="stable")
    numbers, firsts = np.unique(shards[order], return_index=True)
    return runs[order], numbers, np.append(firsts, count)
