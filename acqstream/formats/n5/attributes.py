"""attributes.json: what a folder of an N5 container is. Source: N5 file-system specification 4.0.0, items 2 to 4.

Per-axis values here are in N5 order: x, the fastest axis, first. Everything else in the package has the slowest first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.compression import N5_COMPRESSION
from acqstream.model.fields import Fields
from acqstream.storage.json_file import parse_json

ATTRIBUTES_NAME = "attributes.json"
VERSION_KEY, VERSION = "n5", "4.0.0"
MAX_BLOCK_BYTES = 2**31 - 1  # not compressed

MAX_ATTRIBUTES_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 32
_MANDATORY = ("dimensions", "blockSize", "dataType")
_DTYPES = {
    kind.__name__: np.dtype(kind)
    for kind in (
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.float32,
        np.float64,
    )
}
_OTHER_TYPES = ("string", "object")


@dataclass(frozen=True, slots=True)
class DatasetAttributes:
    """The mandatory attributes of a dataset, in N5 order. dtype is in the byte order of this machine."""

    dimensions: tuple[int, ...]
    block_size: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compression: str  # the type alone: reading needs no parameters

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest axis first."""
        return self.dimensions[::-1]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Slowest axis first."""
        return self.block_size[::-1]


def parse_attributes(content: bytes, path: str) -> dict[str, Any]:
    """The attributes in the content of such a file; path names it in errors. Raises CorruptDataset."""
    value = parse_json(content, path)
    if not isinstance(value, dict):
        raise CorruptDataset(f"holds {type(value).__name__}, expected a JSON object", path=path)
    return value


def is_dataset(attributes: Mapping[str, Any] | None) -> bool:
    """Return True if these are the attributes of an array, right or wrong."""
    return attributes is not None and all(key in attributes for key in _MANDATORY)


def parse_dataset(attributes: Mapping[str, Any], path: str) -> DatasetAttributes:
    """The mandatory attributes, checked; path names their file in errors.

    Raises CorruptDataset, and UnsupportedFeature for what is not an image.
    """
    dimensions = _integers(attributes, "dimensions", 0, path)
    block_size = _integers(attributes, "blockSize", 1, path)
    if len(dimensions) != len(block_size):
        text = f"{len(dimensions)} dimensions, but a blockSize of {len(block_size)}"
        raise CorruptDataset(text, path=path)
    dtype = _dtype(attributes["dataType"], path)
    size = dtype.itemsize
    for extent in block_size:
        size *= extent
    if size > MAX_BLOCK_BYTES:
        raise CorruptDataset(f"a block of {size} bytes, at most {MAX_BLOCK_BYTES} are allowed", path=path)
    return DatasetAttributes(dimensions, block_size, dtype, _compression_type(attributes, path))


def dtype_name(dtype: np.dtype[np.generic]) -> str | None:
    """The `dataType` of items of this dtype; None if there is none."""
    return dtype.name if dtype.name in _DTYPES else None


def to_json(attributes: Mapping[str, Any]) -> bytes:
    """The content of an attributes.json."""
    return json.dumps(attributes, ensure_ascii=False, allow_nan=False).encode()


def _integers(attributes: Mapping[str, Any], key: str, least: int, path: str) -> tuple[int, ...]:
    fields = Fields(attributes, error=partial(CorruptDataset, path=path))
    found = fields.integers(key, minimum=least)
    if not 1 <= len(found) <= _MAX_DIMENSIONS:
        raise fields.wrong(key, f"a list of 1 to {_MAX_DIMENSIONS} integers")
    return found


def _dtype(name: object, path: str) -> np.dtype[np.generic]:
    if isinstance(name, str) and name in _DTYPES:
        return _DTYPES[name]
    if name in _OTHER_TYPES:
        raise UnsupportedFeature(f"{path}: dataType {name} is not a pixel type, expected one of {', '.join(_DTYPES)}")
    raise CorruptDataset(f"dataType is {name!r:.80}, expected one of {', '.join(_DTYPES)}", path=path)


def _compression_type(attributes: Mapping[str, Any], path: str) -> str:
    found = attributes.get("compression")
    # Before 1.0.0 the type stood by itself under another key.
    name = found.get("type") if isinstance(found, dict) else attributes.get("compressionType")
    if not isinstance(name, str):
        text = f"compression is {found!r:.80}, expected an object with a type"
        raise CorruptDataset(text, path=path)
    if name not in N5_COMPRESSION.kinds:
        known = ", ".join(N5_COMPRESSION.kinds)
        raise UnsupportedFeature(f"{path}: unknown compression {name!r:.80}, expected one of {known}")
    return name
