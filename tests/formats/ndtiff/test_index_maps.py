"""Versions 0 and 1: index maps inside the stack files, as published and as they may be damaged."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import acqstream
from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.ndtiff.index_maps import parse_axes_metadata, parse_name
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.formats.ndtiff.stack_header import ByteOrder
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, image

Entry = tuple[int, int, int, int]  # super channel, z, time, position
V1 = GOLDEN / "v1_5_uint16" / "data"


def write_stack(
    path: Path,
    frames: Mapping[Entry, tuple[NDArray[Any], dict[str, Any]]],
    *,
    summary: Mapping[str, Any] | None = None,
    order: ByteOrder = "<",
    capacity: int | None = None,
) -> list[int]:
    """A stack file of version 1, unfinished if it has a `capacity`; the offsets of its pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary or {}).encode()
    room = capacity or len(frames)
    position = 48 + len(text) + 20 * room
    pages, entries, directories = b"", b"", []
    for key, (pixels, metadata) in frames.items():
        directory = position + len(pages)
        directories.append(directory)
        at = directory + 2 + 12 * 13 + 4
        said = json.dumps(metadata).encode() + b" "
        values = [
            *(
                (256, 4, 1, pixels.shape[1]),
                (257, 4, 1, pixels.shape[0]),
                (258, 3, 1, 8 * pixels.itemsize),
                (259, 3, 1, 1),
            ),
            *(
                (262, 3, 1, 1),
                (273, 4, 1, at),
                (277, 3, 1, 1),
                (278, 3, 1, pixels.shape[0]),
                (279, 4, 1, pixels.nbytes),
            ),
            *((282, 5, 1, at), (283, 5, 1, at), (296, 3, 1, 3), (51123, 2, len(said), at + pixels.nbytes)),
        ]
        pages += struct.pack(order + "H", 13)
        for tag, kind, count, value in values:
            form = "HHIHxx" if kind == 3 and order == ">" else "HHII"
            pages += struct.pack(order + form, tag, kind, count, value)
        pages += struct.pack(order + "I", 0) + pixels.astype(pixels.dtype.newbyteorder(order)).tobytes() + said
        entries += struct.pack(order + "4iI", *key, directory)
    mark = b"II" if order == "<" else b"MM"
    display = 0 if capacity else 483765892
    head = (42, position, 54773648, 40 + len(text), display, 0, 483729, 1, 2355492, len(text))
    path.write_bytes(
        mark
        + struct.pack(order + "H9I", *head)
        + text
        + struct.pack(order + "2I", 3453623, room)
        + entries.ljust(20 * room, b"\0")
        + pages
    )
    return directories


@pytest.mark.parametrize("order", ["<", ">"])
def test_axes_come_from_the_frames_metadata(tmp_path: Path, order: ByteOrder) -> None:
    frames = {
        (0, 0, 0, 0): (image(0), {"Axes": {"z": 0, "filter": 3}}),
        (0, 2, 0, 0): (image(1), {}),  # only the first one of a super channel is asked
        (1, 0, 0, 0): (image(2), {"ImageStorageAxesPositions": {"z": 0, "filter": -4}}),
    }
    write_stack(tmp_path / "Full resolution" / "a_NDTiffStack.tif", frames, order=order)
    with acqstream.open(tmp_path) as ds:
        assert list(ds.keys()) == [{"z": 0, "filter": 3}, {"z": 2, "filter": 3}, {"z": 0, "filter": -4}]
        assert np.array_equal(ds.read_frame(z=2, filter=3), image(1))
        assert ds.levels[0].missing() == [{"z": 2, "filter": -4}]
        assert ds.complete


def test_without_axes_in_metadata_names_of_super_channels_tell(tmp_path: Path) -> None:
    frames = {(5, 0, 1, 0): (image(0), {}), (6, 0, 0, 0): (image(1), {"StorageSuperChannelName": "Axis_a_b_-2"})}
    write_stack(tmp_path / "Full resolution" / "a.tif", frames)
    name = b"Axis_exposure_1Axis_a_7"
    (tmp_path / "Axes_metedata").write_bytes(struct.pack("<ii", 5, len(name)) + name + bytes(100))
    with acqstream.open(tmp_path) as ds:
        rest = {"z": 0, "position": 0}
        assert list(ds.keys()) == [{"exposure": 1, "a": 7, "time": 1, **rest}, {"a_b": -2, "time": 0, **rest}]


