"""Headers, byte for byte, both ways; what is no header is an error that says what and where."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.wkw.header import VOXEL_TYPES, BlockType, Header, decode_header, require_same_kind

U2 = np.dtype(np.uint16)
CASES = {  # made with the reference library
    "57 4b 57 01 11 01 02 02 00 00 00 00 00 00 00 00": Header(2, 2, BlockType.RAW, U2),
    "57 4b 57 01 11 02 02 02 00 00 00 00 00 00 00 00": Header(2, 2, BlockType.LZ4, U2),
    "57 4b 57 01 11 01 02 02 10 00 00 00 00 00 00 00": Header(2, 2, BlockType.RAW, U2, data_offset=16),
    "57 4b 57 01 11 02 02 02 50 00 00 00 00 00 00 00": Header(2, 2, BlockType.LZ4, U2, data_offset=80),
    "57 4b 57 01 01 01 01 03 10 00 00 00 00 00 00 00": Header(
        2, 1, BlockType.RAW, np.dtype(np.uint8), channels=3, data_offset=16
    ),
    "57 4b 57 01 55 03 09 04 00 00 00 00 00 00 00 00": Header(32, 32, BlockType.LZ4HC, np.dtype(np.int32)),
    "57 4b 57 01 77 01 01 ff 10 00 00 00 00 00 00 00": Header(
        128, 128, BlockType.RAW, np.dtype(np.uint8), channels=255, data_offset=16
    ),
}
GOOD = bytes.fromhex("57 4b 57 01 11 02 02 02 50 00 00 00 00 00 00 00")


@pytest.mark.parametrize(("text", "header"), CASES.items())
def test_headers_are_these_bytes_both_ways(text, header):
    assert header.encode(header.data_offset) == bytes.fromhex(text)
    assert decode_header(bytes.fromhex(text), "x") == header
    if header.data_offset:
        assert header.first_block == header.data_offset


@pytest.mark.parametrize(("code", "dtype"), VOXEL_TYPES.items())
def test_every_voxel_type_leads_back(code, dtype):
    header = Header(32, 4, BlockType.RAW, dtype, channels=2)
    assert header.encode(0)[6:8] == bytes([code, 2 * dtype.itemsize])
    assert decode_header(header.encode(0), "x") == header


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"X", r"f: begins with b'XKW', expected b'WKW' \(at byte 0\)"),
        (3, b"\2", r"f: has version 2, expected 1 \(at byte 3\)"),
        (5, b"\0", r"block type 0, expected 1 raw, 2 LZ4 or 3 LZ4-HC \(at byte 5\)"),
        (5, b"\4", "block type 4"),
        (6, b"\0", r"voxel type 0, expected 1 to 10 \(at byte 6\)"),
        (6, b"\x0b", "voxel type 11"),
        (7, b"\0", r"0 bytes a voxel, expected a multiple of 2 for uint16 \(at byte 7\)"),
        (7, b"\3", "3 bytes a voxel"),
    ],
)
def test_wrong_fields_are_named_with_place_and_what_was_expected(offset, value, text):
    data = GOOD[:offset] + value + GOOD[offset + 1 :]
    with pytest.raises(CorruptDataset, match=text) as caught:
        decode_header(data, "f")
    assert (caught.value.path, caught.value.offset) == ("f", offset)


@pytest.mark.parametrize("length", range(16))
def test_a_short_header_is_refused(length):
    with pytest.raises(CorruptDataset, match=f"holds {length} bytes, a WKW header takes 16"):
        decode_header(GOOD[:length], "f")


@pytest.mark.parametrize("lengths", [b"\x18", b"\x81", b"\xff"])
def test_lengths_beyond_every_implementation_are_not_allocated(lengths):
    with pytest.raises(UnsupportedFeature, match="at most 128 of each"):
        decode_header(GOOD[:4] + lengths + GOOD[5:], "f")


def test_a_file_of_another_kind_than_its_folder_is_refused():
    raw = Header(2, 2, BlockType.RAW, U2)
    require_same_kind(Header(2, 2, BlockType.RAW, U2, data_offset=16), raw, "f")
    with pytest.raises(CorruptDataset, match=r"header.wkw of its folder with 57 4b 57 01 11 01 02 02 \(at byte 5\)"):
        require_same_kind(Header(2, 2, BlockType.LZ4, U2), raw, "f")


@pytest.mark.parametrize(
    "wrong", [{"block_side": 0}, {"block_side": 33}, {"cube_blocks": 256}, {"channels": 128}, {"dtype": np.dtype("f2")}]
)
def test_a_header_that_cannot_be_written_is_not_made(wrong):
    kind = {"block_side": 32, "cube_blocks": 1, "block_type": BlockType.RAW, "dtype": U2} | wrong
    with pytest.raises(ValueError, match=r"power of two|channels|dtype"):
        Header(**kind)
