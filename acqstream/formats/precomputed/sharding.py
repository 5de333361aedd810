"""Shards: many chunks in a file. Pure. Source: Neuroglancer precomputed sharded format, uint64_sharded_v1.

The id of a chunk is a compressed Morton code of its cell; the id, or its hash, chooses the shard and the minishard. A
shard file has

offset  size  type    field
0       16n   u64 LE  shard index: start and end of the index of each of the n = 2^minishard_bits minishards
16n     rest          chunks and minishard indices, in any order

Offsets count from the end of the shard index. A minishard index has three rows of u64 LE: ids, as differences to the
one before; starts of chunks, as differences to the end of the chunk before; sizes. All sums are modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import gzip
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.model.fields import Fields
from acqstream.storage.stores.store import Store

ENTRY_BYTES = 16  # of the shard index, one minishard
MAX_INDEX_BYTES = 64 * 2**20  # of a minishard index, decoded or stored

_KIND = "neuroglancer_uint64_sharded_v1"
_MASK64, _MASK32 = 2**64 - 1, 2**32 - 1
Hash = Literal["identity", "murmurhash3_x86_128"]
Packing = Literal["raw", "gzip"]
Three = tuple[int, int, int]
"""x, y and z."""

_PACKINGS: tuple[Packing, ...] = ("raw", "gzip")
_Number = TypeVar("_Number", int, NDArray[np.uint64])


@dataclass(frozen=True, slots=True)
class Sharding:
    """Parameters of a scale's shards."""

    preshift_bits: int
    hash: Hash
    minishard_bits: int
    shard_bits: int
    index_encoding: Packing
    data_encoding: Packing

    @property
    def index_bytes(self) -> int:
        """Length of the shard index."""
        return ENTRY_BYTES << self.minishard_bits

    def place(self, chunk: int) -> tuple[int, int]:
        """The shard and the minishard of a chunk id."""
        value = chunk >> self.preshift_bits
        if self.hash != "identity":
            value = murmur_hash(value)
        # The lowest bits number the minishard, the next ones the shard; higher ones have no meaning.
        minishard = value & ((1 << self.minishard_bits) - 1)
        return (value >> self.minishard_bits) & ((1 << self.shard_bits) - 1), minishard

    def minishards(self, chunks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The minishard of each chunk id."""
        return self._hashed(chunks) & np.uint64((1 << self.minishard_bits) - 1)

    def shards(self, chunks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The shard of each chunk id."""
        if not self.shard_bits:
            return np.zeros(len(chunks), np.uint64)
        return (self._hashed(chunks) >> np.uint64(self.minishard_bits)) & np.uint64((1 << self.shard_bits) - 1)

    def _hashed(self, chunks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        values = chunks >> np.uint64(self.preshift_bits)
        return values if self.hash == "identity" else murmur_hash(values)

    def shard_name(self, shard: int) -> str:
        """The file of a shard: lowercase hexadecimal of a fixed length."""
        return f"{shard:0{max(1, -(-self.shard_bits // 4))}x}.shard"

    def parse_shard_name(self, name: str) -> int | None:
        """The inverse of `shard_name`; None for any other name."""
        digits = name.removesuffix(".shard")
        if not 0 < len(digits) <= 16 or not set(digits) <= set("0123456789abcdef"):
            return None
        shard = int(digits, 16)
        return shard if self.shard_name(shard) == name and shard < 1 << self.shard_bits else None


@dataclass(frozen=True, slots=True)
class MinishardIndex:
    """Chunks of a minishard: ids, starts (from the end of the shard index) and sizes in bytes, arrays of uint64."""

    ids: NDArray[np.uint64]
    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]

    def find(self, chunk: int, where: str) -> tuple[int, int] | None:
        """Start and size of a chunk; None if it is not stored. Raises CorruptDataset if it is listed twice."""
        rows = np.flatnonzero(self.ids == np.uint64(chunk))
        if len(rows) > 1:
            raise CorruptDataset(f"a minishard index lists chunk {chunk} {len(rows)} times", path=where)
        return (int(self.starts[rows[0]]), int(self.sizes[rows[0]])) if len(rows) else None


def encode_sharding(sharding: Sharding) -> dict[str, Any]:
    """The inverse of `parse_sharding`."""
    return {
        "@type": _KIND,
        "preshift_bits": sharding.preshift_bits,
        "hash": sharding.hash,
        "minishard_bits": sharding.minishard_bits,
        "shard_bits": sharding.shard_bits,
        "minishard_index_encoding": sharding.index_encoding,
        "data_encoding": sharding.data_encoding,
    }


def parse_sharding(fields: Fields, path: str) -> Sharding:
    """The `sharding` of a scale. Raises CorruptDataset, and UnsupportedFeature for another kind of it."""
    kind, hashed = fields.text("@type"), fields.text("hash")
    if kind != _KIND:
        raise UnsupportedFeature(f"{path}: sharding of @type {kind!r:.80}; {_KIND} is read")
    if hashed not in ("identity", "murmurhash3_x86_128"):
        raise UnsupportedFeature(
            f"{path}: sharding with hash {hashed!r:.80}; identity and murmurhash3_x86_128 are read"
        )
    minishard_bits = fields.integer("minishard_bits", maximum=32)
    return Sharding(
        preshift_bits=fields.integer("preshift_bits", maximum=63),
        hash="identity" if hashed == "identity" else "murmurhash3_x86_128",
        minishard_bits=minishard_bits,
        shard_bits=fields.integer("shard_bits", maximum=64 - minishard_bits),
        index_encoding=_encoding(fields, "minishard_index_encoding"),
        data_encoding=_encoding(fields, "data_encoding"),
    )


def _encoding(fields: Fields, name: str) -> Packing:
    return fields.choice(name, _PACKINGS) if name in fields else "raw"


def chunk_id(cell: Sequence[int], grid: Sequence[int]) -> int:
    """The compressed Morton code of a cell (x, y, z) in a grid: bits in turn, x lowest; axes that end drop out."""
    counts = _bits(grid)
    found = place = 0
    for bit in range(max(counts)):
        going = [axis for axis, count in enumerate(counts) if bit < count]
        if len(going) == 1:  # all its further bits follow
            return found | cell[going[0]] >> bit << place
        for axis in going:
            found |= (cell[axis] >> bit & 1) << place
            place += 1
    return found


def cell_of(chunk: int, grid: Sequence[int]) -> tuple[int, ...] | None:
    """The inverse of `chunk_id`; None for an id without a cell in the grid."""
    cell, counts = [0, 0, 0], _bits(grid)
    # The same walk through the bits as in `chunk_id`.
    for bit in range(max(counts)):
        going = [axis for axis, count in enumerate(counts) if bit < count]
        if len(going) == 1:
            cell[going[0]] |= chunk << bit
            chunk = 0
            break
        for axis in going:
            cell[axis] |= (chunk & 1) << bit
            chunk >>= 1
    is_inside = not chunk and all(at < size for at, size in zip(cell, grid, strict=True))
    return tuple(cell) if is_inside else None


def id_bits(grid: Sequence[int]) -> int:
    """Number of bits of the largest id of this grid."""
    return sum(_bits(grid))


def _bits(grid: Sequence[int]) -> list[int]:
    return [max(0, size - 1).bit_length() for size in grid]


def parse_entries(data: bytes) -> NDArray[np.uint64]:
    """Entries of a shard index as an array (n, 2): start and end."""
    return np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, 2)