def test_tiles_have_row_and_column_for_their_position(tmp_path: Path) -> None:
    summary = {"TiledImageStorage": True, "GridPixelOverlapX": 0, "GridPixelOverlapY": 0}
    axes = {"Axes": {"z": 0, "position": 0}}
    frames = {
        (0, 0, 0, n): (image(n), {**axes, "GridRowIndex": row, "GridColumnIndex": 3}) for n, row in enumerate([-2, -1])
    }
    write_stack(tmp_path / "Full resolution" / "a.tif", frames, summary=summary)
    low = {(0, 0, 0, 0): (image(9), {**axes, "GridRowIndex": -1, "GridColumnIndex": 3})}
    write_stack(tmp_path / "Downsampled_x2" / "a.tif", low, summary=summary)
    for place in (tmp_path, tmp_path / "Full resolution", tmp_path / "Full resolution" / "a.tif"):
        with acqstream.open(place) as ds:
            assert list(ds.keys()) == [{"z": 0, "row": -2, "column": 3}, {"z": 0, "row": -1, "column": 3}]
            full, half = ds.levels
            assert np.array_equal(full.read(0), np.concatenate([image(0), image(1)]))
            assert np.array_equal(half.read(0), image(9))
            assert (full.origin, half.origin) == ((-6, 12), (-3, 4))


def test_an_unfinished_file_ends_at_the_first_free_entry_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "Full resolution" / "a.tif"
    frames = {(0, 0, t, 0): (image(t), {"Axes": {"time": t}}) for t in range(3)}
    write_stack(path, dict(list(frames.items())[:2]), capacity=100_000)
    with acqstream.open(tmp_path) as ds:
        assert ds.axes == {"time": [0, 1]}
        assert not ds.complete
        write_stack(path, frames, capacity=100_000)
        assert ds.refresh() == [{"time": 2}]
        assert np.array_equal(ds.read_frame(time=2), image(2))


def test_stack_files_come_in_order_of_their_numbers(tmp_path: Path) -> None:
    for n in (10, 2, 0):
        name = f"a_{n}.tif" if n else "a.tif"
        write_stack(tmp_path / "Full resolution" / name, {(0, 0, n, 0): (image(n), {"Axes": {"time": n}})})
    (tmp_path / "Full resolution" / "b.tif").touch()  # reserved by nobody
    with acqstream.open(tmp_path) as ds:
        assert [key["time"] for key in list(ds.keys())] == [0, 2, 10]


def test_a_damaged_directory_costs_its_frame_only(tmp_path: Path) -> None:
    path = tmp_path / "Full resolution" / "a.tif"
    frames = {(0, 0, t, 0): (image(t), {"Axes": {"time": t}}) for t in range(3)}
    directories = write_stack(path, frames)
    content = bytearray(path.read_bytes())
    content[directories[1] : directories[1] + 2] = b"\xff\xff"
    path.write_bytes(content)
    with acqstream.open(tmp_path) as ds:
        with pytest.raises(CorruptDataset, match="beyond the end"):
            ds.read_frame(time=1)
        assert np.array_equal(ds.read_frame(time=2), image(2))
    content[directories[0] : directories[0] + 2] = b"\xff\xff"
    path.write_bytes(content)
    with pytest.raises(CorruptDataset, match=rf"a\.tif.*no page directory.*byte {directories[0]}"):
        acqstream.open(tmp_path)


@pytest.mark.parametrize(
    ("at", "words"),
    [(32, "summary mark"), (36, "beyond the file"), (119, "mark of the map's entries"), (0, "not a TIFF")],
)
def test_damaged_headers_say_where(tmp_path: Path, at: int, words: str) -> None:
    shutil.copytree(V1, tmp_path / "data")
    stack = tmp_path / "data" / "Full resolution" / "old_NDTiffStack.tif"
    content = bytearray(stack.read_bytes())
    at = 40 + struct.unpack_from("<I", content, 36)[0] if at == 119 else at
    content[at : at + 4] = b"\xee\xee\xee\xee"
    stack.write_bytes(content)
    with pytest.raises(CorruptDataset, match=words) as caught:
        open_readers(tmp_path / "data")
    assert (caught.value.path, caught.value.offset) == (str(stack), at)


@given(st.integers(0, 2**16), st.binary(min_size=1, max_size=8))
def test_rubbish_gives_errors_and_no_others(tmp_path_factory: pytest.TempPathFactory, at: int, rubbish: bytes) -> None:
    content = bytearray((V1 / "Full resolution" / "old_NDTiffStack.tif").read_bytes()[:20_000])
    at %= 600  # header and map
    content[at : at + len(rubbish)] = rubbish
    folder = tmp_path_factory.mktemp("rubbish") / "Full resolution"
    folder.mkdir()
    (folder / "old.tif").write_bytes(content)
    try:
        with acqstream.open(folder) as ds:
            for key in list(ds.keys()):
                try:
                    assert ds.read_frame(key).nbytes <= len(content)
                except DatasetError:
                    pass
    except (CorruptDataset, UnknownFormat):
        pass


@given(st.binary(max_size=200))
def test_any_axes_metadata_are_read(data: bytes) -> None:
    for name in parse_axes_metadata(data).values():
        parse_name(name)


def test_names_of_axes_may_hold_anything() -> None:
    assert parse_name("Axis_exposure_0Axis_channel_-1") == {"exposure": 0, "channel": -1}
    assert parse_name("Axis_a_1_2Axis_Axis_3") == {"a_1": 2, "Axis": 3}
    assert parse_name("") == parse_name("channel") == {}
