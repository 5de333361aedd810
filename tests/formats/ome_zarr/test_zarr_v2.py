"""Arrays of Zarr v2."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

import lz4.block
import numpy as np
import pytest

from acqstream.codecs import blosc
from acqstream.codecs.streams import encode_zstd
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ome_zarr.codec import ZarrArray
from acqstream.formats.ome_zarr.zarr_json import parse_array_v2

_ITEMS = np.arange(24, dtype="<u2").reshape(2, 3, 4)
_DOCUMENT = {
    "zarr_format": 2,
    "shape": [4, 3, 4],
    "chunks": [2, 3, 4],
    "dtype": "<u2",
    "compressor": None,
    "filters": None,
    "order": "C",
    "fill_value": None,
}


def _array(**changes: Any) -> ZarrArray:
    return parse_array_v2(json.dumps({**_DOCUMENT, **changes}).encode(), "a/.zarray")


def test_that_a_plain_array_has_keys_without_prefix() -> None:
    array = _array()
    assert (array.shape, array.chunk_shape, array.fill, array.keys.key((1, 0, 0))) == ((4, 3, 4), (2, 3, 4), 0, "1.0.0")
    assert _array(dimension_separator="/").keys.key((1, 0, 0)) == "1/0/0"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_order_and_byte_order(order: Any, dtype: str) -> None:
    stored = _ITEMS.astype(dtype).tobytes(order=order)
    found = _array(order=order, dtype=dtype).codecs.decode(stored, "x")
    np.testing.assert_array_equal(found, _ITEMS)


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "lzma": lzma.compress,
    "lz4": lambda data: struct.pack("<I", len(data)) + lz4.block.compress(data, store_size=False),
    "zstd": lambda data: bytes(encode_zstd(data, 1)),
    "blosc": lambda data: bytes(blosc.encode(data, 2, cname="lz4", clevel=5, shuffle=1, blocksize=0)),
}


@pytest.mark.parametrize("name", _ENCODERS)
def test_compressors(name: str) -> None:
    codecs = _array(compressor={"id": name}).codecs
    np.testing.assert_array_equal(codecs.decode(_ENCODERS[name](_ITEMS.tobytes()), "x"), _ITEMS)
    for wrong in (_ENCODERS[name](bytes(2**22)), _ENCODERS[name](_ITEMS.tobytes())[:-3], b"", b"12345678"):
        with pytest.raises(CorruptDataset, match="x: "):
            codecs.decode(wrong, "x")


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("<i2", -7, -7), ("<f4", "Infinity", np.inf), ("<f4", 0.5, 0.5), ("|b1", True, True), ("|u1", "BQ==", 5)],
)
def test_fill_values(dtype: str, value: object, expected: object) -> None:
    assert _array(dtype=dtype, fill_value=value).fill == expected


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"zarr_format": 3}, CorruptDataset),
        ({"shape": [2, 3]}, CorruptDataset),
        ({"shape": [10**9, 10**9, 10**9]}, CorruptDataset),
        ({"chunks": [0, 3, 4]}, CorruptDataset),
        ({"chunks": [2**20, 2**20, 1]}, UnsupportedFeature),
        ({"dtype": "<U4"}, UnsupportedFeature),
        ({"dtype": "<u16"}, UnsupportedFeature),
        ({"dtype": [["a", "<u2"]]}, UnsupportedFeature),
        ({"filters": [{"id": "delta"}]}, UnsupportedFeature),
        ({"compressor": {"id": "crc32c"}}, UnsupportedFeature),
        ({"compressor": "zlib"}, CorruptDataset),
        ({"order": "A"}, CorruptDataset),
        ({"fill_value": 70000}, CorruptDataset),
        ({"fill_value": "x"}, CorruptDataset),
        ({"dimension_separator": "-"}, CorruptDataset),
    ],
)
def test_that_what_breaks_the_format_is_refused(changes: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"a/\.zarray"):
        _array(**changes)
