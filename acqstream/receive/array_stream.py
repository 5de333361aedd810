"""Parses the headers of image streams of other programs: `array-1.0`, Odin's live view, and the recipe of pyzmq.

All are two parts, a JSON header and the raw pixels. Source: docs/streams.md, "The messages".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from acqstream.errors import ProtocolError
from acqstream.model.fields import MAX_INTEGER
from acqstream.protocol.encoding import MAX_HEADER_BYTES

HTYPE = "array-1.0"
_ATTRIBUTES_KEY = "ndattr"
_KEPT_TEXT = 4096  # characters of a broken header that are stored beside the frame
_BYTE_ORDERS: Mapping[str, Literal["<", ">"]] = {"little": "<", "big": ">"}
_PLAIN_TYPE = re.compile(r"bool|[<>=|]?(?:u?int|float|complex|[biufc])\d{1,3}")  # numpy would parse much more
_SEARCHED = {
    "htype": re.compile(r'"htype"\s*:\s*\[?\s*"([^"]*)"'),
    "type": re.compile(r'"type"\s*:\s*"([^"]*)"'),
    "dtype": re.compile(r'"dtype"\s*:\s*"([^"]*)"'),
    "shape": re.compile(r'"shape"\s*:\s*\[([\d,\s"]{1,80})\]'),
    "frame": re.compile(r'"frame"\s*:\s*(\d{1,19})(?!\d)'),
    "frame_num": re.compile(r'"frame_num"\s*:\s*(\d{1,19})(?!\d)'),
    "compression": re.compile(r'"compression"\s*:\s*"([^"]*)"'),
    "dataset": re.compile(r'"dataset"\s*:\s*"([^"]*)"'),
    "endianness": re.compile(r'"endiann?ess"\s*:\s*"(\w*)"'),
    "encoding": re.compile(r'"encoding"\s*:\s*"([^"]*)"'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """The pixels of one message of a stream, as its header describes them.

    dtype is a numpy type string with its byte order; shape counts slowest first. frame is the sender's counter, None
    where it has none. encoding names a compression, empty for raw pixels. dataset is that of a sender which sends
    several, each with its own counter. broken: not JSON, only the needed fields were found. metadata is the rest of
    the header; for a broken one its text.
    """

    dtype: str
    shape: tuple[int, ...]
    frame: int | None = None
    encoding: str = ""
    dataset: str = ""
    broken: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """Length of raw pixels in bytes."""
        size = np.dtype(self.dtype).itemsize
        for side in self.shape:
            size *= side
        return size


def parse_array_header(raw: bytes) -> ArrayHeader:
    """Parse the first part of a message. Raises ProtocolError if type or shape is missing or invalid."""
    if len(raw) > MAX_HEADER_BYTES:
        raise ProtocolError(f"stream header of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are allowed")
    try:
        fields = json.loads(raw.decode("utf-8"), parse_int=_integer)
        if b"\\u" in raw:
            json.dumps(fields, ensure_ascii=False).encode("utf-8")  # half surrogates: nothing can send them on
    except (ValueError, RecursionError):
        # Senders paste text into JSON without escaping it, and print nan: the needed fields come before that.
        text = raw.decode("utf-8", errors="replace")
        return _header_of(_searched(text), broken=True, metadata={"header_text": text[:_KEPT_TEXT]})
    if not isinstance(fields, dict):
        raise ProtocolError(f"stream header must be a JSON object, not {_shown(fields)}")
    known = {"htype", "type", "dtype", "shape", "frame", "endianness", "endianess", "encoding"}
    if _is_odin(fields):
        known |= {"frame_num", "compression", "dsize"}
    return _header_of(fields, metadata={name: value for name, value in fields.items() if name not in known})


def _searched(text: str) -> dict[str, Any]:
    """Find the required fields in a header that is not JSON; those before the attributes take precedence."""
    head, _, tail = text.partition(f'"{_ATTRIBUTES_KEY}"')
    fields: dict[str, Any] = {}
    for name, pattern in _SEARCHED.items():
        match = pattern.search(head) or pattern.search(tail)
        if match:
            fields[name] = match[1]
    for name in fields.keys() & {"frame", "frame_num"}:
        fields[name] = int(fields[name])
    if "shape" in fields:
        fields["shape"] = [int(side) for side in re.findall(r"\d+", fields["shape"])]
    if not fields:
        raise ProtocolError(f"stream header is not JSON, and no field was found in it: {_shown(text)}")
    return fields


def _is_odin(fields: Mapping[str, Any]) -> bool:
    """Return True for a header of odin-data's LiveViewPlugin."""
    return "frame_num" in fields and not fields.keys() & {"htype", "frame"}


def _from_odin(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields as array-1.0 has them: Odin writes the sides as texts, and names its C++ types."""
    shape, kind = fields.get("shape"), fields.get("dtype")
    if isinstance(shape, list):
        shape = [int(one) if isinstance(one, str) and re.fullmatch("[0-9]{1,18}", one) else one for one in shape]
    kind = "float32" if kind == "float" else kind
    encoding = "" if fields.get("compression") == "none" else fields.get("compression")
    return {**fields, "frame": fields["frame_num"], "type": kind, "shape": shape, "encoding": encoding}


def _header_of(fields: Mapping[str, Any], *, metadata: Mapping[str, Any], broken: bool = False) -> ArrayHeader:
    if is_odin := _is_odin(fields):
        fields = _from_odin(fields)
    htype = fields.get("htype")
    if isinstance(htype, list) and len(htype) == 1:
        htype = htype[0]
    if htype is not None and htype != HTYPE:
        raise ProtocolError(f"stream header: htype must be {HTYPE!r} or absent, not {_shown(htype)}")
    encoding = fields.get("encoding") or ""
    return ArrayHeader(
        dtype=_dtype(fields),
        shape=_shape(fields.get("shape")),
        frame=_frame(fields.get("frame")),
        encoding=encoding if isinstance(encoding, str) else _shown(encoding),
        dataset=str(fields.get("dataset")) if is_odin else "",
        broken=broken,
        metadata=metadata,
    )


def _dtype(fields: Mapping[str, Any]) -> str:
    name = fields.get("type", fields.get("dtype"))
    order = fields.get("endianness", fields.get("endianess"))
    if order is not None and (not isinstance(order, str) or order.lower() not in _BYTE_ORDERS):
        raise ProtocolError(f"stream header: endianness must be 'little' or 'big', not {_shown(order)}")
    try:
        dtype = np.dtype(name) if isinstance(name, str) and _PLAIN_TYPE.fullmatch(name) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in "biufc":
        raise ProtocolError(f"stream header: type must name a number type such as 'uint16', not {_shown(name)}")
    assert isinstance(name, str)
    if name[:1] not in {"<", ">"}:  # a name carries no order of its own; little where the header has none
        dtype = dtype.newbyteorder(_BYTE_ORDERS[order.lower() if order else "little"])
    return dtype.str


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        raise ProtocolError(f"stream header: shape must be a list of sides, slowest first, not {_shown(value)}")
    if not all(type(side) is int and 0 < side <= MAX_INTEGER for side in value):
        raise ProtocolError(f"stream header: shape must hold positive integers, not {_shown(value)}")
    return tuple(value)


def _frame(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise ProtocolError(f"stream header: frame must be a counter from 0, not {_shown(value)}")
    return value


def _integer(text: str) -> int | float:
    """Return integers beyond 64 bits as floats: no header can carry them as integers."""
    value = int(text)
    return value if -MAX_INTEGER <= value <= MAX_INTEGER else float(text)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
