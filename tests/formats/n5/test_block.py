"""Block files: the specification's example, both styles of end blocks, and everything that must not be read as data."""

from __future__ import annotations

import gzip
import re
import struct

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.n5.codec import encode_items, make_header
from tests.formats.n5.n5_samples import block, make_dataset, put_block

EXAMPLE = bytes.fromhex("00000003 00000001 00000002 00000003 0001 0002 0003 0004 0005 0006")


def read(folder):
    with acqstream.open(folder) as ds:
        return ds.levels[0].read()


def test_the_example_of_the_specification_is_read(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [1, 2, 3], [1, 2, 3])
    put_block(folder, (0, 0, 0), EXAMPLE)
    assert read(folder).tolist() == [[[1], [2]], [[3], [4]], [[5], [6]]]


def test_the_example_of_the_specification_is_made():
    values = np.arange(1, 7, dtype="u2").reshape(3, 2, 1)
    assert make_header(values.shape) + bytes(encode_items(values)) == EXAMPLE
    assert make_header((1, 2, 1)).hex() == "00000003000000010000000200000001"


def test_a_chunk_in_big_endian_is_not_copied():
    values = np.arange(6, dtype=">u2").reshape(3, 2, 1)
    values[0, 0, 0] = 0x0102
    items = encode_items(values)
    values[0, 0, 0] = 0x0304
    assert bytes(items[:2]) == b"\x03\x04"


@pytest.mark.parametrize("extents", [(1, 2, 1), (1, 2, 2)], ids=["truncated", "padded"])
def test_both_styles_of_end_blocks_are_read(tmp_path, extents):
    folder = make_dataset(tmp_path / "a.n5" / "d", [1, 2, 3], [1, 2, 2])
    put_block(folder, (0, 0, 0), block((1, 2, 2), [1, 2, 3, 4]))
    put_block(folder, (0, 0, 1), block(extents, [5, 6, 0, 0][: extents[1] * extents[2]]))
    assert read(folder).ravel().tolist() == [1, 2, 3, 4, 5, 6]


def test_missing_blocks_and_what_a_short_block_lacks_are_zeros(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [4, 2], [2, 2])
    put_block(folder, (0, 0), block((1, 2), [7, 8]))
    assert read(folder).tolist() == [[7, 0, 0, 0], [8, 0, 0, 0]]


def test_a_block_of_variable_length_is_read_if_it_is_an_image(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2])
    path = put_block(folder, (0, 0), block((2, 2), [1, 2, 3, 4], mode=1, extra=struct.pack(">I", 4)))
    assert read(folder).tolist() == [[1, 2], [3, 4]]
    put_block(folder, (0, 0), block((2, 2), [1, 2, 3, 4], mode=1, extra=struct.pack(">I", 5)))
    with pytest.raises(UnsupportedFeature, match=f"{re.escape(str(path))}: a block of 5 elements of variable length"):
        read(folder)
    put_block(folder, (0, 0), struct.pack(">HI", 2, 4) + b"abcd")
    with pytest.raises(UnsupportedFeature, match="a block of objects"):
        read(folder)


WHOLE = block((2, 2), [1, 2, 3, 4])
DAMAGED = {
    "empty": (b"", "too few for the header", 0),
    "mode only": (WHOLE[:2], "too few for the header", 0),
    "half a header": (WHOLE[:10], "the header alone has 12", 10),
    "header only": (WHOLE[:12], "raw: holds 0 bytes, expected 8", 12),
    "half": (WHOLE[:16], "raw: holds 4 bytes, expected 8", 12),
    "one byte short": (WHOLE[:-1], "raw: holds 7 bytes, expected 8", 12),
    "one byte more": (WHOLE + b"\0", "raw: holds more than 8 bytes, expected 8", 12),
    "unknown mode": (block((2, 2), [1, 2, 3, 4], mode=7), "unknown mode 7", 0),
    "other rank": (block((2, 2, 1), [1, 2, 3, 4]), "3 dimensions, expected 2", 2),
    "rank 65535": (struct.pack(">HH", 0, 65535) + bytes(20), "65535 dimensions, expected 2", 2),
    "no extent": (block((0, 2), []), r"a block of \(0, 2\)", 4),
    "too large": (block((3, 2), range(6)), r"a block of \(3, 2\) \(x first\), expected at most \(2, 2\)", 4),
    "huge": (block((2**32 - 1, 2**32 - 1), [1]), "expected at most", 4),
    "zeros": (bytes(20), "0 dimensions, expected 2", 2),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_block_raises_with_file_and_offset(tmp_path, name):
    content, text, offset = DAMAGED[name]
    folder = make_dataset(tmp_path / "a.n5" / "d", [4, 2], [2, 2])
    put_block(folder, (0, 0), WHOLE)
    path = put_block(folder, (1, 0), content)
    with pytest.raises(CorruptDataset, match=text) as caught:
        read(folder)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)
    with acqstream.open(folder) as ds:  # damage costs what it hits
        assert ds.levels[0].read((..., slice(0, 2))).tolist() == [[1, 2], [3, 4]]


def test_damaged_gzip_blocks_raise(tmp_path):
    folder = make_dataset(
        tmp_path / "a.n5" / "d", [2, 2], [2, 2], compression={"type": "gzip", "level": 1, "useZlib": False}
    )
    member = gzip.compress(WHOLE[12:])
    put_block(folder, (0, 0), WHOLE[:12] + member)
    assert read(folder).tolist() == [[1, 2], [3, 4]]
    for payload in (member[:-9], member + b"\0\0", member[:-5] + b"\xff" * 5, b""):
        path = put_block(folder, (0, 0), WHOLE[:12] + payload)
        with pytest.raises(CorruptDataset, match=f"{re.escape(str(path))}: gzip: .*at byte 12"):
            read(folder)


def test_zlib_under_gzip_is_told_by_its_first_bytes(tmp_path):
    import zlib

    # As an old writer does, whose attributes do not say so.
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2], compression={"type": "gzip"})
    put_block(folder, (0, 0), WHOLE[:12] + zlib.compress(WHOLE[12:]))
    assert read(folder).tolist() == [[1, 2], [3, 4]]


def test_a_block_file_of_gigabytes_is_not_read(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2], compression={"type": "bzip2"})
    path = put_block(folder, (0, 0), WHOLE)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptDataset, match="has 1099511627776 bytes, a block at most"):
        read(folder)


def test_a_folder_in_place_of_a_block_raises(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2])
    (folder / "0" / "0").mkdir(parents=True)
    with pytest.raises(acqstream.DatasetError, match="not a regular file"):
        read(folder)
