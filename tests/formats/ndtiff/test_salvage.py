"""Frames from TIFF pages alone: every whole one, no other, and a word for each that is lost."""

from __future__ import annotations

import json
import os
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import UnsupportedFeature
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.formats.ndtiff.page_walk import IntactPage, StackFacts, walk_stack
from acqstream.formats.ndtiff.pages import axes_in, guess_axes, hints_in, on_level
from acqstream.model.axes import AxisValue
from acqstream.storage.files.read_file import ReadFile
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, image, overwrite
from tests.host_system import allocated_bytes

INDEXES = sorted(GOLDEN.rglob("NDTiff.index"))
GIB = 2**30


def salvage(path: Path) -> StackFacts:
    file = ReadFile(path)
    try:
        return walk_stack(file)
    finally:
        file.close()


def stack(path: Path, frames: int = 4, shape: tuple[int, ...] = (7, 9)) -> Path:
    """As the reference writers lay it: frame t has {"time": t}."""
    folder = Folder(path, {"k": 1})
    for t in range(frames):
        folder.add({"time": t}, image(t, shape))
    return path / STACK


def times(found: StackFacts) -> list[Any]:
    return [page.axes and page.axes["time"] for page in found.pages]


@pytest.mark.parametrize("index", INDEXES, ids=lambda path: str(path.parent.relative_to(GOLDEN)))
def test_golden_pages_say_what_the_index_says(index: Path) -> None:
    """All but the axes, which not all writers put there."""
    batch = parse_entries(index.read_bytes())
    for name in sorted(set(batch.names)):
        found = salvage(index.parent / name.decode())
        listed = [batch.numbers[i].tolist() for i in range(len(batch.names)) if batch.names[i] == name]
        told = [
            (p.page.pixels, p.page.width, p.page.height, p.pixel_type, 0, p.page.metadata, p.metadata_bytes, 0)
            for p in found.pages
        ]
        unfinished = index.parents[1].name in ("torn_index", "torn_index_prefix", "short_data")
        assert told[: len(listed)] == listed[: len(told)]
        assert unfinished or len(told) == len(listed)
        assert all(page.is_regular and not page.doubt for page in found.pages)
        assert len(found.losses) == (index.parents[1].name == "short_data")


def test_a_first_offset_that_is_4_too_small_is_followed(tmp_path: Path) -> None:
    path = stack(tmp_path)
    (first,) = struct.unpack_from("<I", path.read_bytes(), 4)
    overwrite(path, 4, struct.pack("<I", first - 4))
    found = salvage(path)
    assert (times(found), found.losses, found.is_finished) == ([0, 1, 2, 3], [], True)


def test_versions_0_and_1_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="versions 0 and 1"):
        salvage(next((GOLDEN / "v1_0_uint16").rglob("*.tif")))


@pytest.mark.parametrize("zeros", [False, True])
def test_a_stack_cut_at_every_byte(tmp_path: Path, zeros: bool) -> None:
    """With zeros behind the cut, as a killed writer leaves it, and without."""
    path = stack(tmp_path, 3, (3, 4))
    content = path.read_bytes()
    whole = salvage(path)
    assert (times(whole), whole.losses, whole.is_finished) == ([0, 1, 2], [], True)
    ends = [page.end for page in whole.pages]
    for cut in range(len(content)):
        path.write_bytes(content[:cut].ljust(len(content) + 9000 if zeros else 0, b"\0"))
        found = salvage(path)
        count = sum(end <= cut for end in ends)
        assert times(found) == list(range(count)), cut
        start = ends[count - 1] + ends[count - 1] % 2 if count else whole.pages[0].page.directory
        assert len(found.losses) == (cut > start) or not count
        assert not found.is_finished or not zeros


@pytest.mark.parametrize("target", [0, 2, 500, 2**32 - 1])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_wrong_pointer_loses_nothing(tmp_path: Path, target: int, broken: int) -> None:
    path = stack(tmp_path)
    page = salvage(path).pages[broken].page
    overwrite(path, page.next_at, struct.pack("<I", target))
    found = salvage(path)
    assert (times(found), found.losses) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("broken", [0, 1, 3])
