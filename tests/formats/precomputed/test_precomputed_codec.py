"""Encodings of chunks: there and back, and damaged data."""

from __future__ import annotations

import builtins
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.precomputed.codec import decode_chunk, encode_chunk, max_chunk_bytes

BLOCK = (4, 8, 8)


def labels(shape: tuple[int, ...], dtype: str, count: int) -> NDArray[Any]:
    found = np.random.default_rng(3).integers(0, count, shape).astype(dtype)
    return found + np.dtype(dtype).type(2**30) * np.dtype(dtype).type(2 if dtype == "uint64" else 1)


def samples(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return np.random.default_rng(4).integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)


def encoded(chunk: NDArray[Any], encoding: str, quality: int = 90) -> bytes:
    data = b"".join(encode_chunk(chunk, encoding, BLOCK, quality))
    assert len(data) <= max_chunk_bytes(chunk.shape, chunk.dtype, (encoding, BLOCK))
    return data


def decoded(data: bytes, chunk: NDArray[Any], encoding: str) -> NDArray[Any]:
    found = decode_chunk(data, chunk.shape, chunk.dtype.newbyteorder("="), (encoding, BLOCK), "here")
    assert found.flags.c_contiguous
    assert found.flags.writeable
    return found


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "uint64", "float32", ">u2"])
def test_raw_is_little_endian_in_c_order(dtype):
    chunk = samples((2, 3, 4, 5), "uint16").astype(dtype)
    data = encoded(chunk, "raw")
    assert data == chunk.astype(chunk.dtype.newbyteorder("<")).tobytes()
    assert np.array_equal(decoded(data, chunk, "raw"), chunk)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17, 300, 100_000])
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_labels_come_back(dtype, count):
    chunk = labels((2, 5, 19, 33), dtype, count)
    assert np.array_equal(decoded(encoded(chunk, "compressed_segmentation"), chunk, "compressed_segmentation"), chunk)


def test_one_label_takes_no_bits():
    chunk = np.full((1, 4, 8, 8), 7, np.uint32)
    assert np.frombuffer(encoded(chunk, "compressed_segmentation"), "<u4").tolist() == [1, 2, 3, 7]
    chunk[0, 0, 0, 1] = 9  # voxel 1 has label 1 of the table 7, 9
    found = np.frombuffer(encoded(chunk, "compressed_segmentation"), "<u4").tolist()
    assert found == [1, 2 | 1 << 24, 4, 7, 9, 0b10, *[0] * 7]


def test_damaged_labels_are_told():
    chunk = labels((1, 4, 8, 16), "uint32", 5)
    good = encoded(chunk, "compressed_segmentation")
    for data in (b"", good[:3], good[:8], good[:-4], b"\xff" * len(good), good[:4] + b"\x03\0\0\x03" + good[8:]):
        with pytest.raises(CorruptDataset, match=r"^here: compressed segmentation"):
            decoded(data, chunk, "compressed_segmentation")
    places = set()
    for at in range(0, len(good), 3):  # any damage gives an error or other labels
        damaged = good[:at] + bytes([good[at] ^ 0x5A]) + good[at + 1 :]
        try:
            found = decoded(damaged, chunk, "compressed_segmentation")
        except CorruptDataset as error:
            places.add(error.path)
        else:
            assert found.shape == chunk.shape
    assert places == {"here"}
    with pytest.raises(CorruptDataset, match="expected uint32 or uint64"):
        decoded(good, chunk.astype("uint16"), "compressed_segmentation")


@pytest.mark.parametrize(
    ("dtype", "channels"), [(dtype, count) for dtype in ("uint8", "uint16") for count in (1, 2, 3, 4)]
)
def test_png_is_lossless(dtype, channels):
    chunk = samples((channels, 3, 7, 5), dtype)
    data = encoded(chunk, "png")
    assert np.array_equal(decoded(data, chunk, "png"), chunk)
    with pytest.raises(CorruptDataset, match="pixels, expected"):
        decoded(data, chunk[:, :2], "png")
    with pytest.raises(CorruptDataset, match="color type"):
        decoded(data, np.concatenate([chunk[:1]] * (channels % 4 + 1)), "png")


def test_png_of_another_width_is_the_same_run_of_pixels():
    chunk = samples((1, 2, 4, 6), "uint8")
    data = encoded(chunk.reshape(1, 1, 3, 16), "png")
    assert np.array_equal(decoded(data, chunk, "png"), chunk)


