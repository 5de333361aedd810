"""`.zarray` of an array of Zarr v2, which OME-Zarr 0.4 and older has. Reading only. Source: Zarr v2, "Arrays"."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from acqstream.errors import UnsupportedFeature
from acqstream.formats.compression import ZARR_V2_CODECS, Compressor
from acqstream.formats.ome_zarr.codec import ChunkCodecs
from acqstream.formats.ome_zarr.zarr_array import KeyEncoding, ZarrArray
from acqstream.formats.ome_zarr.zarr_json import DTYPES, MAX_CHUNK_BYTES, MAX_NDIM, read_compressor
from acqstream.model.fields import Fields
from acqstream.storage.json_file import parse_fields

DOCUMENT_NAME = ".zarray"
_MAX_EXTENT = 2**63 - 1
_DTYPE = re.compile(r"[<>|][biufc](1|2|4|8|16)")
_NOT_FINITE: Mapping[str, float] = MappingProxyType({"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf})


def parse_array_v2(content: bytes, where: str) -> ZarrArray:
    """The array that a `.zarray` describes. Raises CorruptDataset, UnsupportedFeature that name `where`."""
    fields = parse_fields(content, where, max_integer=_MAX_EXTENT)
    if fields.integer("zarr_format") != 2:
        raise fields.wrong("zarr_format", "2")
    shape = fields.integers("shape")
    if len(shape) > MAX_NDIM or math.prod(shape) > _MAX_EXTENT:
        raise fields.wrong("shape", f"at most {MAX_NDIM} axes and 2^63 - 1 items")
    dtype = _dtype(fields, where)
    chunk_shape = fields.integers("chunks", len(shape), minimum=1)
    if math.prod(chunk_shape) * dtype.itemsize > MAX_CHUNK_BYTES:
        text = f"chunks of {chunk_shape} of {dtype}, at most {MAX_CHUNK_BYTES} bytes can be read"
        raise UnsupportedFeature(f"{where}: {text}")
    if fields.values.get("filters"):
        raise UnsupportedFeature(f"{where}: filters")
    compressor = _compressor(fields, where)
    # Order F: the last axis of the array is the first stored one.
    order = tuple(reversed(range(len(shape)))) if fields.choice("order", ("C", "F")) == "F" and len(shape) > 1 else ()
    separator = fields.text("dimension_separator", ".")
    if separator not in ("/", "."):
        raise fields.wrong("dimension_separator", "/ or .")
    return ZarrArray(
        shape=shape,
        codecs=ChunkCodecs(chunk_shape, dtype, compressor, order),
        keys=KeyEncoding(False, "/" if separator == "/" else "."),
        fill=_fill(fields, dtype.newbyteorder("=")),
        dimension_names=("",) * len(shape),
    )


def _dtype(fields: Fields, where: str) -> np.dtype[np.generic]:
    """With the stored byte order."""
    text = fields.values.get("dtype")
    if isinstance(text, str) and _DTYPE.fullmatch(text):
        try:
            dtype = np.dtype(text)
        except TypeError as error:
            raise UnsupportedFeature(f"{where}: dtype {text!r:.60}") from error
        if dtype.name in DTYPES:
            return dtype
    raise UnsupportedFeature(f"{where}: dtype {text!r:.60}; acqstream reads {', '.join(DTYPES)}")


def _compressor(fields: Fields, where: str) -> tuple[Compressor, ...]:
    if fields.values.get("compressor") is None:
        return ()
    values = fields.child("compressor")
    return (read_compressor(values.text("id"), {}, where, ZARR_V2_CODECS),)


def _fill(fields: Fields, dtype: np.dtype[np.generic]) -> Any:
    """The fill value as an item; null, for none, is 0."""
    value = fields.values.get("fill_value")
    if value is None:
        return dtype.type(0)
    try:
        if dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
            return dtype.type(complex(*(_number(part, dtype) for part in value)))
        return np.array(_number(value, dtype), dtype)[()]
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise fields.wrong("fill_value", f"an item of {dtype}") from error


def _number(value: object, dtype: np.dtype[np.generic]) -> Any:
    if isinstance(value, str):
        if dtype.kind in "fc" and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        return np.frombuffer(base64.b64decode(value, validate=True), dtype, 1)[0]
    if isinstance(value, bool) and dtype.kind == "b":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or (dtype.kind in "iub" and value != int(value)):
        raise TypeError(f"{value!r:.60} is not an item of {dtype}")
    return int(value) if dtype.kind in "iub" else value
