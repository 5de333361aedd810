"""An index in the byte order of a big-endian machine."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset
from tests.formats.ndtiff.ndtiff_bytes import STACK, Folder, image


def as_big_endian(data: bytes) -> bytes:
    """An entry with all its numbers the other way round."""
    swapped, position = b"", 0
    for _ in ("axes", "name"):
        (length,) = struct.unpack_from("<I", data, position)
        text = data[position + 4 : position + 4 + length]
        swapped += struct.pack(">I", length) + text
        position += 4 + length
    return swapped + struct.pack(">8i", *struct.unpack_from("<8i", data, position))


def big_endian_folder(path: Path, frames: int) -> tuple[Folder, list[bytes]]:
    folder = Folder(path, order=">")
    entries = [folder.add({"time": t, "channel": "Ä"}, image(t), publish=False) for t in range(frames)]
    return folder, [as_big_endian(entry) for entry in entries]


def test_all_of_it_is_big_endian(tmp_path: Path) -> None:
    folder, entries = big_endian_folder(tmp_path, 300)
    folder.publish(b"".join(entries[:200]))
    with acqstream.open(tmp_path) as ds:
        assert ds.axes == {"time": list(range(200)), "channel": ["Ä"]}
        assert not ds.complete  # pages are there that the index does not name yet
        for entry in entries[200:]:
            folder.publish(entry)
        assert len(ds.refresh()) == 100
        assert ds.complete
        for t in (0, 199, 299):
            assert np.array_equal(ds.read_frame(time=t, channel="Ä"), image(t))


def test_a_big_endian_index_cut_anywhere_keeps_the_whole_entries(tmp_path: Path) -> None:
    folder, entries = big_endian_folder(tmp_path, 2)
    for cut in range(1, len(entries[1])):
        (folder.path / "NDTiff.index").write_bytes(entries[0] + entries[1][:cut])
        with acqstream.open(tmp_path) as ds:
            assert ds.axes["time"] == [0]
    (folder.path / "NDTiff.index").write_bytes(entries[0] + bytes(100))
    with acqstream.open(tmp_path) as ds:
        assert ds.axes["time"] == [0]


def test_a_length_that_makes_no_sense_either_way_is_damage(tmp_path: Path) -> None:
    Folder(tmp_path)
    (tmp_path / "NDTiff.index").write_bytes(b"\xff\xff\xff\x7f" + bytes(100))
    with pytest.raises(CorruptDataset, match=r"axes of 2147483647 bytes"):
        acqstream.open(tmp_path)
    assert (tmp_path / STACK).exists()