@pytest.mark.parametrize("kind", range(5))
def test_every_filter_of_16_bit_color_is_undone(kind):
    rows = samples((9, 2 * 3 * 7), "uint8")
    filtered, zeros = [], np.zeros(rows.shape[1], np.uint8)
    for number, row in enumerate(rows.astype(int)):
        up = rows[number - 1].astype(int) if number else zeros.astype(int)
        left, corner = (np.concatenate([np.zeros(6, int), one[:-6]]) for one in (row, up))
        estimate = left + up - corner
        distances = np.abs(np.stack([estimate - left, estimate - up, estimate - corner]))
        paeth = np.choose(distances.argmin(axis=0), [left, up, corner])  # the first of equals, as the standard has it
        guess = [0, left, up, (left + up) // 2, paeth][kind]
        filtered.append(bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes())
    header = struct.pack(">IIBBBBB", 7, 9, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(filtered))), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )
    chunk = np.moveaxis(rows.reshape(9, 7, 6).copy().view(">u2"), -1, 0)[:, None].astype("uint16")
    assert np.array_equal(decoded(data, chunk, "png"), chunk)
    for wrong in (data[:-20], data[:60] + b"!" + data[61:], data.replace(b"IEND", b"IENE")):
        with pytest.raises(CorruptDataset, match=r"^here: png"):
            decoded(wrong, chunk, "png")


def test_interlaced_16_bit_color_is_refused():
    chunk = samples((3, 1, 4, 4), "uint16")
    data = bytearray(encoded(chunk, "png"))
    data[28] = 1
    with pytest.raises(UnsupportedFeature, match="here: png: 3 channels of 16 bits in an interlaced image"):
        decoded(bytes(data), chunk, "png")


def jpeg_of(chunk):
    image, buffer = pytest.importorskip("PIL.Image"), BytesIO()
    image.fromarray(chunk[0, 0]).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_second_header_of_an_image_does_not_count(kind):
    """A decoder that takes the last one would take the memory that it claims."""
    small, large = samples((1, 1, 4, 4), "uint8"), samples((1, 1, 400, 500), "uint8")
    if kind == "png":
        good, other = encoded(small, "png"), encoded(large, "png")
        data = good[:33] + other[8:]  # a header has 25 bytes, after the magic of 8
    else:
        good, other = (jpeg_of(one) for one in (small, large))
        first = good.index(b"\xff\xc0")
        data = other[:2] + good[first : first + 2 + good[first + 3]] + other[2:]
    with pytest.raises(CorruptDataset, match=f"here: {kind}: 500 x 400 pixels, expected 16"):
        decoded(data, small, kind)


def test_damaged_images_are_told():
    chunk = samples((1, 2, 40, 50), "uint8")
    good = encoded(chunk, "png")
    for data in (b"", good[:30], good[:-200], b"GIF89a" + good[6:], good[:60] + bytes(40) + good[100:]):
        with pytest.raises(CorruptDataset, match=r"^here: png"):
            decoded(data, chunk, "png")
    for data in (b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00\x04ab" * 3, good):
        with pytest.raises(CorruptDataset, match=r"^here: jpeg"):
            decoded(data, chunk, "jpeg")
    with pytest.raises(CorruptDataset, match="jpeg of 1 channels of uint16"):
        decoded(good, chunk.astype("uint16"), "jpeg")


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_close(channels):
    image = pytest.importorskip("PIL.Image")
    y, x = np.mgrid[:12, :20]
    chunk = np.stack([(5 * y + 6 * x + 20 * n).astype(np.uint8) for n in range(channels)])[:, None]
    buffer = BytesIO()
    pixels = np.moveaxis(chunk[:, 0], 0, -1)
    image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    found = decoded(buffer.getvalue(), chunk, "jpeg")
    assert np.abs(found.astype(int) - chunk).max() < 16
    with pytest.raises(CorruptDataset, match="components, expected"):
        decoded(buffer.getvalue(), np.concatenate([chunk] * 3)[: 4 - channels], "jpeg")
    with pytest.raises(CorruptDataset, match="12 pixels, expected"):
        decoded(buffer.getvalue(), chunk[:, :, :11], "jpeg")
    with pytest.raises(CorruptDataset, match="jpeg"):
        decoded(buffer.getvalue()[:-100], chunk, "jpeg")


def test_images_without_pillow_name_the_extra(monkeypatch):
    chunk = samples((1, 1, 4, 4), "uint8")
    data = encoded(chunk, "png")
    original = builtins.__import__

    def without_pillow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "PIL":
            raise ImportError("no module")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(UnsupportedFeature, match=r"pip install .*\[view\]"):
        decoded(data, chunk, "png")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [1, 50, 100])
def test_jpeg_of_noise_is_no_larger_than_was_computed(channels, quality):
    chunk = samples((channels, 3, 64, 80), "uint8")
    found = decoded(encoded(chunk, "jpeg", quality), chunk, "jpeg").astype(int)
    if quality == 100:
        assert np.abs(found - chunk).max() <= (3 if channels == 1 else 8)


def test_better_jpeg_is_larger():
    chunk = samples((1, 1, 64, 64), "uint8")
    sizes = [len(encoded(chunk, "jpeg", quality)) for quality in (10, 50, 95)]
    assert sizes == sorted(set(sizes))