@pytest.mark.parametrize("at", [0, 2, 60, 158])
def test_a_torn_directory_loses_its_own_frame_only(tmp_path: Path, broken: int, at: int) -> None:
    path = stack(tmp_path)
    page = salvage(path).pages[broken].page
    overwrite(path, page.directory + at, b"\xff" * 40 if at < 158 else b"\xff" * 4)
    found = salvage(path)
    lost = [] if at == 158 and broken == 3 else [broken]
    if at == 158:
        assert (times(found), found.losses) == ([0, 1, 2, 3], [])
    else:
        assert times(found) == [t for t in range(4) if t not in lost]
        assert len(found.losses) == 1
        assert page.directory - 400 <= found.losses[0].offset <= page.directory


def test_a_lost_header_is_said_and_its_pages_are_found(tmp_path: Path) -> None:
    path = stack(tmp_path)
    overwrite(path, 0, b"\0" * 28)
    found = salvage(path)
    assert times(found) == [0, 1, 2, 3]
    assert "is not a TIFF file" in found.header_problem


def test_empty_and_reserved_files(tmp_path: Path) -> None:
    path = tmp_path / STACK
    path.touch()
    assert salvage(path).header_problem == "is empty"
    os.truncate(path, 4 * GIB)
    found = salvage(path)
    assert (found.header_problem, found.pages, found.losses, found.data_end) == ("is empty", [], [], 0)


@pytest.mark.parametrize("torn", [0, 150, 178 + 40, 178 + 126 + 3])
def test_a_husk_of_four_gigabytes(tmp_path: Path, torn: int) -> None:
    """What the Java writer leaves when it is killed while it writes the fourth frame: `torn` bytes of it exist."""
    path = stack(tmp_path)
    last = salvage(path).pages[3].page
    os.truncate(path, last.directory + torn)
    os.truncate(path, 4 * GIB)
    found = salvage(path)
    assert found.size == 4 * GIB
    assert times(found) == [0, 1, 2]
    assert len(found.losses) == (torn > 0)
    assert not found.is_finished


def test_a_black_frame_is_a_frame(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for t in range(3):
        folder.add({"time": t}, np.zeros((50, 60), np.uint16))
    found = salvage(tmp_path / STACK)
    assert times(found) == [0, 1, 2]
    assert [page.doubt for page in found.pages] == ["", "", ""]


@pytest.mark.parametrize("depth", ["\u00b2", "1" * 5000, "\u0661\u0662"])
def test_a_bit_depth_that_is_none_costs_nothing(tmp_path: Path, depth: str) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0), metadata={"Axes": {"time": 0}, "BitDepth": depth})
    assert [page.pixel_type for page in salvage(folder.path / STACK).pages] == [1]


