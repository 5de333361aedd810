"""Compressors of chunks: the codecs `blosc`, `zstd`, `gzip` and `crc32c` of Zarr v3.

Sources: the codec specifications of Zarr v3 and of its registry of extensions. Each `configuration` is written with
all its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from acqstream.codecs import blosc, crc32c, gzip
from acqstream.codecs.sizes import Data
from acqstream.codecs.streams import decode_bzip2, decode_xz, decode_zstd, encode_zstd
from acqstream.errors import ConfigError, UnsupportedFeature
from acqstream.formats.ome_zarr import lz4_block

Parameters = Mapping[str, Any]

_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")  # the number that blosc gives them
_MIB = 2**20


def _blosc_defaults(named: Parameters) -> Parameters:
    cname = named.get("cname", "lz4")
    shuffle = named.get("shuffle", _SHUFFLES[blosc.default_shuffle(cname)])
    return {"cname": cname, "clevel": blosc.default_level(cname, _SHUFFLES.index(shuffle)), "shuffle": shuffle}


_ALLOWED: Mapping[str, Mapping[str, range | tuple[Any, ...]]] = {
    "none": {},
    "blosc": {"cname": blosc.COMPRESSORS, "clevel": range(10), "shuffle": _SHUFFLES, "blocksize": range(1 << 30)},
    "zstd": {"level": range(-7, 20)},  # beyond, it takes a gigabyte
    "gzip": {"level": range(10)},
}
_DEFAULTS: Mapping[str, Parameters] = {
    "none": {},
    "blosc": {**_blosc_defaults({}), "blocksize": 0},
    "zstd": {"level": 3},
    "gzip": {"level": 6},
}
_DECODERS: Mapping[str, Callable[[Data, int], Data | bytearray]] = {
    "blosc": blosc.decode,
    "zstd": decode_zstd,
    "gzip": gzip.decode,
    "crc32c": crc32c.decode,
}
_V2_DECODERS: Mapping[str, Callable[[Data, int], Data | bytearray]] = {
    **{name: _DECODERS[name] for name in ("blosc", "zstd", "gzip")},
    "zlib": gzip.decode,
    "bz2": decode_bzip2,
    "lz4": lz4_block.decode,
    "lzma": decode_xz,
}
_ALL_DECODERS = {**_V2_DECODERS, **_DECODERS}


@dataclass(frozen=True, slots=True)
class Compressor:
    """One bytes-to-bytes codec. parameters are those of `parse_option`; of a read array as its document has them.

    named: the parameters that the user gave.
    """

    name: str
    parameters: Parameters
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def fixed_growth(self) -> int | None:
        """The number of bytes that it adds; None if that depends on the data."""
        return crc32c.LENGTH if self.name == "crc32c" else None

    @property
    def working_bytes(self) -> int:
        """Memory that encoding takes at most, besides data and result."""
        if self.name == "zstd":
            return (16 if self.parameters["level"] < 10 else 128) * _MIB
        return {"blosc": 16 * _MIB, "gzip": _MIB}.get(self.name, 0)

    def encode(self, data: Data, item_bytes: int) -> Data:
        """The compressed data; item_bytes is the size of an item."""
        given = self.parameters
        if self.name == "blosc":
            shuffle = _SHUFFLES.index(given["shuffle"])
            return blosc.encode(
                data,
                item_bytes,
                cname=given["cname"],
                clevel=given["clevel"],
                shuffle=shuffle,
                blocksize=given["blocksize"],
            )
        return encode_zstd(data, given["level"]) if self.name == "zstd" else gzip.encode(data, given["level"])

    def decode(self, data: Data, size: int) -> Data | bytearray:
        """The data, `size` bytes. Raises CorruptDataset without a path."""
        return _ALL_DECODERS[self.name](data, size)

    def to_json(self, item_bytes: int) -> dict[str, Any]:
        """The codec as it stands in zarr.json."""
        configuration = dict(self.parameters)
        if self.name == "blosc":
            configuration["typesize"] = item_bytes
        if self.name == "zstd":
            configuration["checksum"] = False
        return {"name": self.name, "configuration": configuration}

    def option(self) -> dict[str, Any]:
        """The option of the user that means this compressor, with all its parameters."""
        return {"type": self.name, **self.parameters}

    def resumed(self, existing: Compressor) -> Compressor:
        """The compressor to resume an existing container with: its own, unless the user named something else.

        The defaults may have changed since the container was created.
        """
        is_same = all(existing.parameters.get(name) == self.parameters[name] for name in self.named)
        return existing if is_same and existing.name == self.name else self

    def __reduce__(self) -> tuple[Any, ...]:
        return _compressor, (self.name, dict(self.parameters), self.named)  # a read-only mapping cannot be pickled


def parse_option(given: object) -> Compressor:
    """The compressor that a user asks for, by its name or e.g. {"type": "blosc", "cname": "zstd", "clevel": 3}.

    "none" stands for no compressor. Raises ConfigError.
    """
    wanted: object = {"type": given} if isinstance(given, str) else given
    if not isinstance(wanted, Mapping) or not isinstance(wanted.get("type"), str) or wanted["type"] not in _ALLOWED:
        expected = f"one of {', '.join(_ALLOWED)}, or an object with such a type"
        raise ConfigError(f"OME-Zarr compression is {given!r:.80}, expected {expected}")
    name = wanted["type"]
    defaults, named = _DEFAULTS[name], dict[str, Any]()
    for key, value in wanted.items():
        if key == "type":
            continue
        if key not in defaults:
            raise ConfigError(f"OME-Zarr compression {name} has no {key!r}, only {', '.join(defaults) or 'its type'}")
        allowed = _ALLOWED[name][key]
        if type(value) is not type(defaults[key]) or value not in allowed:
            bounds = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else f"one of {', '.join(allowed)}"
            raise ConfigError(f"OME-Zarr compression {name}: {key} is {value!r:.80}, expected {bounds}")
        named[key] = value
    dependent = _blosc_defaults(named) if name == "blosc" else {}
    return _compressor(name, {**defaults, **dependent, **named}, frozenset(named))


def read_compressor(name: str, configuration: Parameters, where: str, *, is_v2: bool = False) -> Compressor:
    """A codec of an array that is read; is_v2: of Zarr v2.

    Raises UnsupportedFeature for one that acqstream does not decode.
    """
    known = _V2_DECODERS if is_v2 else _DECODERS
    if name not in known:
        raise UnsupportedFeature(f"{where}: codec {name!r:.60}; acqstream decodes {', '.join(known)}")
    return _compressor(name, dict(configuration))


def _compressor(name: str, parameters: Parameters, named: frozenset[str] = frozenset()) -> Compressor:
    return Compressor(name, MappingProxyType(parameters), named)
