from __future__ import annotations

import struct
import sys

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import ConfigError, ProtocolError
from acqstream.receive import dectris_stream
from acqstream.receive.dectris_stream import (
    SeriesEnd,
    SeriesImage,
    SeriesStart,
    channel_image,
    check_start,
    decompressed,
    parse_dectris,
    require_cbor,
)
from tests.receive import dectris_sender as sender

RNG = np.random.default_rng(5)


def pixels_of(shape: tuple[int, int], dtype: str) -> np.ndarray:
    return (RNG.integers(0, 256, shape) * RNG.integers(0, 200, shape) // 200).astype(dtype)


@pytest.mark.parametrize("compression", ["", "lz4", "bslz4"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (8, 16), (33, 19), (40, 64)])
def test_an_image_survives(compression, dtype, shape):
    pixels = pixels_of(shape, dtype)
    message = parse_dectris(sender.image(3, 9, {"t1": pixels}, compression))
    assert isinstance(message, SeriesImage)
    assert (message.series, message.image) == (3, 9)
    assert message.metadata["start_time"] == [9, 1000]
    found = channel_image(message.data["t1"])
    assert found.dtype == pixels.dtype
    assert np.array_equal(found, pixels)


def test_start_and_end():
    message = parse_dectris(sender.start(4, ["a", "b"], 10, arm_date=cbor2.CBORTag(0, "2026-11-21T06:00:00Z")))
    assert isinstance(message, SeriesStart)
    assert (message.series, message.channels, message.images) == (4, ("a", "b"), 10)
    assert message.kind == ((20, 30), "<u2")
    assert message.metadata["arm_date"].startswith("2026-11-21T06:00:00")
    assert "flatfield" not in message.metadata
    assert parse_dectris(sender.end(4)) == SeriesEnd(series=4)


def test_uint32_is_refused():
    message = parse_dectris(sender.start(4, ["a"], 10, "uint32"))
    assert isinstance(message, SeriesStart)
    with pytest.raises(ProtocolError, match="cannot be stored"):
        check_start(message)
    with pytest.raises(ProtocolError, match=r"uint32 cannot be stored: .*auto_summation.* to false"):
        channel_image(cbor2.loads(cbor2.dumps(sender.array(np.zeros((2, 2), "uint32")))))


HOSTILE = [
    b"",
    b"\xff",
    b"\xa1",
    b"\x81" * 5000,
    b"\x9b\x7f" + b"\xff" * 7,
    b"\x5b\x7f" + b"\xff" * 7,
    b"\x80" * 200_000,
    cbor2.dumps([1]),
    cbor2.dumps({"type": "other", "series_id": 1}),
    cbor2.dumps({"type": "end"}),
    cbor2.dumps({"type": "end", "series_id": -1}),
    cbor2.dumps({"type": "start", "series_id": 1, "channels": [1]}),
    cbor2.dumps({"type": "image", "series_id": 1, "image_id": 0, "data": {}}),
    b"\xa2\x64type\x63end\x69series_id\xd8\x23\x61(",  # a regular expression (tag 35)
    b"\xd8\x1c\x81\xd8\x1d\x00",  # a list that holds itself
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_messages(raw):
    with pytest.raises(ProtocolError):
        parse_dectris(raw)


@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_protocol_error(raw):
    with pytest.raises(ProtocolError):
        parse_dectris(raw)


@given(st.data())
def test_changed_bytes_never_end_in_another_error(data):
    raw = bytearray(sender.image(1, 0, {"a": np.arange(60, dtype="uint16").reshape(6, 10)}, "bslz4"))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = parse_dectris(bytes(raw))
        if isinstance(message, SeriesImage):
            for value in message.data.values():
                channel_image(value)
    except ProtocolError:
        pass


@pytest.mark.parametrize("shape", [[2**20, 2**20], [3, 4], [-1, 2], [2.0, 6], [12], [2, 2, 3], ["a", 1]])
def test_a_shape_that_does_not_fit_the_pixels(shape):
    encoded = cbor2.CBORTag(40, [shape, cbor2.CBORTag(69, bytes(2))])
    with pytest.raises(ProtocolError):
        channel_image(cbor2.loads(cbor2.dumps(encoded)))


@pytest.mark.parametrize("algorithm", ["lz4", "bslz4"])
def test_broken_compression(algorithm):
    raw = bytes(4096)
    good = sender.lz4_bytes(raw) if algorithm == "lz4" else sender.bslz4_bytes(np.zeros(2048, "uint16"))
    assert decompressed(algorithm, 2, good, expected=4096) == raw
    size = struct.pack(">Q", 2**40)
    for data in (
        good[:-1],
        good + b"x",
        good[:8] + bytes(4) + good[12:],
        good[:12] + b"\xff" * 9,
        size + good[8:],
        b"",
    ):
        with pytest.raises(ProtocolError):
            decompressed(algorithm, 2, data, expected=4096)
    with pytest.raises(ProtocolError, match="cannot hold"):
        decompressed(algorithm, 2, size + good[8:], expected=2**40)
    with pytest.raises(ProtocolError, match="not supported"):
        decompressed("zstd", 2, good, expected=4096)


def test_without_cbor2(monkeypatch):
    monkeypatch.setitem(sys.modules, "cbor2", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[dectris\]"):
        require_cbor()


def one_by_one(data: bytes, element_bytes: int, expected: int, monkeypatch) -> bytes | str:
    with monkeypatch.context() as patch:
        patch.setattr(dectris_stream, "_bslz4_at_once", lambda *_: None)
        return result(data, element_bytes, expected)


def result(data: bytes, element_bytes: int, expected: int) -> bytes | str:
    try:
        return bytes(decompressed("bslz4", element_bytes, data, expected=expected))
    except ProtocolError as error:
        return str(error)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(("count", "elements"), [(8, 8), (64, 8), (1001, 256), (4096, 4096), (5000, 2048), (7, 8)])
def test_blocks_are_decoded_together(dtype, count, elements, monkeypatch):
    pixels = pixels_of((1, count), dtype)
    data = sender.bslz4_bytes(pixels, elements)
    assert result(data, pixels.itemsize, pixels.nbytes) == pixels.tobytes()
    assert one_by_one(data, pixels.itemsize, pixels.nbytes, monkeypatch) == pixels.tobytes()
    if elements >= 256:
        monkeypatch.setattr(dectris_stream, "_unshuffled", None)
        assert result(data, pixels.itemsize, pixels.nbytes) == pixels.tobytes()


def test_a_block_that_lz4_leaves_as_long_as_it_was_is_decoded():
    """The library of blosc would take it for one that is not compressed."""
    for seed in range(2000):
        pixels = np.random.default_rng(seed).integers(0, 256, (1, 256), np.uint8)
        pixels[0, : seed % 40] = 0
        data = sender.bslz4_bytes(pixels, 256)
        if len(data) == 16 + 256:
            break
    else:
        pytest.fail("no such block")
    assert result(data, 1, 256) == pixels.tobytes()


def test_lengths_of_nothing_are_refused_at_once():
    data = struct.pack(">QI", 2**22, 256) + bytes(4 * 2**14)
    assert dectris_stream._bslz4_at_once(data, 2**22, 256, 1) is None
    assert result(data, 1, 2**22).startswith("compressed pixels: a block of 0 bytes")


@given(data=st.data())
def test_damaged_blocks_end_as_one_by_one(data):
    pixels = np.random.default_rng(8).poisson(3, (16, 40)).astype("uint16")
    raw = bytearray(sender.bslz4_bytes(pixels, 128))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(12, len(raw)))])
    with pytest.MonkeyPatch.context() as patch:
        expected = one_by_one(cut, 2, pixels.nbytes, patch)
    assert result(cut, 2, pixels.nbytes) == expected
