"""Messages as a DECTRIS detector sends them, written from the published format."""

from __future__ import annotations

import struct
from typing import Any

import cbor2
import lz4.block
import numpy as np

TAGS = {"uint8": 64, "uint16": 69, "uint32": 70}


def start(series: int, channels: list[str], images: int, dtype: str = "uint16", **more: Any) -> bytes:
    fields = {"type": "start", "series_id": series, "series_unique_id": f"u{series}", "channels": channels}
    table = {channels[0]: cbor2.CBORTag(40, [[1, 2], cbor2.CBORTag(85, bytes(8))])}
    more = {"image_size_y": 20, "image_size_x": 30, "flatfield": table} | more
    return cbor2.dumps(fields | {"number_of_images": images, "image_dtype": dtype} | more)


def image(series: int, number: int, channels: dict[str, np.ndarray], compression: str = "") -> bytes:
    data = {name: array(pixels, compression) for name, pixels in channels.items()}
    times = {"start_time": [number, 1000], "real_time": [1, 1000]}
    fields = {"type": "image", "series_id": series, "image_id": number, "data": data, **times}
    return cbor2.dumps(cbor2.CBORTag(55799, fields))  # as real detectors begin


def end(series: int) -> bytes:
    return cbor2.dumps({"type": "end", "series_id": series, "series_unique_id": f"u{series}"})


def array(pixels: np.ndarray, compression: str = "") -> cbor2.CBORTag:
    content: Any = pixels.tobytes()
    if compression:
        size = pixels.itemsize
        encoded = lz4_bytes(content) if compression == "lz4" else bslz4_bytes(pixels)
        content = cbor2.CBORTag(56500, [compression, 0 if compression == "lz4" else size, encoded])
    return cbor2.CBORTag(40, [list(pixels.shape), cbor2.CBORTag(TAGS[pixels.dtype.name], content)])


def lz4_bytes(raw: bytes, block: int = 512) -> bytes:
    parts = [struct.pack(">QI", len(raw), block)]
    for at in range(0, len(raw), block):
        piece = raw[at : at + block]
        packed = lz4.block.compress(piece, store_size=False)
        packed = packed if len(packed) < len(piece) else piece
        parts.append(struct.pack(">I", len(packed)) + packed)
    return b"".join(parts)


def bslz4_bytes(pixels: np.ndarray, elements: int = 128) -> bytes:
    """Bit by bit, on purpose: shares nothing with the decoder."""
    values = [int(value) for value in pixels.reshape(-1)]
    size = pixels.itemsize
    parts = [struct.pack(">QI", pixels.nbytes, elements * size)]
    whole = len(values) - len(values) % 8
    for at in range(0, whole, elements):
        block = values[at : min(at + elements, whole)]
        rows = bytearray()
        for bit in range(8 * size):
            for group in range(0, len(block), 8):
                rows.append(sum(((block[group + k] >> bit) & 1) << k for k in range(8)))
        packed = lz4.block.compress(bytes(rows), store_size=False)
        parts.append(struct.pack(">I", len(packed)) + packed)
    parts.append(pixels.reshape(-1)[whole:].tobytes())
    return b"".join(parts)
