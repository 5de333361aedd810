"""Whole cube files, byte for byte, and blocks in their order."""

from __future__ import annotations

import math
from unittest import mock

import lz4.block
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import CorruptDataset
from acqstream.formats.wkw import codec
from acqstream.formats.wkw.codec import (
    block_order,
    encode_compressed,
    encode_raw,
    largest_compressed_bytes,
    raw_runs,
    scatter_blocks,
)
from acqstream.formats.wkw.cube_folder import CubeFolder
from acqstream.formats.wkw.header import BlockType, Header, decode_positions, encode_jump_table
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.blocks import in_blocks
from tests.formats.wkw.wkw_data import noise, write_cubes

# Made with the reference library: uint16, blocks of 2, two of them a side, value = x + 4 y + 16 z.
RAW = """
57 4b 57 01 11 01 02 02 10 00 00 00 00 00 00 00
00 00 01 00 04 00 05 00 10 00 11 00 14 00 15 00
02 00 03 00 06 00 07 00 12 00 13 00 16 00 17 00
08 00 09 00 0c 00 0d 00 18 00 19 00 1c 00 1d 00
0a 00 0b 00 0e 00 0f 00 1a 00 1b 00 1e 00 1f 00
20 00 21 00 24 00 25 00 30 00 31 00 34 00 35 00
"""
LZ4 = """
57 4b 57 01 11 02 02 02 50 00 00 00 00 00 00 00
62 00 00 00 00 00 00 00 74 00 00 00 00 00 00 00
86 00 00 00 00 00 00 00 98 00 00 00 00 00 00 00
aa 00 00 00 00 00 00 00 bc 00 00 00 00 00 00 00
ce 00 00 00 00 00 00 00 e0 00 00 00 00 00 00 00
f0 01 00 00 01 00 04 00 05 00 10 00 11 00 14 00 15 00
f0 01 02 00 03 00 06 00 07 00 12 00 13 00 16 00 17 00
"""
# Three channels of uint8, one block of 2: value = channel << 4 | x << 2 | y << 1 | z.
CHANNELS = """
57 4b 57 01 01 01 01 03 10 00 00 00 00 00 00 00
00 10 20 04 14 24 02 12 22 06 16 26 01 11 21 05
15 25 03 13 23 07 17 27
"""
U2 = np.dtype(np.uint16)
COUNTING = np.arange(64, dtype=np.uint16).reshape(4, 4, 4)


def counting_channels():
    z, y, x, c = np.indices((2, 2, 2, 3))
    return (c << 4 | x << 2 | y << 1 | z).astype(np.uint8)


@pytest.mark.parametrize(
    ("text", "length", "header", "voxels"),
    [
        (RAW, 144, Header(2, 2, BlockType.RAW, U2), COUNTING),
        (LZ4, 224, Header(2, 2, BlockType.LZ4, U2), COUNTING),
        (CHANNELS, 40, Header(2, 1, BlockType.RAW, np.dtype(np.uint8), channels=3), counting_channels()),
    ],
)
def test_the_published_bytes_come_out_and_go_in(tmp_path, text, length, header, voxels):
    write_cubes(tmp_path, header, voxels)
    data = (tmp_path / "z0/y0/x0.wkw").read_bytes()
    expected = bytes.fromhex(text)
    assert (len(data), data[: len(expected)]) == (length, expected)
    folder = CubeFolder(data_path_of(tmp_path))
    pieces = [folder.read_piece((z, 0, 0)) for z in range(header.cube_blocks)]
    assert np.array_equal(np.concatenate(pieces), voxels)


def test_a_layer_of_blocks_lies_in_runs_of_four():
    assert block_order((0, 0, 0), (1, 4, 4)).runs == ((0, 4), (8, 4), (16, 4), (24, 4))
    assert block_order((1, 0, 0), (1, 4, 4)).runs == ((4, 4), (12, 4), (20, 4), (28, 4))
    assert block_order((2, 0, 0), (2, 4, 4)).runs == ((32, 32),)
    assert block_order((0, 0, 0), (4, 4, 4)).runs == ((0, 64),)
    assert block_order((0, 1, 2), (1, 2, 1)).runs == ((10, 1), (24, 1))


