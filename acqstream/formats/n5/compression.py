"""The `compression` object of a dataset, and what it does to the payload of a block.

Its keys are exactly these, all of them: some readers need each, others refuse what they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from acqstream.codecs import blosc, gzip, lz4_block_stream
from acqstream.codecs.sizes import Data
from acqstream.codecs.streams import (
    decode_bzip2,
    decode_raw,
    decode_xz,
    decode_zstd,
    encode_bzip2,
    encode_raw,
    encode_xz,
    encode_zstd,
)
from acqstream.errors import ConfigError

Parameter = int | bool | str
Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One `type`: its parameters with their defaults and what each may be, and both directions.

    dependent: parameters whose defaults follow from those that the user named. encode gets the payload, the size of an
    item in bytes and the parameters. working_mib is more than what the library takes for itself meanwhile, by its
    documentation, in MiB.
    """

    defaults: Parameters
    allowed: Mapping[str, range | tuple[Parameter, ...]]
    encode: Callable[[Data, int, Parameters], Data]
    decode: Callable[[Data, int], Data | bytearray]
    working_mib: Callable[[Parameters], int] = lambda _: 1
    dependent: Callable[[Parameters], Parameters] = lambda _: MappingProxyType({})


def _blosc_defaults(named: Parameters) -> Parameters:
    cname = named.get("cname", "lz4")
    shuffle = named.get("shuffle", blosc.default_shuffle(cname))
    return {"cname": cname, "clevel": blosc.default_level(cname, shuffle), "shuffle": shuffle}


_XZ_MIB = (3, 9, 17, 32, 48, 94, 94, 186, 370, 674)  # by preset
_KINDS: Mapping[str, _Kind] = {
    "raw": _Kind({}, {}, lambda data, _, __: encode_raw(data), decode_raw),
    "gzip": _Kind(
        {"level": 6, "useZlib": False},
        {"level": range(-1, 10), "useZlib": (False, True)},
        lambda data, _, given: gzip.encode(data, given["level"], zlib=given["useZlib"]),
        gzip.decode,
    ),
    "bzip2": _Kind(
        {"blockSize": 9},
        {"blockSize": range(1, 10)},
        lambda data, _, given: encode_bzip2(data, given["blockSize"]),
        decode_bzip2,
        lambda _: 8,
    ),
    "xz": _Kind(
        {"preset": 6},
        {"preset": range(10)},
        lambda data, _, given: encode_xz(data, given["preset"]),
        decode_xz,
        lambda given: _XZ_MIB[given["preset"]],
    ),
    "lz4": _Kind(
        {"blockSize": lz4_block_stream.DEFAULT_BLOCK_SIZE},
        {"blockSize": range(lz4_block_stream.MIN_BLOCK_SIZE, lz4_block_stream.MAX_BLOCK_SIZE + 1)},
        lambda data, _, given: lz4_block_stream.encode(data, given["blockSize"]),
        lz4_block_stream.decode,
    ),
    "blosc": _Kind(
        {**_blosc_defaults({}), "blocksize": 0},
        {"cname": blosc.COMPRESSORS, "clevel": range(10), "shuffle": range(3), "blocksize": range(1 << 30)},
        lambda data, item_bytes, given: blosc.encode(data, item_bytes, **given),
        blosc.decode,
        lambda _: 16,
        _blosc_defaults,
    ),
    "zstd": _Kind(
        {"level": 3},
        {"level": range(-7, 20)},  # beyond, it takes a gigabyte
        lambda data, _, given: encode_zstd(data, given["level"]),
        decode_zstd,
        lambda given: 16 if given["level"] < 10 else 128,
    ),
}
TYPES = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class Compression:
    """Compression of written blocks; complete and checked. named: the parameters that the user gave."""

    type: str
    parameters: Parameters
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def parse(cls, given: object) -> Compression:
        """From what a user wrote: a type, or an object as in attributes.json, parameters left out taking defaults.

        Raises ConfigError.
        """
        wanted: Mapping[object, object] = {"type": given} if isinstance(given, str) else cast("Any", given)
        if not isinstance(wanted, Mapping) or wanted.get("type") not in TYPES:
            raise ConfigError(
                f"compression {given!r:.80}: expected one of {', '.join(TYPES)}, or an object with such a type"
            )
        name = str(wanted["type"])
        kind = _KINDS[name]
        named: dict[str, Any] = {}
        for key, value in wanted.items():
            if key == "type":
                continue
            allowed = kind.allowed.get(str(key))
            if allowed is None:
                raise ConfigError(f"compression {name} has no {key!r}, only {', '.join(kind.allowed) or 'its type'}")
            if value not in allowed or type(value) is not type(kind.defaults[str(key)]):  # 6.0 and True are in a range
                raise ConfigError(f"compression {name}: {key} is {value!r:.80}, expected {_allowed_text(allowed)}")
            named[str(key)] = value
        parameters = {**kind.defaults, **kind.dependent(named), **named}
        return cls(name, MappingProxyType(parameters), frozenset(named))

    def resumed(self, existing: Compression) -> Compression:
        """The compression to resume an existing container with: its own, unless the user named something else.

        The defaults may have changed since the container was created.
        """
        is_same = all(existing.parameters.get(name) == self.parameters[name] for name in self.named)
        return existing if is_same and existing.type == self.type else self

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in attributes.json."""
        return {"type": self.type, **self.parameters}

    def encode(self, data: Data, item_bytes: int) -> Data:
        """The payload of a block as it is stored; item_bytes is the size of an item."""
        return _KINDS[self.type].encode(data, item_bytes, self.parameters)

    @property
    def working_bytes(self) -> int:
        """The most memory that encoding takes besides what goes in and what comes out."""
        return _KINDS[self.type].working_mib(self.parameters) * 1024 * 1024

    def __reduce__(self) -> tuple[Any, ...]:
        return _compression, (self.type, dict(self.parameters), self.named)  # a read-only mapping cannot be pickled


def decode(name: str, data: Data, size: int) -> Data | bytearray:
    """The payload of a block, `size` bytes. name is the type, one of TYPES. Raises CorruptDataset without a path."""
    return _KINDS[name].decode(data, size)


def _compression(name: str, parameters: Parameters, named: frozenset[str]) -> Compression:
    return Compression(name, MappingProxyType(parameters), named)


def _allowed_text(allowed: range | tuple[Parameter, ...]) -> str:
    if isinstance(allowed, range):
        return f"{allowed.start} to {allowed.stop - 1}"
    return "one of " + ", ".join(map(str, allowed))
