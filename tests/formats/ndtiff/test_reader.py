"""Reading one level, finished, growing, damaged or hostile."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import (
    AcqStreamError,
    CorruptDataset,
    DatasetError,
    FrameNotFound,
    UnknownFormat,
    UnsupportedFeature,
)
from acqstream.formats.ndtiff import index_file, stack_files
from acqstream.formats.ndtiff.folders import is_ndtiff
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from tests.formats.ndtiff.ndtiff_bytes import STACK, Folder, entry, image


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data", {"k": 1})


def open_one(folder: Folder) -> NDTiffReader:
    (reader,) = open_readers(folder.path)
    return reader


def pixels(reader: NDTiffReader, **axes: int) -> np.ndarray[Any, Any]:
    return reader.read_pixels(reader.row(axes))


def test_index_bytes_that_come_one_by_one(folder: Folder) -> None:
    entries = [folder.add({"time": t}, image(t), publish=False) for t in range(3)]
    reader = open_one(folder)
    for t, data in enumerate(entries):
        for i in range(len(data)):
            assert reader.refresh() == range(t, t)
            folder.publish(data[i : i + 1])
        assert reader.refresh() == range(t, t + 1)
        assert np.array_equal(pixels(reader, time=t), image(t))
    assert list(reader.keys()) == [{"time": 0}, {"time": 1}, {"time": 2}]
    assert list(reader.keys(range(1, 2))) == [{"time": 1}]


@pytest.mark.parametrize("window", [100, 150, 64 * 1024])
def test_an_index_longer_than_the_window(folder: Folder, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(index_file, "_FIRST_WINDOW_BYTES", 100)
    monkeypatch.setattr(index_file, "_WINDOW_BYTES", window)
    for t in range(30):
        folder.publish(entry({"time": t}))
    assert len(open_one(folder)) == 30


def test_columns_of_rows(folder: Folder) -> None:
    keys: list[dict[str, Any]] = [
        {"time": 4, "channel": "b"},
        {"time": 2},
        {"time": 4, "channel": "a"},
        {"time": 3, "channel": "b", "z": 0},
    ]
    for number, key in enumerate(keys):
        folder.add(key, image(number))
    reader = open_one(folder)
    for rows in (range(4), range(1, 3), range(2, 2)):
        found = reader.key_columns(rows)
        assert set(found) == {"time", "channel", "z"}
        for name, column in found.items():
            right = [keys[row].get(name) for row in rows]
            assert [column.values[at] for at in column.positions] == right
            assert list(column.values) == list(dict.fromkeys(right))
    chosen = reader.entry_columns(np.array([3, 0]))
    assert [int(offset) for offset in chosen.numbers["pixel_offset"]] == [
        reader.stored_frame(row)[1].pixels for row in (3, 0)
    ]
    assert [chosen.stack_names[stack] for stack in chosen.stacks] == [STACK, STACK]
    assert chosen.is_plain.all()
    assert set(chosen.payload_bytes.tolist()) == {image(0).nbytes}
    assert len(reader.entry_columns(range(1, 3)).numbers) == 2


def test_zeros_reserved_in_the_index_are_filled_later(folder: Folder) -> None:
    entries = [folder.add({"time": t}, image(t), publish=False) for t in range(2)]
    index = folder.path / "NDTiff.index"
    index.write_bytes(entries[0] + bytes(5000))
    reader = open_one(folder)
    assert len(reader) == 1
    assert not reader.complete
    index.write_bytes(entries[0] + entries[1] + bytes(4900))
    assert reader.refresh() == range(1, 2)


def test_a_later_frame_with_the_same_axes_wins(folder: Folder) -> None:
    folder.add({"time": 0}, image(0))
    reader = open_one(folder)
    folder.add({"time": 1}, image(1))
    folder.add({"time": 0}, image(2))
    assert list(reader.keys(reader.refresh())) == [{"time": 1}]
    assert np.array_equal(pixels(reader, time=0), image(2))
    assert list(reader.keys()) == [{"time": 0}, {"time": 1}]


def test_stack_cut_at_every_byte_of_the_last_pages(folder: Folder) -> None:
    for t in range(4):
        folder.add({"time": t}, image(t))
    path = folder.path / STACK
    data = path.read_bytes()
    for cut in range(len(data), len(data) - 450, -1):
        os.truncate(path, cut)
        reader = open_one(folder)
        for t in range(4):
            check_frame_or_error(reader, t, image(t), cut)
        assert isinstance(reader.complete, bool)


def check_frame_or_error(reader: NDTiffReader, t: int, expected: np.ndarray[Any, Any], size: int) -> None:
    row = reader.row({"time": t})
    numbers = reader._table.numbers(row)
    if numbers["pixel_offset"] + expected.nbytes <= size:
        assert np.array_equal(reader.read_pixels(row), expected)
    else:
        with pytest.raises(CorruptDataset, match="beyond the end") as caught:
            reader.read_pixels(row)
        assert (caught.value.path, caught.value.offset) == (str(reader.path / STACK), numbers["pixel_offset"])
    if numbers["metadata_offset"] + numbers["metadata_length"] <= size:
        assert reader.read_metadata(row) == {"Axes": {"time": t}}
    else:
        with pytest.raises(CorruptDataset, match="metadata"):
            reader.read_metadata(row)


def test_index_cut_at_every_byte_of_the_last_entries(folder: Folder) -> None:
    entries = [folder.add({"time": t}, image(t)) for t in range(4)]
    path = folder.path / "NDTiff.index"
    data = path.read_bytes()
    for cut in range(len(data), len(entries[0]) + len(entries[1]) - 1, -1):
        os.truncate(path, cut)
        reader = open_one(folder)
        whole = cut // len(entries[0])
        assert list(reader.keys()) == [{"time": t} for t in range(whole)]
        assert reader.complete == (cut == len(data))


@given(st.binary(max_size=200), st.booleans())
def test_random_index_raises_only_our_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, after_good: bool
) -> None:
    folder = Folder(tmp_path_factory.mktemp("random"))
    folder.publish((entry({"t": 0}) if after_good else b"") + data)
    try:
        reader = open_one(folder)
        for row in range(len(reader)):
            reader.read_pixels(row)
    except AcqStreamError:
        pass


@given(
    st.tuples(
        *[
            st.integers(0, 2**32 - 1),
            *[st.integers(-(2**31), 2**31 - 1)] * 4,
            st.integers(0, 2**32 - 1),
            *[st.integers(-5, 2**31 - 1)] * 2,
        ]
    )
)
def test_hostile_numbers_raise_only_our_errors(
    tmp_path_factory: pytest.TempPathFactory, numbers: tuple[int, ...]
) -> None:
    folder = Folder(tmp_path_factory.mktemp("hostile"))
    folder.publish(entry({"t": 0}, numbers))
    reader = open_one(folder)
    for row in range(len(reader)):
        for read in (reader.read_pixels, reader.read_metadata, reader.frame_shape, reader.frame_dtype):
            try:
                read(row)
            except AcqStreamError:
                pass


@pytest.mark.parametrize("compression", [0, 8])
def test_giant_frames_are_refused_before_memory_is_taken(folder: Folder, compression: int) -> None:
    folder.publish(entry({"t": 0}, (30, 60000, 60000, 1, compression, 0, 2**31 - 1, 0)))
    reader = open_one(folder)
    with pytest.raises(CorruptDataset, match="beyond the end"):
        pixels(reader, t=0)
    with pytest.raises(CorruptDataset, match="at most"):
        reader.read_metadata(0)


@pytest.mark.parametrize("code", [8, 32946])
def test_zlib_pixels(folder: Folder, code: int) -> None:
    path = folder.path / STACK
    start = path.stat().st_size
    packed = zlib.compress(image(1).tobytes())
    path.write_bytes(path.read_bytes() + packed + b"{}")
    folder.publish(entry({"t": 0}, (start, 4, 3, 1, code, start + len(packed), 2, 0)))
    folder.publish(entry({"t": 1}, (start, 4, 2, 1, code, start + len(packed), 2, 0)))
    folder.publish(entry({"t": 2}, (start, 4, 4, 1, code, start + len(packed), 2, 0)))
    folder.publish(entry({"t": 3}, (start + 1, 4, 3, 1, code, start + len(packed), 2, 0)))
    reader = open_one(folder)
    assert np.array_equal(pixels(reader, t=0), image(1))
    assert pixels(reader, t=0).flags.writeable
    for t in (1, 2, 3):
        with pytest.raises(CorruptDataset, match="decompress"):
            pixels(reader, t=t)


@pytest.mark.parametrize("kind", ["plain", "zlib", "rgb", "big-endian"])
def test_some_rows_of_a_frame(tmp_path: Path, kind: str) -> None:
    shape, dtype = ((5, 4, 3), "|u1") if kind == "rgb" else ((5, 4), "<u2")
    folder = Folder(tmp_path / "rows", order=">" if kind == "big-endian" else "<")
    expected = image(1, shape, dtype)
    if kind == "zlib":
        path = folder.path / STACK
        start, packed = path.stat().st_size, zlib.compress(expected.tobytes())
        path.write_bytes(path.read_bytes() + packed + b"{}")
        folder.publish(entry({"t": 0}, (start, 4, 5, 1, 8, start + len(packed), 2, 0)))
    else:
        folder.add({"t": 0}, expected)
    reader = open_one(folder)
    for first in range(5):
        for stop in range(first + 1, 6):
            found = reader.read_rows(0, first, stop)
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected[first:stop])
    for first, stop in ((-1, 2), (2, 2), (0, 6)):
        with pytest.raises(IndexError):
            reader.read_rows(0, first, stop)


def test_rows_that_are_there_are_read_of_a_cut_frame(folder: Folder) -> None:
    folder.add({"t": 0}, image(0), metadata={})
    start = reader_offset(folder)
    os.truncate(folder.path / STACK, start + 2 * 4 * 2)  # two rows of four uint16
    reader = open_one(folder)
    assert np.array_equal(reader.read_rows(0, 0, 2), image(0)[:2])
    with pytest.raises(CorruptDataset, match="beyond the end"):
        reader.read_rows(0, 1, 3)


def reader_offset(folder: Folder) -> int:
    """Where the pixels of the first frame begin."""
    return open_one(folder).stored_frame(0)[1].pixels


def test_unknown_codes_are_named(folder: Folder) -> None:
    folder.publish(entry({"t": 0}, (30, 4, 3, 1, 50000, 30, 2, 0)) + entry({"t": 1}, (30, 4, 3, 9, 0, 30, 2, 7)))
    reader = open_one(folder)
    with pytest.raises(UnsupportedFeature, match="pixel compression 50000"):
        pixels(reader, t=0)
    with pytest.raises(UnsupportedFeature, match="pixel type 9"):
        pixels(reader, t=1)
    with pytest.raises(UnsupportedFeature, match="metadata compression 7"):
        reader.read_metadata(1)


def test_big_endian_stack(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "mm", {"k": "v"}, order=">")
    folder.add({"t": 0}, image(0))
    reader = open_one(folder)
    assert np.array_equal(pixels(reader, t=0), image(0))
    assert pixels(reader, t=0).dtype == "<u2"
    assert (reader.summary_metadata, reader.complete) == ({"k": "v"}, True)


def test_rgb_and_uint8(folder: Folder) -> None:
    for t, shape in enumerate([(3, 5), (2, 4, 3)]):
        folder.add({"t": t}, image(t, shape, "|u1"))
    reader = open_one(folder)
    for t, shape in enumerate([(3, 5), (2, 4, 3)]):
        assert np.array_equal(pixels(reader, t=t), image(t, shape, "|u1"))


@pytest.mark.parametrize("metadata", [b"[1]", b"{", b"[" * 3000, b'{"a":' + b"9" * 5000 + b"}"])
def test_metadata_that_is_no_object(folder: Folder, metadata: bytes) -> None:
    folder.publish(entry({"t": 0}, folder.add_page(image(0), metadata)))
    with pytest.raises(CorruptDataset, match="metadata is"):
        open_one(folder).read_metadata(0)


def test_metadata_may_be_empty_or_end_in_nul_or_be_latin_1(folder: Folder) -> None:
    for t, text in enumerate([b"", b'{"a":1}\0', b'{"a":1} ', b'{"u":"\xb5m"}']):
        folder.publish(entry({"t": t}, folder.add_page(image(0), text)))
    reader = open_one(folder)
    assert [reader.read_metadata(row) for row in range(4)] == [{}, {"a": 1}, {"a": 1}, {"u": "µm"}]


def test_few_files_are_open_at_a_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_files, "MAX_OPEN", 2)
    for t in range(5):
        folder.start_stack(f"a_NDTiffStack_{t}.tif")
        folder.add({"t": t}, image(t))
    reader = open_one(folder)
    for t in (0, 1, 2, 0, 4, 3, 3, 1):
        assert np.array_equal(pixels(reader, t=t), image(t))
        assert len(reader._stacks._open) <= 2


def test_a_missing_stack_file_is_named(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    folder.start_stack("b.tif")
    folder.add({"t": 1}, image(1))
    (folder.path / STACK).unlink()
    reader = open_one(folder)
    with pytest.raises(CorruptDataset, match=f"{STACK}.*missing"):
        pixels(reader, t=0)
    assert np.array_equal(pixels(reader, t=1), image(1))
    assert reader.summary_metadata == {"k": 1}


def test_without_stack_files_there_is_no_summary(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    folder.start_stack("b.tif")
    folder.add({"t": 1}, image(1))
    for name in (STACK, "b.tif"):
        (folder.path / name).unlink()
    with pytest.raises(CorruptDataset, match="missing"):
        _ = open_one(folder).summary_metadata


def test_an_empty_dataset_opens_and_its_summary_comes_later(folder: Folder) -> None:
    (folder.path / STACK).unlink()
    (folder.path / "A.tif").touch()
    (folder.path / "B.tif").write_bytes(b"II*\0 some other tiff")
    reader = open_one(folder)
    assert (len(reader), list(reader.keys()), reader.summary_metadata, reader.complete) == (0, [], {}, False)
    folder.start_stack(STACK)
    assert reader.summary_metadata == {"k": 1}
    with pytest.raises(FrameNotFound, match="no frames yet"):
        reader.row({"t": 0})


def test_signs_of_an_unfinished_dataset(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    path = folder.path / STACK
    assert open_one(folder).complete
    path.write_bytes(path.read_bytes().replace(bytes(4), b"\xff\xff\xff\0", 1))
    with path.open("r+b") as file:
        file.seek(folder._pointer_at)
        file.write((path.stat().st_size).to_bytes(4, "little"))
    assert not open_one(folder).complete
    os.truncate(path, 2**32)
    assert not open_one(folder).complete


def test_the_chain_is_walked_where_directories_lie_elsewhere(folder: Folder) -> None:
    numbers = [folder.add_page(image(t), b"{}") for t in range(3)]
    for t in range(3):  # offsets inside the page, as if the directory stood at an unusual distance
        folder.publish(entry({"t": t}, (numbers[t][0] + 2, 4, 2, 1, 0, *numbers[t][5:])))
    reader = open_one(folder)
    assert reader.complete
    folder.add_page(image(4), b"{}")
    assert not reader.complete  # its entry will come


@pytest.mark.parametrize(
    ("state", "complete", "writing"),
    [
        *((state, False, True) for state in ("OPENING", "RUNNING", "PAUSED", "ORPHANED", "CLOSING")),
        *((state, True, False) for state in ("COMPLETE", "CANCELED", "ERRORED", "FAILED")),
        ("INTERRUPTED", False, False),
    ],
)
def test_the_state_file_decides(folder: Folder, state: str, complete: bool, writing: bool) -> None:
    folder.set_state("RUNNING")
    reader = open_one(folder)
    assert (reader.complete, reader.writing) == (False, True)
    folder.set_state(state)
    reader.refresh()
    assert (reader.complete, reader.writing) == (complete, writing)


def test_the_state_is_as_old_as_the_last_refresh(folder: Folder) -> None:
    folder.set_state("RUNNING")
    reader = open_one(folder)
    folder.add({"t": 0}, image(0))
    folder.set_state("COMPLETE")
    assert not reader.complete
    reader.refresh()
    assert reader.complete
    (folder.path / "acqstream.json").unlink()
    reader.refresh()
    assert reader.complete  # by the signs


def test_a_damaged_state_file_does_not_hide_frames(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    for text in ("{", '{"format": "acqstream", "state": "DANCING"}'):
        (folder.path / "acqstream.json").write_text(text)
        reader = open_one(folder)
        assert np.array_equal(pixels(reader, t=0), image(0))
        with pytest.raises(CorruptDataset, match="state"):
            _ = reader.complete
    (folder.path / "acqstream.json").write_text(json.dumps({"format": "other"}))
    assert open_one(folder).complete


def test_the_state_of_a_level_stands_in_the_container(tmp_path: Path) -> None:
    full = Folder(tmp_path / "Full resolution")
    full.add({"row": 0, "column": 0}, image(0))
    Folder(tmp_path / "Downsampled_x2").add({"row": 0, "column": 0}, image(1))
    Folder(tmp_path / "Downsampled_x8").add({"row": 0, "column": 0}, image(2))
    (tmp_path / "acqstream.json").write_text('{"format": "acqstream", "state": "RUNNING"}')
    assert [reader.path.name for reader in open_readers(tmp_path)] == ["Full resolution", "Downsampled_x2"]
    assert not open_readers(full.path)[0].complete


def test_other_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\0 no ndtiff here")
    (tmp_path / "b.tif").mkdir()
    assert not is_ndtiff(tmp_path)
    with pytest.raises(UnknownFormat, match=r"NDTiff\.index"):
        open_readers(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this platform")
def test_a_pipe_is_no_stack_file(folder: Folder) -> None:
    (folder.path / STACK).unlink()
    os.mkfifo(folder.path / STACK)
    folder.publish(entry({"t": 0}))
    with pytest.raises(DatasetError, match="regular file"):
        pixels(open_one(folder), t=0)


def test_a_shortened_index_is_refused(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    reader = open_one(folder)
    os.truncate(folder.path / "NDTiff.index", 10)
    with pytest.raises(DatasetError, match="became shorter"):
        reader.refresh()


def test_a_closed_reader_says_so(folder: Folder) -> None:
    folder.add({"t": 0}, image(0))
    reader = open_one(folder)
    reader.close()
    reader.close()
    for use in (lambda: pixels(reader, t=0), reader.refresh, lambda: reader.read_metadata(0), lambda: reader.complete):
        with pytest.raises(DatasetError, match="closed"):
            use()


@pytest.mark.parametrize(("name", "back", "what"), [("NDTiff.index", 8, "metadata"), (STACK, 0, "summary")])
def test_lengths_that_a_sparse_file_allows_take_no_memory(tmp_path: Path, name: str, back: int, what: str) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0))
    content = bytearray((folder.path / name).read_bytes())
    struct.pack_into("<I", content, len(content) - back if back else 24, 2**27)
    (folder.path / name).write_bytes(content)
    os.truncate(folder.path / STACK, 2**28)
    reader = open_one(folder)
    with pytest.raises(CorruptDataset, match=rf"{what} of {2**27} bytes; at most"):
        _ = reader.read_metadata(0) if back else reader.summary_metadata