@given(
    st.tuples(*[st.integers(0, 9)] * 3),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.tuples(*[st.integers(0, 2)] * 3),
    st.sampled_from([(), (2,)]),
    st.integers(1, 9),
)
def test_blocks_go_out_and_come_back_to_their_places(first, counts, beyond, channels, most):
    """Of a box of blocks those inside of the plane, with few pieces written at once or many."""
    order = block_order(first, counts)
    header = Header(2, 16, BlockType.RAW, U2, math.prod(channels))
    box = tuple(count + more for count, more in zip(counts, beyond, strict=True))
    voxels = noise((*(2 * count for count in box), *channels), np.uint16)
    with mock.patch.object(codec, "_MOST_PIECES", most):
        runs = list(raw_runs(encode_raw(in_blocks(voxels, header.block_shape)), box, header, order))
    assert max(len(pieces) for _, pieces in runs) <= most
    file = bytearray(header.raw_file_bytes)
    written = np.zeros(header.block_count, bool)
    for offset, pieces in runs:
        data = b"".join(pieces)
        code, within = divmod(offset - header.first_block, header.block_bytes)
        assert (within, len(data) % header.block_bytes) == (0, 0)
        count = len(data) // header.block_bytes
        assert not written[code : code + count].any()
        written[code : code + count] = True
        file[offset : offset + len(data)] = data
    assert np.flatnonzero(written).tolist() == order.codes.tolist()
    stored = np.frombuffer(file, np.uint16, offset=header.first_block).reshape(-1, *header.block_shape)
    back = np.zeros((*(2 * count for count in counts), *channels), np.uint16)
    scatter_blocks(np.ascontiguousarray(stored[order.codes]), order, back)
    assert np.array_equal(back, voxels[tuple(slice(2 * count) for count in counts)])
    assert sum(count for _, count in order.runs) == len(order) == np.prod(counts)
    assert [first + step for first, count in order.runs for step in range(count)] == order.codes.tolist()


@pytest.mark.parametrize("block_type", [BlockType.LZ4, BlockType.LZ4HC])
def test_a_compressed_file_is_header_table_and_bare_lz4_blocks(block_type):
    header = Header(4, 2, block_type, U2)
    voxels = noise((8, 8, 8), np.uint16)
    voxels[:4] //= 4096
    data = b"".join(encode_compressed(in_blocks(voxels, header.block_shape), header))
    assert len(data) <= largest_compressed_bytes(header)
    assert data[:16] == header.encode(16 + 8 * 8)
    ends = np.frombuffer(data, "<u8", 8, 16).tolist()
    assert ends[-1] == len(data)
    blocks = [
        np.frombuffer(lz4.block.decompress(data[start:stop], uncompressed_size=128), "<u2").reshape(4, 4, 4)
        for start, stop in zip([80, *ends], ends, strict=False)
    ]
    for code, block in enumerate(blocks):
        z, y, x = (4 * (code >> bit & 1) for bit in (2, 1, 0))
        assert np.array_equal(block, voxels[z : z + 4, y : y + 4, x : x + 4])


def test_the_byte_order_of_voxels_does_not_matter():
    header = Header(4, 1, BlockType.LZ4, U2)
    voxels = noise((4, 4, 4), np.uint16)
    assert encode_compressed(in_blocks(voxels.astype(">u2"), header.block_shape), header) == encode_compressed(
        in_blocks(voxels, header.block_shape), header
    )


def test_jump_tables_lead_back():
    header = Header(2, 2, BlockType.LZ4, U2)
    lengths = [18, 5, 7, 18, 18, 18, 1, 9]
    table = encode_jump_table(header, lengths)
    assert table[:8] == (80 + 18).to_bytes(8, "little")
    data = header.encode(80)[8:] + table
    positions = decode_positions(data, 0, header, 80 + sum(lengths), "f")
    assert np.diff(positions).tolist() == lengths
    assert decode_positions(data[16:32], 2, header, 1000, "f").tolist() == positions[2:4].tolist()
    with pytest.raises(ValueError, match="7 blocks for a cube of 8"):
        encode_jump_table(header, lengths[1:])


@pytest.mark.parametrize(
    ("entries", "text", "offset"),
    [
        ([80, 98, 98], "block 1 of 0 bytes, expected at least 1", 24),
        ([80, 98, 90], "block 1 of -8 bytes", 24),
        ([80, 98, 201], "block 2 at byte 201, expected 80 to 200", 24),
        ([79, 98, 110], "block 0 at byte 79, expected 80 to 200", 8),
        ([80, 98, 2**64 - 1], "block 2 at byte 18446744073709551615", 24),
    ],
)
def test_tables_that_cannot_be_are_named_by_entry(entries, text, offset):
    header = Header(2, 2, BlockType.LZ4, U2)
    with pytest.raises(CorruptDataset, match=text) as caught:
        decode_positions(np.array(entries, "<u8").tobytes(), 0, header, 200, "f")
    assert caught.value.offset == offset


def test_a_block_that_is_too_short_for_its_voxels_is_refused_before_memory_is_taken():
    header = Header(128, 1, BlockType.LZ4, U2, channels=100)  # 400 MB a block
    with pytest.raises(CorruptDataset, match="block 0 of 100 bytes, expected at least 1644826"):
        decode_positions(np.array([24, 124], "<u8").tobytes(), 0, header, 200, "f")
