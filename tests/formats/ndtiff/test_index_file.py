"""An index in the byte order of a big-endian machine."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.index_block import EntryBlock, parse_index
from acqstream.formats.ndtiff.index_entries import EntryBatch
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


@pytest.mark.parametrize("tail", [b"", bytes(70_000)])
def test_a_look_without_new_entries_parses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    """tail: zeros that an unfinished index has reserved."""
    folder = Folder(tmp_path)
    index = tmp_path / "NDTiff.index"
    entries = [folder.add({"time": t}, image(t), publish=False) for t in range(3)]
    index.write_bytes(b"".join(entries[:2]) + tail)
    looks: list[int] = []

    def counted(data: bytes, path: str, start: int) -> Iterator[EntryBlock | EntryBatch]:
        looks.append(start)
        return parse_index(data, path, start)

    monkeypatch.setattr("acqstream.formats.ndtiff.index_file.parse_index", counted)
    with acqstream.open(tmp_path) as ds:
        ds.refresh()
        seen = len(looks)
        assert not ds.refresh()
        assert not ds.refresh()
        assert len(looks) == seen
        with index.open("r+b") as file:
            file.seek(sum(map(len, entries[:2])))
            file.write(entries[2][:20])  # the rest is not written yet
        assert not ds.refresh()
        index.write_bytes(b"".join(entries) + tail[: -len(entries[2])])
        assert [key["time"] for key in ds.refresh()] == [2]