def test_a_frame_in_a_hole_is_doubted(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for t in range(3):
        folder.add({"time": t}, image(t, (300, 300)))
    path = tmp_path / STACK
    page = salvage(path).pages[1].page
    content = path.read_bytes()
    start, end = page.pixels // 4096 * 4096 + 8192, page.metadata // 4096 * 4096
    path.unlink()
    path.touch()
    overwrite(path, 0, content[:start])
    overwrite(path, end, content[end:])
    found = salvage(path)
    if sys.platform == "win32" or allocated_bytes(path) >= len(content):  # only files that are marked have holes there
        pytest.skip("no sparse files here")
    assert times(found) == [0, 1, 2]
    assert ["hole" in page.doubt for page in found.pages] == [False, True, False]


def test_metadata_that_are_no_json_leave_a_doubt(tmp_path: Path) -> None:
    path = stack(tmp_path)
    overwrite(path, salvage(path).pages[1].page.metadata, b"#")
    found = salvage(path)
    assert times(found) == [0, None, 2, 3]
    assert [bool(page.doubt) for page in found.pages] == [False, True, False, False]


def test_metadata_of_hundreds_of_megabytes_are_not_read(tmp_path: Path) -> None:
    """A damaged count in a sparse file."""
    path = stack(tmp_path)
    page = salvage(path).pages[3].page
    overwrite(path, page.directory + 2 + 12 * 12 + 4, struct.pack("<I", 3 * 10**8))
    os.truncate(path, page.metadata + 4 * 10**8)
    tracemalloc.start()
    try:
        found = salvage(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert times(found) == [0, 1, 2]
    assert [loss.reason for loss in found.losses] == [f"metadata of {3 * 10**8} bytes; at most {64 * 2**20} are read"]
    assert peak_bytes < 100 * 2**20


@pytest.mark.parametrize("bit", range(1, 12))
def test_a_frame_placed_unlike_the_others_is_not_regular(tmp_path: Path, bit: int) -> None:
    path = stack(tmp_path)
    page = salvage(path).pages[1].page
    overwrite(path, page.directory + 2 + 5 * 12 + 8, struct.pack("<I", page.pixels ^ (1 << bit)))
    found = salvage(path)
    assert [p.page.directory for p in found.pages if not p.is_regular] in ([], [page.directory])
    assert [p.axes for p in found.pages if p.is_regular] == [{"time": t} for t in (0, 2, 3)]


def test_axes_are_taken_where_writers_put_them() -> None:
    assert axes_in({"Axes": {"time": 1, "channel": "DAPI"}}) == {"time": 1, "channel": "DAPI"}
    assert axes_in({"ImageStorageAxesPositions": {"z": -3}}) == {"z": -3}
    bad_axes: list[Any] = [{}, {"t": 1.5}, {"t": True}, {"t": 2**31}, {"t": None}, [], "time", 3]
    for bad in bad_axes:
        assert axes_in({"Axes": bad}) is None
    assert on_level({"row": -3, "column": 5, "z": 5, "channel": "A"}, 1) == {
        "row": -2,
        "column": 2,
        "z": 5,
        "channel": "A",
    }


def test_axes_are_guessed_from_micro_managers_keys() -> None:
    def metadata(time: int, channel: int) -> dict[str, Any]:
        return {
            "FrameIndex": time,
            "ChannelIndex": channel,
            "SliceIndex": 0,
            "Channel": "AB"[channel],
            "PositionIndex": 0,
        }

    hints = [hints_in(metadata(time, channel)) for time in range(2) for channel in range(2)]
    numbers = [{"time": time, "channel": channel} for time in range(2) for channel in range(2)]
    assert guess_axes(hints, [], []) == numbers
    assert guess_axes(hints, [], ["z", "time", "channel"]) == [{"z": 0, **axes} for axes in numbers]
    known: dict[str, AxisValue] = {"channel": "C", "time": 9}
    assert guess_axes(hints[:2], [known], []) == [{"channel": "A", "time": 0}, {"channel": "B", "time": 0}]
    assert guess_axes(hints[:2], [{"channel": "B", "time": 0}], []) is None, "taken already"
    assert guess_axes(hints[:2], [], ["time"]) is None, "two frames with the same axes"
    assert guess_axes([{}], [], []) is None


def test_json_is_compared_as_json(tmp_path: Path) -> None:
    """A page in the middle of a chain may have any metadata: it was written whole."""
    folder = Folder(tmp_path)
    for text in ({"a": "µ"}, {}, {"Axes": {"time": 5}, "BitDepth": 12}):
        folder.add({"time": 0}, image(1), metadata=text)
    pages: list[IntactPage] = salvage(tmp_path / STACK).pages
    assert [page.axes for page in pages] == [None, None, {"time": 5}]
    assert [page.pixel_type for page in pages] == [1, 1, 4]
    assert json.loads((tmp_path / STACK).read_bytes()[pages[0].page.metadata :][: pages[0].metadata_bytes]) == {
        "a": "µ"
    }
