"""Every codec: the published bytes, there and back, and what is cut, long, damaged or lies about its size."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from acqstream.codecs import blosc, gzip, lz4_block_stream
from acqstream.codecs.sizes import Data
from acqstream.codecs.streams import (
    decode_bzip2,
    decode_raw,
    decode_xz,
    decode_zstd,
    encode_bzip2,
    encode_raw,
    encode_xz,
    encode_zstd,
)
from acqstream.errors import CorruptDataset, UnsupportedFeature


@dataclass(frozen=True)
class Codec:
    encode: Callable[[bytes], Data]
    decode: Callable[[bytes, int], Data | bytearray]


def blosc_of(data: bytes, *, shuffle: int) -> bytes:
    return blosc.encode(data, 2 if len(data) % 2 == 0 else 1, cname="lz4", clevel=5, shuffle=shuffle)


CODECS = {
    "raw": Codec(encode_raw, decode_raw),
    "gzip": Codec(gzip.encode, gzip.decode),
    "gzip-zlib": Codec(lambda data: gzip.encode(data, zlib=True), gzip.decode),
    "bzip2": Codec(encode_bzip2, decode_bzip2),
    "xz": Codec(encode_xz, decode_xz),
    "lz4": Codec(lz4_block_stream.encode, lz4_block_stream.decode),
    "lz4-pieces": Codec(lambda data: lz4_block_stream.encode(data, 64), lz4_block_stream.decode),
    "blosc": Codec(partial(blosc_of, shuffle=blosc.BYTE_SHUFFLE), blosc.decode),
    "blosc-bits": Codec(partial(blosc_of, shuffle=blosc.BIT_SHUFFLE), blosc.decode),
    "zstd": Codec(encode_zstd, decode_zstd),
}
SAMPLE = bytes.fromhex("000100020003000400050006")
ZEROS = bytes(64)
SAME = bytes.fromhex("0102") * 64
NOISE = np.random.default_rng(1121).poisson(200, 20_000).astype(">u2").tobytes()

# Streams of SAMPLE unless another is named; "made" where our encoder gives the same bytes.
STREAMS = {
    "gzip": (
        SAMPLE,
        "1f8b0800000000000003 6360 6460 6260 6660 6160 6560 0300 aaea6dbf 0c000000",
    ),
    "gzip-zlib": (SAMPLE, "789c 6360 6460 6260 6660 6160 6560 0300 00670016"),
    "bzip2": (
        SAMPLE,
        "425a68393141592653 59023e0dd2000000 40007f002000221a 63508600e72866f8 bb9229c28480 11f06e90",
    ),
    "xz": (
        SAMPLE,
        (
            "fd377a585a000004e6d6b4460200210116000000742fe5a301000b000100020003000400050006000d0309ca34ec15a70001240c"
            "a618d8d81fb6f37d010000000004595a"
        ),
    ),
    "lz4": (
        SAMPLE,
        "4c5a34426c6f636b160c0000000c00000090258b060001000200030004000500064c5a34426c6f636b16000000000000000000000000",
    ),
    "lz4 of zeros": (
        ZEROS,
        "4c5a34426c6f636b260b000000400000000499fa031f000100275000000000004c5a34426c6f636b16000000000000000000000000",
    ),
    "blosc": (SAMPLE, "020133020c0000000c0000001c000000000100020003000400050006"),
    "blosc of one value": (
        SAME,
        "0201310280000000800000002800000014000000100000001f0101002c1f02010027500202020202",
    ),
    "zstd": (SAMPLE, "28b52ffd200c610000000100020003000400050006"),
}


def stream(name: str) -> bytes:
    return bytes.fromhex(STREAMS[name][1])


def codec_of(name: str) -> Codec:
    return CODECS[name.partition(" ")[0]]


@pytest.mark.parametrize("name", STREAMS)
def test_published_streams_are_read(name: str) -> None:
    data, _ = STREAMS[name]
    assert bytes(codec_of(name).decode(stream(name), len(data))) == data


@pytest.mark.parametrize("name", [name for name in STREAMS if not name.startswith("gzip")])
def test_published_streams_are_made(name: str) -> None:
    data, _ = STREAMS[name]
    assert bytes(codec_of(name).encode(data)) == stream(name)


def test_published_gzip_streams_are_made_but_for_what_names_the_program() -> None:
    made = gzip.encode(SAMPLE)
    assert (made[:9], made[10:]) == (stream("gzip")[:9], stream("gzip")[10:])  # byte 9: the operating system
    made = gzip.encode(SAMPLE, zlib=True)
    assert (made[:1], made[2:]) == (stream("gzip-zlib")[:1], stream("gzip-zlib")[2:])  # byte 1: a hint of the level
    assert zlib.decompress(made) == SAMPLE


@pytest.mark.parametrize(
    "data", [b"\x07", SAMPLE, ZEROS, SAME, NOISE], ids=["byte", "sample", "zeros", "same", "noise"]
)
@pytest.mark.parametrize("name", CODECS)
def test_there_and_back(name: str, data: bytes) -> None:
    codec = CODECS[name]
    assert bytes(codec.decode(bytes(codec.encode(data)), len(data))) == data


@pytest.mark.parametrize("level", range(-1, 10))
def test_gzip_of_every_level_is_read_by_zlib(level: int) -> None:
    assert zlib.decompress(gzip.encode(NOISE, level), wbits=31) == NOISE


@pytest.mark.parametrize("cname", blosc.COMPRESSORS)
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blosc_of_every_kind(cname: str, shuffle: int) -> None:
    encoded = blosc.encode(NOISE, 2, cname=cname, clevel=5, shuffle=shuffle)
    assert encoded[2] & 0b101 == (0, 0b001, 0b100)[shuffle]  # what a reader undoes
    assert blosc.decode(encoded, len(NOISE)) == NOISE


def test_blosc_in_blocks_of_a_size() -> None:
    data, found = NOISE * 50, set()
    for blocksize in (0, 2**16):
        encoded = blosc.encode(data, 2, cname="lz4", clevel=1, shuffle=blosc.BIT_SHUFFLE, blocksize=blocksize)
        assert blosc.decode(encoded, len(data)) == data
        found.add(struct.unpack_from("<I", encoded, 8))
    assert len(found) == 2


def test_blosc_of_a_view() -> None:
    """As a slab gives its chunks: with several axes, and items of its own."""
    pixels = np.frombuffer(NOISE, np.uint16).reshape(10, 40, 50)
    encoded = blosc.encode(pixels.data, 2, cname="lz4", clevel=1, shuffle=blosc.BIT_SHUFFLE)
    assert blosc.decode(encoded, len(NOISE)) == NOISE


def test_blosc_tells_the_size_of_the_items() -> None:
    for item_bytes in (1, 2, 4, 8):
        assert blosc.encode(NOISE, item_bytes, cname="lz4", clevel=1, shuffle=blosc.BIT_SHUFFLE)[3] == item_bytes


def test_gzip_of_unknown_length_is_bounded() -> None:
    for data in (gzip.encode(SAMPLE), gzip.encode(SAMPLE, zlib=True)):
        for limit in (len(SAMPLE), 10**6):
            assert gzip.decode_at_most(data, limit) == SAMPLE
        for wrong in (data[:-1], data + b"more", b"", SAMPLE):
            with pytest.raises(CorruptDataset, match="gzip: "):
                gzip.decode_at_most(wrong, 10**6)
        with pytest.raises(CorruptDataset, match=f"holds more than {len(SAMPLE) - 1} bytes"):
            gzip.decode_at_most(data, len(SAMPLE) - 1)
    assert gzip.decode_at_most(gzip.encode(SAMPLE) + gzip.encode(ZEROS), 10**6) == SAMPLE + ZEROS


def test_members_of_gzip_are_read_one_after_the_other() -> None:
    assert gzip.decode(gzip.encode(SAMPLE) + gzip.encode(ZEROS), len(SAMPLE + ZEROS)) == SAMPLE + ZEROS


def test_many_empty_members_of_gzip_take_no_copy_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = vars(gzip)["isal_zlib"]
    seen: list[int] = []

    class Stream:
        def __init__(self, bits: int) -> None:
            self._stream = library.decompressobj(bits)

        def decompress(self, data: bytes, size: int) -> bytes:
            seen.append(len(data))  # what follows a member is copied
            decoded: bytes = self._stream.decompress(data, size)
            return decoded

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

    data = gzip.encode(b"") * 5000 + gzip.encode(SAMPLE)
    monkeypatch.setattr(gzip, "isal_zlib", SimpleNamespace(decompressobj=Stream, error=library.error))
    assert gzip.decode(data, len(SAMPLE)) == SAMPLE
    assert sum(seen) < 5001 * 5000 < 5001 * len(data) // 10


@pytest.mark.parametrize("filled", [4095, 4096, 4097])
def test_what_follows_the_last_member_of_gzip_is_refused(filled: int) -> None:
    """Further members are read in steps of 4096 bytes."""
    last = gzip.encode(NOISE * 8, 0)
    last = gzip.encode((NOISE * 8)[: filled - (len(last) - len(NOISE * 8))], 0)
    data, size = gzip.encode(b"") + last, len(gzip.decode_at_most(last, 10**6))
    assert len(gzip.decode(data, size)) == size
    for more in (b"x", b"xyz"):
        with pytest.raises(CorruptDataset, match=r"gzip: .* after the end of the stream"):
            gzip.decode(data + more, size)


def test_an_end_mark_of_lz4_may_be_missing() -> None:
    assert lz4_block_stream.decode(stream("lz4")[:-21], len(SAMPLE)) == SAMPLE


def zstd_without_size() -> bytes:
    made = encode_zstd(SAMPLE)
    assert made[4:6] == b"\x20\x0c"  # one segment, a size of one byte
    return made[:4] + b"\x00\x58" + made[6:]  # a window of 2 MiB, no size


def test_zstd_without_the_size_in_its_header_is_read() -> None:
    assert decode_zstd(zstd_without_size(), len(SAMPLE)) == SAMPLE
    for size in (len(SAMPLE) - 1, len(SAMPLE) + 1):
        with pytest.raises(CorruptDataset, match="zstd"):
            decode_zstd(zstd_without_size(), size)


@pytest.mark.parametrize("name", CODECS)
def test_another_size_than_expected_is_an_error(name: str) -> None:
    codec = CODECS[name]
    encoded = bytes(codec.encode(NOISE))
    for size in (0, 1, len(NOISE) - 1, len(NOISE) + 1):
        with pytest.raises(CorruptDataset, match=f"{name.partition('-')[0]}: .*expected {size}"):
            codec.decode(encoded, size)


@pytest.mark.parametrize("data", [SAMPLE, NOISE], ids=["sample", "noise"])
@pytest.mark.parametrize("name", CODECS)
def test_what_is_cut_or_goes_on_is_an_error(name: str, data: bytes) -> None:
    codec = CODECS[name]
    encoded = bytes(codec.encode(data))
    ends = {0, 1, 3, len(encoded) // 2, len(encoded) - 1}
    if name.startswith("lz4"):
        ends.discard(len(encoded) - 21)
    for damaged in (*(encoded[:end] for end in ends), encoded + b"\0\0", encoded + encoded[:5]):
        with pytest.raises(CorruptDataset, match=name.partition("-")[0]):
            codec.decode(damaged, len(data))


@pytest.mark.parametrize("name", ["gzip", "gzip-zlib", "bzip2", "xz", "lz4", "lz4-pieces"])
def test_a_changed_bit_is_found(name: str) -> None:
    """These have checksums. Some bits of a header mean nothing: then the data must be right."""
    codec, randomness = CODECS[name], random.Random(7)
    encoded = bytes(codec.encode(NOISE[:2000]))
    for _ in range(200):
        damaged = bytearray(encoded)
        damaged[randomness.randrange(len(damaged))] ^= 1 << randomness.randrange(8)
        try:
            found = codec.decode(bytes(damaged), 2000)
        except CorruptDataset:
            continue
        assert bytes(found) == NOISE[:2000]


@pytest.mark.parametrize("name", CODECS)
def test_damaged_streams_neither_crash_nor_grow(name: str) -> None:
    codec, randomness = CODECS[name], random.Random(11)
    for data in (SAME, NOISE[:5000]):
        encoded = bytes(codec.encode(data))
        for _ in range(150):
            damaged = bytearray(encoded)
            for _ in range(3):
                damaged[randomness.randrange(min(len(damaged), randomness.choice((24, 10**9))))] = randomness.randrange(
                    256
                )
            try:
                assert len(codec.decode(bytes(damaged), len(data))) == len(data)
            except CorruptDataset:
                pass


def test_sizes_that_headers_claim_are_not_believed() -> None:
    huge = 1 << 40
    frame = b"\x28\xb5\x2f\xfd\xe0" + huge.to_bytes(8, "little") + encode_zstd(SAMPLE)[6:]
    with pytest.raises(CorruptDataset, match="zstd: holds more than 12 bytes, expected 12"):
        decode_zstd(frame, 12)
    chunk = bytearray(stream("blosc"))
    chunk[4:8] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(CorruptDataset, match="blosc: holds more than 12 bytes"):
        blosc.decode(bytes(chunk), 12)
    chunk[4:8], chunk[12:16] = (12).to_bytes(4, "little"), (1 << 30).to_bytes(4, "little")
    with pytest.raises(CorruptDataset, match="blosc: the chunk has 28 bytes, its header states 1073741824"):
        blosc.decode(bytes(chunk), 12)
    piece = struct.pack("<8sBIII", b"LZ4Block", 0x26, 11, 1 << 31, 0) + bytes(11)
    with pytest.raises(CorruptDataset, match="lz4: 11 bytes for 2147483648"):
        lz4_block_stream.decode(piece, 64)
    bomb = zlib.compress(bytes(1 << 24))
    with pytest.raises(CorruptDataset, match="gzip: holds more than 100 bytes"):
        gzip.decode(bomb, 100)


def test_the_other_two_meanings_of_lz4_are_refused() -> None:
    import lz4.block

    for foreign, text in (
        (lz4.block.compress(NOISE, store_size=True), "after its length, as zarr 2"),
        (lz4.block.compress(NOISE, store_size=False), "one bare LZ4 block, as z5py"),
    ):
        with pytest.raises(UnsupportedFeature, match=text):
            lz4_block_stream.decode(foreign, len(NOISE))
        with pytest.raises(CorruptDataset, match="lz4: no LZ4Block at byte 0"):  # neither: damage
            lz4_block_stream.decode(foreign[:-5], len(NOISE))
        with pytest.raises(CorruptDataset, match="lz4: no LZ4Block at byte 0"):
            lz4_block_stream.decode(b"X" + lz4_block_stream.encode(NOISE)[1:], len(NOISE))


def test_blosc_refuses_more_bytes_than_it_can_encode() -> None:
    """Its library makes nothing of them, without an error. The memory is never touched."""
    with pytest.raises(ValueError, match="2147483632 bytes are too many for one chunk"):
        blosc.encode(np.zeros(2**31 - 16, np.uint8).data, 1, cname="lz4", clevel=1, shuffle=blosc.BIT_SHUFFLE)
    assert len(blosc.encode(b"", 1, cname="lz4", clevel=1, shuffle=blosc.BIT_SHUFFLE)) == 16, "a header, not nothing"


def test_an_xz_header_that_asks_for_gigabytes_is_refused() -> None:
    """The dictionary's size is one byte of the first block's header: 12 bytes of stream header, then 5 more."""
    data = bytearray(encode_xz(SAMPLE))
    data[16] = 40  # 4 GiB
    end = 12 + 4 * (data[12] + 1) - 4
    data[end : end + 4] = zlib.crc32(bytes(data[12:end])).to_bytes(4, "little")
    with pytest.raises(CorruptDataset, match="xz: Memory usage limit"):
        decode_xz(bytes(data), len(SAMPLE))
