"""Parses messages of DECTRIS Stream V2: one CBOR map each, of `type` start, image or end.

Needs cbor2, the extra `dectris`. Source: docs/streams.md, "DECTRIS Stream V2". Pixels may be compressed by LZ4, or by
bitshuffle with LZ4, both in the framing of their HDF5 filters: size of the result (8 bytes), size of a block (4 bytes),
then the blocks, each after its compressed size (4 bytes); all big-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import lz4.block
import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import blosc
from acqstream.errors import ConfigError, CorruptDataset, ProtocolError
from acqstream.extras import install_command
from acqstream.model.fields import MAX_INTEGER
from acqstream.model.frame_header import pixel_type_of

_FRAMING = struct.Struct(">QI")
_BLOCK_SIZE = struct.Struct(">I")
_MIN_BLOCK_BYTES = 256
_MAX_RATIO = 256  # LZ4 reaches 255 at most, so a larger ratio is a false length


def decompressed(algorithm: object, element_bytes: object, data: object, *, expected: int) -> bytes | bytearray:
    """Return the `expected` bytes of a compressed byte string. Raises ProtocolError; never allocates more than that."""
    if not isinstance(data, bytes) or len(data) < _FRAMING.size:
        raise ProtocolError("compressed pixels must be a byte string that begins with its framing of 12 bytes")
    total, block = _FRAMING.unpack_from(data)
    if total != expected:
        raise ProtocolError(f"compressed pixels of {total} bytes; the shape has {expected}", code="payload_size")
    if total > _MAX_RATIO * len(data):
        raise ProtocolError(f"{len(data)} compressed bytes cannot hold {total}", code="payload_size")
    if algorithm == "lz4":
        return _lz4(data, total, block)
    if algorithm == "bslz4":
        if element_bytes not in (1, 2):
            raise ProtocolError(f"bslz4: elements must be of 1 or 2 bytes, not {element_bytes!r:.40}")
        return _bslz4(data, total, block, int(element_bytes == 2) + 1)
    raise ProtocolError(f"compression {algorithm!r:.40} is not supported; expected 'lz4' or 'bslz4'")


def _lz4(data: bytes, total: int, block: int) -> bytes:
    if not block:
        raise ProtocolError("lz4: the size of a block is 0")
    parts = []
    offset = _FRAMING.size
    for start in range(0, total, block):
        size = min(block, total - start)
        stored, offset = _stored_block(data, offset)
        # The filter stores a block uncompressed if compression does not make it smaller.
        parts.append(stored if len(stored) == size else _block(stored, size))
    return _joined(parts, data, offset)


def _bslz4(data: bytes, total: int, block: int, element_bytes: int) -> bytes | bytearray:
    """Decode blocks of shuffled bits; the last one is shorter, and up to 7 elements at the end are stored plain."""
    step = 8 * element_bytes
    if not block or block % step or total % element_bytes:
        raise ProtocolError(f"bslz4: blocks of {block} bytes; expected a multiple of {step}")
    shuffled = total - total % step
    decoded = _bslz4_at_once(data, shuffled, block, element_bytes)
    if decoded is not None and len(decoded[0]) + len(data) - decoded[1] == total:
        return decoded[0] + data[decoded[1] :] if shuffled < total else decoded[0]
    parts = []
    offset = _FRAMING.size
    for start in range(0, shuffled, block):
        size = min(block, shuffled - start)
        stored, offset = _stored_block(data, offset)
        parts.append(_unshuffled(_block(stored, size), element_bytes))
    # Bitshuffle needs 8 elements; the filter stores the remainder uncompressed, without a length.
    remainder = data[offset : offset + total - shuffled]
    if len(remainder) != total - shuffled:
        raise ProtocolError(f"compressed pixels end at byte {len(data)}, within the last elements")
    parts.append(remainder)
    return _joined(parts, data, offset + len(remainder))


def _bslz4_at_once(data: bytes, size: int, block: int, element_bytes: int) -> tuple[bytearray, int] | None:
    """All complete blocks by the library of blosc, whose blocks have the same content, and where they end in `data`.

    That is some 50 times faster. None where it cannot be done, or something is wrong: then each block by itself shows
    what.
    """
    if block < _MIN_BLOCK_BYTES:
        return None  # more would be kept for each block than it has
    blocks, offset, starts = bytearray(data), _FRAMING.size, []
    try:
        for start in range(0, size, block):
            (length,) = _BLOCK_SIZE.unpack_from(data, offset)
            if length in (0, min(block, size - start)) or length > len(data):
                return None  # an error, or a block that blosc would take for not encoded
            struct.pack_into("<I", blocks, offset, length)
            starts.append(offset)
            offset += _BLOCK_SIZE.size + length
        chunk = blosc.of_lz4_blocks(bytes(blocks[:offset]), starts, element_bytes, block, size)
        return (blosc.decode(chunk, size), offset) if starts else None
    except (struct.error, CorruptDataset):
        return None


def _stored_block(data: bytes, offset: int) -> tuple[bytes, int]:
    if len(data) < offset + _BLOCK_SIZE.size:
        raise ProtocolError(f"compressed pixels end at byte {len(data)}; a block is expected there")
    (size,) = _BLOCK_SIZE.unpack_from(data, offset)
    begin = offset + _BLOCK_SIZE.size
    if not size or len(data) < begin + size:
        raise ProtocolError(f"compressed pixels: a block of {size} bytes at byte {begin} of {len(data)}")
    return data[begin : begin + size], begin + size


def _block(stored: bytes, size: int) -> bytes:
    try:
        block = lz4.block.decompress(stored, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise ProtocolError(f"compressed pixels: a block is not LZ4: {error}") from error
    if len(block) != size:
        raise ProtocolError(f"compressed pixels: a block of {len(block)} bytes; expected {size}", code="payload_size")
    return bytes(block)


def _unshuffled(block: bytes, element_bytes: int) -> bytes:
    """Turn rows of bits (row j * 8 + b has bit b of byte j of every element, first element lowest) into elements."""
    # Unpack to one bit per byte, transpose so that the bits of one element are in a row, and pack again.
    rows = np.frombuffer(block, np.uint8).reshape(8 * element_bytes, -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes()


def _joined(parts: list[bytes], data: bytes, end: int) -> bytes:
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the compressed pixels")
    return b"".join(parts)


_ARRAY_TAG = 40
_COMPRESSION_TAG = 56500
_DTYPES = {64: "|u1", 65: ">u2", 66: ">u4", 67: ">u8", 68: "|u1", 69: "<u2", 70: "<u4", 71: "<u8"} | {
    72: "|i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    81: ">f4", 82: ">f8", 85: "<f4", 86: "<f8",
}  # fmt: skip
_SELF_DESCRIBED = b"\xd9\xd9\xf7"  # tag 55799: a mark of CBOR without content; detectors start every message with it
_TAGS = frozenset({0, 1, _ARRAY_TAG, _COMPRESSION_TAG, *range(64, 88)})  # others make objects that nothing here needs
_MAX_ITEMS = 100_000  # of one message; pixels are one item
_MAX_PIXEL_BYTES = 2**30
_MAX_CHANNELS = 64
_MAX_TEXT = 64 * 1024  # characters of plain fields, as JSON
_MAX_DEPTH = 16
# SIMPLON's bit_depth_image can only be read: the sums of several short exposures have 32 bits, single ones 8 or 16.
_16_BIT_IMAGES = "set the detector's `auto_summation` (SIMPLON, config) to false, so that images have 16 bits"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStart:
    """The start of a series. kind is ((Y, X), dtype) if the message has it; metadata are its plain fields."""

    series: int
    channels: tuple[str, ...]
    images: int | None
    kind: tuple[tuple[int, int], str] | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesImage:
    """One exposure. data holds, by channel, what `channel_image` decodes; metadata are the plain fields."""

    series: int
    image: int
    data: Mapping[str, object] = field(repr=False)
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEnd:
    series: int


def require_cbor() -> None:
    """Raise ConfigError with the installation command if cbor2 is missing."""
    try:
        import cbor2  # noqa: F401 - a check that it is installed
    except ImportError as error:
        raise ConfigError(f"DECTRIS streams need cbor2: {install_command('dectris')}") from error


def parse_dectris(raw: bytes) -> SeriesStart | SeriesImage | SeriesEnd:
    """Parse a message without decoding its pixels. Raises ProtocolError."""
    fields = _decoded(raw)
    kind = fields.get("type")
    series = _counter(fields, "series_id")
    if kind == "end":
        return SeriesEnd(series=series)
    if kind == "start":
        channels = fields.get("channels") or ()
        if not isinstance(channels, list | tuple) or not _are_names(channels):
            raise ProtocolError(f"DECTRIS start: channels must be a list of names, not {channels!r:.60}")
        images = _counter(fields, "number_of_images") if "number_of_images" in fields else None
        plain = _plain_fields(fields, without=("type",))
        return SeriesStart(series=series, channels=tuple(channels), images=images, kind=_kind(fields), metadata=plain)
    if kind == "image":
        data = fields.get("data")
        if not isinstance(data, dict) or not data or not _are_names(list(data)):
            raise ProtocolError(f"DECTRIS image: data must be a map from channel to image, not {data!r:.60}")
        plain = _plain_fields(fields, without=("type", "data"))
        return SeriesImage(series=series, image=_counter(fields, "image_id"), data=data, metadata=plain)
    raise ProtocolError(f"DECTRIS message: type must be 'start', 'image' or 'end', not {kind!r:.60}")


def channel_image(value: object) -> NDArray[Any]:
    """Decode the pixels (Y, X) of one channel, uint8 or uint16. Raises ProtocolError if they cannot be stored."""
    content = _tagged(value, _ARRAY_TAG)
    if not isinstance(content, list | tuple) or len(content) != 2 or not isinstance(content[0], list | tuple):
        raise ProtocolError("DECTRIS image: a channel must be a row-major array (tag 40) of sides and pixels")
    shape = tuple(content[0])
    dtype = _DTYPES.get(getattr(content[1], "tag", -1))
    if dtype is None:
        raise ProtocolError(f"DECTRIS image: pixels must be a typed array (RFC 8746), not {content[1]!r:.60}")
    _check_kind(shape, dtype)
    expected = int(np.dtype(dtype).itemsize) * shape[0] * shape[1]
    if expected > _MAX_PIXEL_BYTES:
        raise ProtocolError(f"DECTRIS image: shape {list(shape)} has {expected} bytes; at most {_MAX_PIXEL_BYTES}")
    pixels = content[1].value
    if getattr(pixels, "tag", None) == _COMPRESSION_TAG:
        parts = pixels.value
        if not isinstance(parts, list | tuple) or len(parts) != 3:
            raise ProtocolError("DECTRIS image: compressed pixels must be [algorithm, element size, bytes]")
        pixels = decompressed(*parts, expected=expected)
    is_content = isinstance(pixels, bytes | bytearray)
    if not is_content or len(pixels) != expected:
        found = f"{len(pixels)} bytes of pixels" if is_content else f"pixels are {pixels!r:.40}"
        raise ProtocolError(f"{found}; shape {list(shape)} of {dtype} has {expected}", code="payload_size")
    return np.frombuffer(pixels, dtype).reshape(shape)


def check_start(start: SeriesStart) -> None:
    """Raise ProtocolError if the announced images cannot be stored."""
    if start.kind is not None:
        _check_kind(*start.kind)


def _check_kind(shape: tuple[int, ...], dtype: str) -> None:
    plain = np.dtype(dtype).newbyteorder("<")
    if plain.kind in "ui" and plain.itemsize > 2:
        text = f"DECTRIS image of {plain.name} cannot be stored: acqstream stores uint8 and uint16; {_16_BIT_IMAGES}"
        raise ProtocolError(text, code="dtype_unsupported")
    try:
        pixel_type_of(plain.str, shape)
    except ValueError as error:
        raise ProtocolError(str(error), code="dtype_unsupported") from error
    if len(shape) != 2:
        raise ProtocolError(f"DECTRIS image: shape must be [Y, X], not {list(shape)}")


def _decoded(raw: bytes) -> dict[str, Any]:
    import cbor2

    raw = raw.removeprefix(_SELF_DESCRIBED)
    _scan(raw)
    try:
        fields = cbor2.loads(raw)
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"DECTRIS message is not CBOR: {error}") from error
    if not isinstance(fields, dict):
        raise ProtocolError(f"DECTRIS message must be a map, not {fields!r:.60}")
    return fields


def _scan(raw: bytes) -> None:
    """Refuse expensive messages: many items, lengths beyond the message, tags that make other objects."""
    # cbor2 would build all objects first, and a message of a few bytes can announce billions of them.
    offset, items, end = 0, 0, len(raw)
    while offset < end:
        # RFC 8949, section 3: 3 bits of major type, 5 bits of information, which is a value or the size of one.
        major, info = raw[offset] >> 5, raw[offset] & 31
        size = {24: 1, 25: 2, 26: 4, 27: 8}.get(info, 0)
        value = int.from_bytes(raw[offset + 1 : offset + 1 + size]) if size else info
        offset += 1 + size
        items += 1
        if items > _MAX_ITEMS:
            raise ProtocolError(f"DECTRIS message of more than {_MAX_ITEMS} items")
        if major in (2, 3, 4, 5) and info == 31:
            continue  # of indefinite length: its pieces follow
        if major in (2, 3):  # byte and text strings: skip their content
            offset += value
        elif major == 6 and value not in _TAGS:
            raise ProtocolError(f"DECTRIS message: tag {value} at byte {offset} is not part of the format")
        if offset > end or (major in (4, 5) and value > end - offset):
            raise ProtocolError(f"DECTRIS message is not CBOR: it ends at byte {end}, within an item")


def _tagged(value: object, tag: int) -> Any:
    return getattr(value, "value", None) if getattr(value, "tag", None) == tag else None


def _are_names(names: list[Any] | tuple[Any, ...]) -> bool:
    return (
        len(names) <= _MAX_CHANNELS
        and all(isinstance(name, str) and 0 < len(name) <= 100 for name in names)
        and len(set(names)) == len(names)
    )


def _counter(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise ProtocolError(f"DECTRIS message: {name} must be a counter from 0, not {value!r:.60}")
    return value


def _kind(fields: Mapping[str, Any]) -> tuple[tuple[int, int], str] | None:
    dtype = fields.get("image_dtype")
    if dtype is None or "image_size_x" not in fields or "image_size_y" not in fields:
        return None
    if dtype not in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "float32", "float64"):
        raise ProtocolError(f"DECTRIS start: image_dtype must name a pixel type such as 'uint16', not {dtype!r:.60}")
    sides = (_counter(fields, "image_size_y"), _counter(fields, "image_size_x"))
    return sides, np.dtype(dtype).newbyteorder("<").str


def _plain_fields(fields: Mapping[Any, Any], *, without: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that JSON can represent, without tables, as many as the length limit allows."""
    kept: dict[str, Any] = {}
    left = _MAX_TEXT
    for name, value in fields.items():
        if not isinstance(name, str) or name in without or not _is_plain(value):
            continue
        plain = _plain(value)
        left -= len(name) + len(json.dumps(plain))
        if left < 0:
            break
        kept[name] = plain
    return kept


def _is_plain(value: object, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(inner, depth + 1) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(inner, depth + 1) for inner in value)
    if type(value) is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return value is None or isinstance(value, bool | float | str | datetime)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime) else value