def parse_minishard_index(data: bytes, where: str) -> MinishardIndex:
    """The decoded index of a minishard. Raises CorruptDataset that names `where`."""
    if len(data) % 24:
        raise CorruptDataset(f"a minishard index of {len(data)} bytes, expected a multiple of 24", path=where)
    ids, starts, sizes = np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(3, -1)
    ends = np.cumsum(starts + sizes, dtype=np.uint64)  # wraps modulo 2^64: differences may be negative
    return MinishardIndex(np.cumsum(ids, dtype=np.uint64), ends - sizes, sizes)


def encode_minishard_index(ids: NDArray[np.uint64], starts: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> bytes:
    """The inverse of `parse_minishard_index`, before any compression; ids ascend."""
    rows = np.zeros((3, len(ids)), np.uint64)
    rows[0], rows[1], rows[2] = ids, starts, sizes
    rows[0, 1:] -= ids[:-1]
    rows[1, 1:] -= starts[:-1] + sizes[:-1]  # modulo 2^64: chunks may lie in any order
    return rows.astype("<u8").tobytes()


def murmur_hash(value: _Number) -> _Number:
    """The low 64 bits of MurmurHash3_x86_128, seed 0, of the 8 bytes of a number in little-endian. Public domain.

    Of an array of uint64 those of each number: no product or sum in here is larger.
    """
    c1, c2, c3 = 0x239B961B, 0xAB0E9789, 0x38B34AE5
    # Eight bytes are a tail: the first four go into the first lane, the others into the second one.
    number: Any = value
    k1, k2 = number & _MASK32, number >> 32 & _MASK32
    h2 = _rotated(k2 * c2, 16) * c3 & _MASK32
    h1 = _rotated(k1 * c1, 15) * c2 & _MASK32
    h1, h2, h3, h4 = h1 ^ 8, h2 ^ 8, 8, 8
    # The length, 8, goes into each lane; then the lanes are mixed twice, with the last mixing of each in between.
    for _ in range(2):
        h1 = (h1 + h2 + h3 + h4) & _MASK32
        h2, h3, h4 = ((one + h1) & _MASK32 for one in (h2, h3, h4))
        if _ == 0:
            h1, h2, h3, h4 = map(_mixed, (h1, h2, h3, h4))
    hashed: _Number = (h2 << 32 | h1) & _MASK64
    return hashed


def _rotated(value: Any, bits: int) -> Any:
    value = value & _MASK32
    return (value << bits | value >> (32 - bits)) & _MASK32


def _mixed(value: Any) -> Any:
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK32
    return value ^ value >> 16


_ENTRIES_AT_ONCE = 65536  # entries of a shard index, which may have 2^32


@dataclass(frozen=True, slots=True)
class MinishardReader:
    """Reads shards by key, and remembers nothing. Methods raise CorruptDataset, StorageError."""

    store: Store
    sharding: Sharding

    def find(self, key: str, minishard: int) -> MinishardIndex | None:
        """The index of a minishard; None if it has no chunks, or there is no such shard."""
        entry = self.store.get(key, minishard * ENTRY_BYTES, ENTRY_BYTES)
        if entry is None:
            return None
        if len(entry) < ENTRY_BYTES:
            raise self._short_index(key)
        return self._index(key, *parse_entries(entry)[0].tolist())

    def all(self, key: str) -> Iterator[tuple[int, MinishardIndex]]:
        """The minishards that have chunks, by number, with their indices."""
        count, step = 1 << self.sharding.minishard_bits, _ENTRIES_AT_ONCE
        for first in range(0, count, step):
            length = ENTRY_BYTES * min(step, count - first)
            data = self.store.get(key, first * ENTRY_BYTES, length)
            if data is None:
                return  # removed meanwhile
            if len(data) < length:
                raise self._short_index(key)
            entries = parse_entries(data)
            # An empty minishard starts where it ends.
            for row in np.flatnonzero(entries[:, 0] != entries[:, 1]).tolist():
                index = self._index(key, int(entries[row, 0]), int(entries[row, 1]))
                if index is not None:
                    yield first + row, index

    def payload(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes from `start` on, which counts from the end of the shard index."""
        return self._read(key, self.sharding.index_bytes + start, size, "a chunk")

    def _index(self, key: str, start: int, end: int) -> MinishardIndex | None:
        where, offset = f"{self.store.url}/{key}", self.sharding.index_bytes + start
        if start == end:
            return None
        # Checked before the read, which takes so much memory.
        if not 0 < end - start <= MAX_INDEX_BYTES:
            text = f"a minishard index from {start} to {end}, expected 1 to {MAX_INDEX_BYTES} bytes"
            raise CorruptDataset(text, path=where)
        data = self._read(key, offset, end - start, "a minishard index")
        if self.sharding.index_encoding == "gzip":
            data = unpacked(data, MAX_INDEX_BYTES, where, offset)
        return parse_minishard_index(data, where)

    def _read(self, key: str, offset: int, size: int, what: str) -> bytes:
        data = self.store.get(key, offset, size) if offset < 2**63 else b""  # no file is longer
        if data is None or len(data) < size:
            text = f"{what} of {size} bytes reaches beyond the end of the file"
            raise CorruptDataset(text, path=f"{self.store.url}/{key}", offset=offset)
        return data

    def _short_index(self, key: str) -> CorruptDataset:
        text = f"is shorter than its shard index of {self.sharding.index_bytes} bytes"
        return CorruptDataset(text, path=f"{self.store.url}/{key}")


def unpacked(data: bytes, max_bytes: int, where: str, offset: int) -> bytes:
    """The content of gzip data. Raises CorruptDataset."""
    try:
        return gzip.decode_at_most(data, max_bytes)
    except CorruptDataset as error:
        raise CorruptDataset(str(error), path=where, offset=offset) from error
