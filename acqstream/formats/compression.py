"""Compression of chunks, as N5 and Zarr name it: parameters with their defaults, and both directions.

N5 writes a compressor as an object with exactly these keys, all of them: some readers need each, others refuse what
they do not know. Sources: N5 file-system specification 4.0.0; the codec specifications of Zarr v3 and of its registry
of extensions; numcodecs for Zarr v2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import lz4.block

from acqstream.codecs import blosc, crc32c, gzip, lz4_block_stream, streams
from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import ConfigError, CorruptDataset

Parameters = Mapping[str, Any]
Allowed = Mapping[str, range | tuple[int | bool | str, ...]]

_MIB = 2**20
_XZ_MIB = (3, 9, 17, 32, 48, 94, 94, 186, 370, 674)  # by preset
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")  # names in Zarr of the numbers in N5
_BLOCK_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class _Kind:
    """One compressor: its parameters with their defaults and what each may be, and both directions.

    encode gets the data, the size of an item in bytes and the parameters; without it, it only reads. working_mib is
    more than what the library takes for itself meanwhile, by its documentation. dependent: parameters whose defaults
    follow from those that the user named. growth: the number of bytes that it adds, if that is fixed.
    """

    decode: Callable[[Data, int], Data | bytearray]
    encode: Callable[[Data, int, Parameters], Data] | None = None
    defaults: Parameters = field(default_factory=dict)
    allowed: Allowed = field(default_factory=dict)
    working_mib: Callable[[Parameters], int] = lambda _: 1
    dependent: Callable[[Parameters], Parameters] = lambda _: MappingProxyType({})
    growth: int | None = None


@dataclass(frozen=True, slots=True)
class CompressionTable:
    """The compressors of a format by name, with the words of its errors."""

    format: str
    label: str
    kinds: Mapping[str, _Kind]

    @property
    def written(self) -> tuple[str, ...]:
        """The names of those that can be chosen."""
        return tuple(name for name, kind in self.kinds.items() if kind.encode is not None)

    def parse(self, given: object) -> Compressor:
        """The compressor that a user asks for, by its name or e.g. {"type": "blosc", "cname": "zstd", "clevel": 3}.

        Parameters that are left out take defaults. Raises ConfigError.
        """
        wanted: object = {"type": given} if isinstance(given, str) else given
        name = wanted.get("type") if isinstance(wanted, Mapping) else None
        if not isinstance(wanted, Mapping) or not isinstance(name, str) or name not in self.written:
            expected = f"expected one of {', '.join(self.written)}, or an object with such a type"
            raise ConfigError(self.label.format(f"{given!r:.80}") + expected)
        kind, what = self.kinds[name], f"{self.format}compression {name}"
        named: dict[str, Any] = {}
        for key, value in wanted.items():
            if key == "type":
                continue
            allowed = kind.allowed.get(str(key))
            if allowed is None:
                raise ConfigError(f"{what} has no {key!r}, only {', '.join(kind.allowed) or 'its type'}")
            if type(value) is not type(kind.defaults[str(key)]) or value not in allowed:  # 6.0 and True are in a range
                raise ConfigError(f"{what}: {key} is {value!r:.80}, expected {_allowed_text(allowed)}")
            named[str(key)] = value
        return self.compressor(name, {**kind.defaults, **kind.dependent(named), **named}, frozenset(named))

    def decode(self, name: str, data: Data, size: int) -> Data | bytearray:
        """The data, `size` bytes, of one of these compressors. Raises CorruptDataset without a path."""
        return self.kinds[name].decode(data, size)

    def compressor(self, name: str, parameters: Parameters, named: frozenset[str] = frozenset()) -> Compressor:
        """The compressor with these parameters; of a read array as its document has them."""
        return _compressor(self.format, name, parameters, named)


@dataclass(frozen=True, slots=True)
class Compressor:
    """One compressor of the table of a format, complete and checked. named: the parameters that the user gave."""

    format: str
    name: str
    parameters: Parameters
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def fixed_growth(self) -> int | None:
        """The number of bytes that it adds; None if that depends on the data."""
        return self._kind.growth

    @property
    def working_bytes(self) -> int:
        """Memory that encoding takes at most, besides data and result."""
        return self._kind.working_mib(self.parameters) * _MIB

    def encode(self, data: Data, item_bytes: int) -> Data:
        """The compressed data; item_bytes is the size of an item."""
        if self._kind.encode is None:
            raise ValueError(f"compressor {self.name} only reads")
        return self._kind.encode(data, item_bytes, self.parameters)

    def decode(self, data: Data, size: int) -> Data | bytearray:
        """The data, `size` bytes. Raises CorruptDataset without a path."""
        return self._kind.decode(data, size)

    def to_json(self) -> dict[str, Any]:
        """The option of the user that means this compressor, with all its parameters; the object of N5."""
        return {"type": self.name, **self.parameters}

    def resumed(self, existing: Compressor) -> Compressor:
        """The compressor to resume an existing container with: its own, unless the user named something else.

        The defaults may have changed since the container was created.
        """
        is_same = all(existing.parameters.get(name) == self.parameters[name] for name in self.named)
        return existing if is_same and existing.name == self.name else self

    def __reduce__(self) -> tuple[Any, ...]:
        return _compressor, (self.format, self.name, dict(self.parameters), self.named)

    @property
    def _kind(self) -> _Kind:
        return _TABLES[self.format].kinds[self.name]


def _compressor(table: str, name: str, parameters: Parameters, named: frozenset[str]) -> Compressor:
    return Compressor(table, name, MappingProxyType(parameters), named)  # a read-only mapping cannot be pickled


def _blosc(shuffles: range | tuple[str, ...]) -> _Kind:
    """The kind whose parameter `shuffle` has these values in place of 0, 1 and 2."""

    def defaults(named: Parameters) -> Parameters:
        cname = named.get("cname", "lz4")
        shuffle = named.get("shuffle", shuffles[blosc.default_shuffle(cname)])
        return {"cname": cname, "clevel": blosc.default_level(cname, shuffles.index(shuffle)), "shuffle": shuffle}

    def encode(data: Data, item_bytes: int, given: Parameters) -> Data:
        return blosc.encode(data, item_bytes, **{**given, "shuffle": shuffles.index(given["shuffle"])})

    sizes = range(1 << 30)
    allowed: Allowed = {"cname": blosc.COMPRESSORS, "clevel": range(10), "shuffle": shuffles, "blocksize": sizes}
    return _Kind(blosc.decode, encode, {**defaults({}), "blocksize": 0}, allowed, lambda _: 16, defaults)


def _decode_lz4_block(data: Data, size: int) -> bytes:
    """lz4 of Zarr v2: the length of the data as u32 little-endian, then one LZ4 block."""
    if len(data) < _BLOCK_LENGTH.size:
        raise CorruptDataset(f"lz4: {len(data)} bytes, expected a length of {_BLOCK_LENGTH.size} bytes and a block")
    check_size("lz4", _BLOCK_LENGTH.unpack_from(data)[0], size)  # before decoding: no more memory than that
    try:
        decoded = lz4.block.decompress(memoryview(data)[_BLOCK_LENGTH.size :], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptDataset(f"lz4: {error}") from error
    check_size("lz4", len(decoded), size)
    return bytes(decoded)


def _allowed_text(allowed: range | tuple[int | bool | str, ...]) -> str:
    if isinstance(allowed, range):
        return f"{allowed[0]} to {allowed[-1]}"
    return "one of " + ", ".join(map(str, allowed))


_ZSTD = _Kind(
    streams.decode_zstd,
    lambda data, _, given: streams.encode_zstd(data, given["level"]),
    {"level": 3},
    {"level": range(-7, 20)},  # beyond, it takes a gigabyte
    lambda given: 16 if given["level"] < 10 else 128,
)
_N5_KINDS: Mapping[str, _Kind] = {
    "raw": _Kind(streams.decode_raw, lambda data, _, __: streams.encode_raw(data)),
    "gzip": _Kind(
        gzip.decode,
        lambda data, _, given: gzip.encode(data, given["level"], zlib=given["useZlib"]),
        {"level": 6, "useZlib": False},
        {"level": range(-1, 10), "useZlib": (False, True)},
    ),
    "bzip2": _Kind(
        streams.decode_bzip2,
        lambda data, _, given: streams.encode_bzip2(data, given["blockSize"]),
        {"blockSize": 9},
        {"blockSize": range(1, 10)},
        lambda _: 8,
    ),
    "xz": _Kind(
        streams.decode_xz,
        lambda data, _, given: streams.encode_xz(data, given["preset"]),
        {"preset": 6},
        {"preset": range(10)},
        lambda given: _XZ_MIB[given["preset"]],
    ),
    "lz4": _Kind(
        lz4_block_stream.decode,
        lambda data, _, given: lz4_block_stream.encode(data, given["blockSize"]),
        {"blockSize": lz4_block_stream.DEFAULT_BLOCK_SIZE},
        {"blockSize": range(lz4_block_stream.MIN_BLOCK_SIZE, lz4_block_stream.MAX_BLOCK_SIZE + 1)},
    ),
    "blosc": _blosc(range(3)),
    "zstd": _ZSTD,
}
_ZARR_KINDS: Mapping[str, _Kind] = {
    "none": _Kind(streams.decode_raw, lambda data, _, __: streams.encode_raw(data)),
    "blosc": _blosc(_SHUFFLES),
    "zstd": _ZSTD,
    "gzip": _Kind(
        gzip.decode,
        lambda data, _, given: gzip.encode(data, given["level"]),
        {"level": 6},
        {"level": range(10)},
    ),
    "crc32c": _Kind(crc32c.decode, growth=crc32c.LENGTH),
    "zlib": _Kind(gzip.decode),
    "bz2": _Kind(streams.decode_bzip2),
    "lz4": _Kind(_decode_lz4_block),
    "lzma": _Kind(streams.decode_xz),
}
ZARR_CODECS = ("blosc", "zstd", "gzip", "crc32c")  # of version 3
ZARR_V2_CODECS = ("blosc", "zstd", "gzip", "zlib", "bz2", "lz4", "lzma")

N5_COMPRESSION = CompressionTable("", "compression {}: ", _N5_KINDS)
ZARR_COMPRESSION = CompressionTable("OME-Zarr ", "OME-Zarr compression is {}, ", _ZARR_KINDS)
_TABLES = {table.format: table for table in (N5_COMPRESSION, ZARR_COMPRESSION)}
