"""`zarr.json` of an array, and `.zarray` of Zarr v2, which OME-Zarr 0.4 and older has and which is only read. Pure.

Sources: Zarr v3 core, "Array metadata", and codec `sharding_indexed`; Zarr v2, "Arrays".
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from acqstream.errors import UnsupportedFeature
from acqstream.formats.compression import ZARR_CODECS, ZARR_COMPRESSION, ZARR_V2_CODECS, Compressor
from acqstream.formats.ome_zarr.codec import ChunkCodecs, IndexCodec, KeyEncoding, ZarrArray
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

DOCUMENT_NAME = "zarr.json"
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
MAX_NDIM = 32
MAX_CHUNK_BYTES = 2**31 - 1  # of a decoded chunk
_MAX_EXTENT = 2**63 - 1
_MAX_CODECS = 100  # of a chain: each is time for every chunk
_MAX_SHARD_CHUNKS = 2**22  # its index has 64 MiB then
_NOT_FINITE: Mapping[str, float] = MappingProxyType({"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf})
_MEMBERS = frozenset(
    (
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "attributes",
        "dimension_names",
        "storage_transformers",
        "consolidated_metadata",
    )
)


ParseText = Callable[[str, np.dtype[np.generic]], Any]
"""An item from a text that is no number."""


def array_document(array: ZarrArray) -> dict[str, Any]:
    """The document of an array whose codecs have no `order`."""
    item_bytes = array.dtype.itemsize
    endian: dict[str, Any] = {"name": "bytes"}
    if item_bytes > 1:
        endian["configuration"] = {"endian": "big" if array.codecs.dtype.byteorder == ">" else "little"}
    codecs = [endian, *(_codec_json(one, item_bytes) for one in array.codecs.compressors)]
    if array.shard_shape:
        index_codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        configuration = {"chunk_shape": [*array.chunk_shape], "codecs": codecs, "index_codecs": index_codecs}
        codecs = [{"name": "sharding_indexed", "configuration": {**configuration, "index_location": "end"}}]
    grid_shape = array.shard_shape or array.chunk_shape
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [*array.shape],
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*grid_shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if array.dtype.kind == "b" else 0,
        "codecs": codecs,
        "attributes": dict(array.attributes),
        "dimension_names": [*array.dimension_names],
    }


def parse_array(content: bytes, where: str) -> ZarrArray:
    """The array that a document describes. Raises CorruptDataset, UnsupportedFeature that name `where`."""
    fields = parse_fields(content, where, max_integer=_MAX_EXTENT)
    if (fields.integer("zarr_format"), fields.text("node_type")) != (3, "array"):
        raise fields.wrong("node_type", "array, with zarr_format 3")
    _check_members(fields, where)
    shape = _shape(fields)
    dtype = _dtype(fields, where)
    grid = _named(fields.values.get("chunk_grid"), fields, "chunk_grid")
    if grid[0] != "regular":
        raise UnsupportedFeature(f"{where}: chunk grid {grid[0]!r:.60}, expected regular")
    outer = grid[1].integers("chunk_shape", len(shape), minimum=1)
    codecs, shard_shape, index = _codecs(fields, outer, dtype, where)
    names = fields.values.get("dimension_names")
    return ZarrArray(
        shape=shape,
        codecs=codecs,
        shard_shape=shard_shape,
        index=index,
        keys=_key_encoding(fields, where),
        fill=_fill(fields, dtype, _hex_item),
        dimension_names=_dimension_names(fields, len(shape)) if names is not None else ("",) * len(shape),
        attributes=fields.mapping("attributes"),
    )


def read_compressor(
    name: str, configuration: Mapping[str, Any], where: str, known: tuple[str, ...] = ZARR_CODECS
) -> Compressor:
    """A codec of an array that is read. Raises UnsupportedFeature for one that is not among the known ones."""
    if name not in known:
        raise UnsupportedFeature(f"{where}: codec {name!r:.60}; acqstream decodes {', '.join(known)}")
    return ZARR_COMPRESSION.compressor(name, dict(configuration))


def _codec_json(compressor: Compressor, item_bytes: int) -> dict[str, Any]:
    """A codec as it stands in `zarr.json`. Each `configuration` is written with all its keys."""
    configuration = dict(compressor.parameters)
    if compressor.name == "blosc":
        configuration["typesize"] = item_bytes
    if compressor.name == "zstd":
        configuration["checksum"] = False
    return {"name": compressor.name, "configuration": configuration}


def _check_members(fields: Fields, where: str) -> None:
    for name, value in fields.values.items():
        if name not in _MEMBERS and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise UnsupportedFeature(f"{where}: unknown member {name!r:.60} of the array")
    if fields.values.get("storage_transformers"):
        raise UnsupportedFeature(f"{where}: storage_transformers")


def _named(value: object, fields: Fields, place: str) -> tuple[str, Fields]:
    """Name and configuration of an extension; the short form is its name alone."""
    if isinstance(value, str):
        return value, Fields({}, f"{place}.", fields._error)
    named = Fields(value, f"{place}.", fields._error, _MAX_EXTENT)
    configuration = named.values.get("configuration")
    return named.text("name"), Fields(
        {} if configuration is None else configuration, f"{place}.configuration.", fields._error, _MAX_EXTENT
    )


def _all_named(fields: Fields, name: str) -> Iterator[tuple[str, Fields]]:
    values = fields.items(name)
    if len(values) > _MAX_CODECS:
        raise fields.wrong(name, f"a list of at most {_MAX_CODECS} codecs")
    for at, value in enumerate(values):
        yield _named(value, fields, f"{name}[{at}]")


def _dtype(fields: Fields, where: str) -> np.dtype[np.generic]:
    given = fields.values.get("data_type")
    name = given.get("name") if isinstance(given, dict) else given
    if name not in DTYPES:
        raise UnsupportedFeature(f"{where}: data_type {given!r:.60}; acqstream reads {', '.join(DTYPES)}")
    return np.dtype(str(name))


def _key_encoding(fields: Fields, where: str) -> KeyEncoding:
    name, configuration = _named(fields.values.get("chunk_key_encoding"), fields, "chunk_key_encoding")
    if name not in ("default", "v2"):
        raise UnsupportedFeature(f"{where}: chunk_key_encoding {name!r:.60}, expected default or v2")
    separator = configuration.text("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        raise configuration.wrong("separator", "/ or .")
    return KeyEncoding(name == "default", "/" if separator == "/" else ".")


def _shape(fields: Fields) -> tuple[int, ...]:
    shape = fields.integers("shape")
    if len(shape) > MAX_NDIM or math.prod(shape) > _MAX_EXTENT:
        raise fields.wrong("shape", f"at most {MAX_NDIM} axes and 2^63 - 1 items")
    return shape


def _check_chunk(shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> None:
    if math.prod(shape) * dtype.itemsize > MAX_CHUNK_BYTES:
        raise UnsupportedFeature(f"{where}: chunks of {shape} of {dtype}, at most {MAX_CHUNK_BYTES} bytes can be read")


def _dimension_names(fields: Fields, ndim: int) -> tuple[str, ...]:
    names = fields.items("dimension_names", ndim)
    if not all(name is None or isinstance(name, str) for name in names):
        raise fields.wrong("dimension_names", "strings or null")
    return tuple(name or "" for name in names)


def _fill(fields: Fields, dtype: np.dtype[np.generic], parse_text: ParseText) -> Any:
    """The fill value as an item. Sources: Zarr v3 core, "Fill value"; Zarr v2, "Fill value encoding"."""
    value = fields.values.get("fill_value")
    try:
        if dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
            half = np.dtype(f"f{dtype.itemsize // 2}")
            return dtype.type(complex(*(float(_fill_item(part, half, parse_text)) for part in value)))
        return _fill_item(value, dtype, parse_text)
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise fields.wrong("fill_value", f"an item of {dtype}") from error


def _fill_item(value: object, dtype: np.dtype[np.generic], parse_text: ParseText) -> Any:
    if dtype.kind in "fc" and isinstance(value, str) and value in _NOT_FINITE:
        return dtype.type(_NOT_FINITE[value])
    if isinstance(value, str):
        return parse_text(value, dtype)
    if dtype.kind == "b" and isinstance(value, bool):
        return dtype.type(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (dtype.kind in "biu" and value != int(value)):
        raise TypeError(f"{value!r:.60} is not an item of {dtype}")
    return np.array(int(value) if dtype.kind in "iu" else value, dtype)[()]


def _hex_item(text: str, dtype: np.dtype[np.generic]) -> Any:
    """An item from its bytes in hexadecimal digits."""
    if dtype.kind != "f" or not text.startswith("0x"):
        raise TypeError(f"{text!r:.60} is not an item of {dtype}")
    return np.array([int(text, 16)], f"u{dtype.itemsize}").view(dtype)[0]


def _codecs(
    fields: Fields, outer: tuple[int, ...], dtype: np.dtype[np.generic], where: str
) -> tuple[ChunkCodecs, tuple[int, ...], IndexCodec | None]:
    """The codecs of a chunk, the shape of a shard and its index."""
    named = list(_all_named(fields, "codecs"))
    if not named or named[0][0] != "sharding_indexed":
        if any(name == "sharding_indexed" for name, _ in named):
            raise UnsupportedFeature(f"{where}: codecs before sharding_indexed")
        return _chain(named, outer, dtype, where), (), None
    if len(named) > 1:
        raise UnsupportedFeature(f"{where}: codec {named[1][0]!r:.60} after sharding_indexed")
    configuration = named[0][1]
    inner = configuration.integers("chunk_shape", len(outer), minimum=1)
    if any(size % step for size, step in zip(outer, inner, strict=True)):
        raise configuration.wrong("chunk_shape", f"a divisor of the shard's shape {outer}")
    count = math.prod(size // step for size, step in zip(outer, inner, strict=True))
    if count > _MAX_SHARD_CHUNKS:
        raise UnsupportedFeature(f"{where}: {count} chunks in a shard, at most {_MAX_SHARD_CHUNKS} can be read")
    codecs = _chain(list(_all_named(configuration, "codecs")), inner, dtype, where)
    return codecs, outer, _index(configuration, count, where)


def _index(configuration: Fields, count: int, where: str) -> IndexCodec:
    if "index_location" in configuration and configuration.text("index_location") not in ("start", "end"):
        raise configuration.wrong("index_location", "start or end")
    named = list(_all_named(configuration, "index_codecs"))
    names = [name for name, _ in named]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise UnsupportedFeature(f"{where}: index_codecs {names!r:.80}, expected bytes and crc32c")
    order = _byte_order(named[0][1], 8)
    return IndexCodec(count, configuration.text("index_location", "end") == "end", len(names) == 2, order)


def _chain(
    named: Sequence[tuple[str, Fields]], shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str
) -> ChunkCodecs:
    """The codecs of a chunk without shards: any `transpose`, then `bytes`, then compressors."""
    _check_chunk(shape, dtype, where)
    order: tuple[int, ...] = ()
    rest = list(named)
    while rest and rest[0][0] == "transpose":
        step = _order(rest.pop(0)[1], len(shape))
        order = tuple(order[axis] for axis in step) if order else step
    if not rest or rest[0][0] != "bytes":
        found = rest[0][0] if rest else "none"
        raise UnsupportedFeature(f"{where}: array-to-bytes codec {found!r:.60}, expected bytes or sharding_indexed")
    stored = dtype.newbyteorder(_byte_order(rest.pop(0)[1], dtype.itemsize))
    compressors = [read_compressor(name, _plain(configuration.values), where) for name, configuration in rest]
    # The length before a compressor is known only if no other one changed it.
    if sum(one.fixed_growth is None for one in compressors) > 1:
        names = ", ".join(one.name for one in compressors)
        raise UnsupportedFeature(f"{where}: codecs {names}: a compressor after another one")
    is_plain = order == tuple(range(len(shape)))
    return ChunkCodecs(shape, stored, tuple(compressors), () if is_plain else order)


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, str | int | bool)}


def _order(configuration: Fields, ndim: int) -> tuple[int, ...]:
    order = configuration.integers("order", ndim)
    if sorted(order) != list(range(ndim)):
        raise configuration.wrong("order", f"a permutation of 0 to {ndim - 1}")
    return order


def _byte_order(configuration: Fields, item_bytes: int) -> Literal["<", ">"]:
    if "endian" not in configuration and item_bytes == 1:
        return "<"
    if configuration.text("endian") not in ("little", "big"):
        raise configuration.wrong("endian", "little or big")
    return "<" if configuration.text("endian") == "little" else ">"


_V2_DTYPE = re.compile(r"[<>|][biufc](1|2|4|8|16)")


def parse_array_v2(content: bytes, where: str) -> ZarrArray:
    """The array that a `.zarray` describes. Raises CorruptDataset, UnsupportedFeature that name `where`."""
    fields = parse_fields(content, where, max_integer=_MAX_EXTENT)
    if fields.integer("zarr_format") != 2:
        raise fields.wrong("zarr_format", "2")
    shape = _shape(fields)
    dtype = _v2_dtype(fields, where)
    chunk_shape = fields.integers("chunks", len(shape), minimum=1)
    _check_chunk(chunk_shape, dtype, where)
    if fields.values.get("filters"):
        raise UnsupportedFeature(f"{where}: filters")
    compressor = _v2_compressor(fields, where)
    # Order F: the last axis of the array is the first stored one.
    order = tuple(reversed(range(len(shape)))) if fields.choice("order", ("C", "F")) == "F" and len(shape) > 1 else ()
    separator = fields.text("dimension_separator", ".")
    if separator not in ("/", "."):
        raise fields.wrong("dimension_separator", "/ or .")
    return ZarrArray(
        shape=shape,
        codecs=ChunkCodecs(chunk_shape, dtype, compressor, order),
        keys=KeyEncoding(False, "/" if separator == "/" else "."),
        fill=_v2_fill(fields, dtype.newbyteorder("=")),
        dimension_names=("",) * len(shape),
    )


def _v2_dtype(fields: Fields, where: str) -> np.dtype[np.generic]:
    """With the stored byte order."""
    text = fields.values.get("dtype")
    if isinstance(text, str) and _V2_DTYPE.fullmatch(text):
        try:
            dtype = np.dtype(text)
        except TypeError as error:
            raise UnsupportedFeature(f"{where}: dtype {text!r:.60}") from error
        if dtype.name in DTYPES:
            return dtype
    raise UnsupportedFeature(f"{where}: dtype {text!r:.60}; acqstream reads {', '.join(DTYPES)}")


def _v2_compressor(fields: Fields, where: str) -> tuple[Compressor, ...]:
    if fields.values.get("compressor") is None:
        return ()
    values = fields.child("compressor")
    return (read_compressor(values.text("id"), {}, where, ZARR_V2_CODECS),)


def _v2_fill(fields: Fields, dtype: np.dtype[np.generic]) -> Any:
    """The fill value as an item; null, for none, is 0."""
    return dtype.type(0) if fields.values.get("fill_value") is None else _fill(fields, dtype, _v2_text)


def _v2_text(text: str, dtype: np.dtype[np.generic]) -> Any:
    """An item from its bytes in base64."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype, 1)[0]
