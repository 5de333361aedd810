"""Header parts: a map with string keys, as JSON or msgpack, which differ in the first byte; and strings in them.

Source: docs/protocol.md, "Framing". 0x7b cannot start a msgpack map, so one byte decides.
"""

from __future__ import annotations

import enum
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgpack

from acqstream.errors import ProtocolError
from acqstream.model.fields import check_text, field_error
from acqstream.model.metadata import MAX_SUMMARY_BYTES, MAX_SUMMARY_ITEMS, strict_json

MAX_HEADER_BYTES = 2**20
MAX_PART_BYTES = MAX_SUMMARY_BYTES + 64  # of a `patch`: {"summary":...}
_MSGPACK_MAP = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})


class Encoding(enum.Enum):
    """Encoding of a peer's headers; answers have the same."""

    JSON = "json"
    MSGPACK = "msgpack"


def encode_header(fields: Mapping[str, Any], encoding: Encoding) -> bytes:
    """`fields` as one header part."""
    if encoding is Encoding.MSGPACK:
        packed: bytes = msgpack.packb(fields, use_bin_type=True)
        return packed
    return json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_header(raw: bytes) -> tuple[dict[str, Any], Encoding]:
    """The map in a header part and the encoding it came in.

    Raises ProtocolError (bad_header) for anything that is not one complete map with string keys within the limits.
    """
    if len(raw) > MAX_HEADER_BYTES:
        raise ProtocolError(f"header of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are allowed")
    if not raw:
        raise ProtocolError("empty header part; expected a JSON or msgpack map")
    if raw[0] == 0x7B:
        return _decode_json(raw), Encoding.JSON
    if raw[0] in _MSGPACK_MAP:
        return _decode_msgpack(raw), Encoding.MSGPACK
    raise ProtocolError(f"header starts with byte 0x{raw[0]:02x}; expected a JSON object or a msgpack map")


def decode_part(raw: bytes) -> dict[str, Any]:
    """The map in the second part of a `patch`: JSON, for which a header is too small. Raises ProtocolError."""
    items = sum(raw.count(mark) for mark in (b"[", b"{", b","))
    if len(raw) > MAX_PART_BYTES or items > MAX_SUMMARY_ITEMS:
        text = f"a part of {len(raw)} bytes, {items} values; at most {MAX_PART_BYTES} bytes, {MAX_SUMMARY_ITEMS} values"
        raise ProtocolError(f"{text} are allowed")
    return _decode_json(raw)


def _decode_json(raw: bytes) -> dict[str, Any]:
    try:
        fields = strict_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"header is not valid JSON: {str(error) or 'nested too deeply'}") from error
    return _checked(fields)


def _decode_msgpack(raw: bytes) -> dict[str, Any]:
    try:
        fields = msgpack.unpackb(raw, raw=False, strict_map_key=True, ext_hook=_refuse_extension)
    except (ValueError, RecursionError, TypeError) as error:
        reason = str(error) or type(error).__name__
        raise ProtocolError(f"header is not valid msgpack: {reason}") from error
    return _checked(fields)


def _checked(fields: object) -> dict[str, Any]:
    if not isinstance(fields, dict) or not set(map(type, fields)) <= {str}:
        raise ProtocolError("header must be one map with string keys")
    return fields


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"msgpack extension type {code} ({len(data)} bytes) is not allowed")


_DATASET_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{3,63}")
_MAX_LENGTH = 4096


def take_dataset_id(fields: Mapping[str, Any]) -> str:
    """The dataset id under `ds`: 4 to 64 letters, digits and dashes. Raises FieldError."""
    value = fields.get("ds")
    if type(value) is not str or not _is_dataset_id(value):
        raise field_error("ds", "4 to 64 letters, digits or dashes", value)
    return value


def take_text(fields: Mapping[str, Any], name: str, default: str | None = None, max_length: int = _MAX_LENGTH) -> str:
    """The string under `name`, the default where it is missing. Raises FieldError.

    Lone surrogates are refused: JSON can bring them in, and no message can send them on.
    """
    text = check_text(fields.get(name, default), name, max_length)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise field_error(name, "a string without lone surrogates", text)
    return text


@functools.lru_cache(maxsize=256)  # called for every frame
def _is_dataset_id(value: str) -> bool:
    return _DATASET_ID.fullmatch(value) is not None
