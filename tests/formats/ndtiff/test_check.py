"""The check of the format: what other writers wrote is in order, and every damage is told for what it is."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from acqstream.errors import UnsupportedFeature
from acqstream.formats import ndtiff
from acqstream.formats.check_report import MAX_PROBLEMS, CheckReport, FrameColumns
from acqstream.formats.ndtiff import check as ndtiff_check
from acqstream.formats.registry import all_formats
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, entry, image, overwrite
from tests.host_system import make_pipe_file
from tests.log.read_back import read_index

DAMAGED = {"torn_index", "torn_index_prefix", "short_data", "zero_tail", "lost_index", "empty_stack_file"}
OLD = {"v0_uint8", "v1_0_uint16", "v1_5_rgb", "v1_5_uint16"}
WHOLE = sorted(path.parent.name for path in GOLDEN.glob("*/data") if path.parent.name not in DAMAGED | OLD)


def check(path: Path, *, growing: bool = False) -> tuple[CheckReport, FrameColumns]:
    report = CheckReport()
    (columns,) = ndtiff.FORMAT.check(ndtiff.FORMAT.folder(path), report, growing)
    return report, columns


def texts(path: Path, *, growing: bool = False) -> list[str]:
    return [problem.text for problem in check(path, growing=growing)[0].problems]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Four frames: three uint16, one RGB."""
    made = Folder(tmp_path / "a")
    for number in range(3):
        made.add({"time": number}, image(number))
    made.add({"time": 3}, image(3, (3, 4, 3), "|u1"))
    return made


def test_every_format_can_be_checked() -> None:
    assert all(callable(one.check) and callable(one.folder) for one in all_formats())


@pytest.mark.parametrize("name", WHOLE)
def test_what_other_writers_wrote_is_in_order(name: str) -> None:
    report, columns = check(GOLDEN / name / "data")
    assert report.problems == []
    assert len(columns) > 0
    assert (columns.directory > 0).all()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [(2,), (3, 0), (3, 3)])
def test_both_byte_orders_and_all_versions_are_in_order(tmp_path: Path, order: str, version: tuple[int, ...]) -> None:
    made = Folder(tmp_path / "a", order=order, version=version)  # type: ignore[arg-type]
    for number, shape in enumerate([(3, 4), (5, 7), (3, 4, 3)]):
        made.add({"time": number}, image(number, shape, "|u1" if len(shape) == 3 else "<u2"))
    made.start_stack("a_NDTiffStack_1.tif")
    made.add({"time": 3}, image(3, (4, 4), "|u1"))
    assert texts(made.path) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torn_index", ["the last entry is cut: only 53 bytes", "a page that no index entry names"]),
        ("torn_index_prefix", ["the last entry is cut: only 3 bytes", "a page that no index entry names"]),
        ("short_data", ["metadata of 21 bytes end beyond the end", "pixels of 546 bytes end beyond the end"]),
        (
            "zero_tail",
            ["2048 bytes of zeros after the last entry", "continues at byte 3766", "4096 bytes of zeros after"],
        ),
        ("lost_index", ["NDTiff.index is missing"]),
        ("empty_stack_file", ["is empty: its writer died"]),
    ],
)
def test_damage_is_told_for_what_it_is(name: str, expected: list[str]) -> None:
    found = texts(GOLDEN / name / "data")
    for text in expected:
        assert any(text in one for one in found), found


def test_a_page_without_an_entry_is_one_problem() -> None:
    assert len(texts(GOLDEN / "torn_index" / "data")) == 2


def test_short_data_names_its_frame() -> None:
    report, _ = check(GOLDEN / "short_data" / "data")
    assert {problem.frame for problem in report.problems} == {4}


def test_an_unfinished_end_is_no_problem_while_growing() -> None:
    for name in ("zero_tail", "torn_index", "torn_index_prefix"):
        assert texts(GOLDEN / name / "data", growing=True) == []


@pytest.mark.parametrize("name", sorted(OLD))
def test_old_versions_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeature):
        check(GOLDEN / name / "data")


def test_all_levels_are_checked(tmp_path: Path) -> None:
    data = shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "data")
    assert check(data)[1].levels == 4
    stack = next((data / "Downsampled_x4").glob("*.tif"))
    overwrite(stack, stack.stat().st_size - 1, b"?")
    for path in (data, data / "Full resolution", stack):  # any of them means the whole dataset
        report, _ = check(path)
        assert [Path(problem.path).parent.name for problem in report.problems] == ["Downsampled_x4"]


def test_a_first_offset_that_is_4_too_small_is_noted(folder: Folder) -> None:
    """As one Java build of August 2022 wrote it."""
    stack = folder.path / STACK
    (first,) = struct.unpack_from("<I", stack.read_bytes(), 4)
    overwrite(stack, 4, struct.pack("<I", first - 4))
    report, columns = check(folder.path)
    assert report.problems == []
    assert report.notes[0] == f"{STACK}: the first directory's offset is 4 too small"
    assert columns.directory[0] == first


Damage = Callable[[Folder], None]
_AT = 28 + 2  # the first directory of `folder`


def _entry_with(axes: dict[str, int] | bytes, name: str = STACK, **numbers: int) -> bytes:
    fields = {"offset": 208, "width": 4, "height": 3, "type": 1, "pc": 0, "md": 232, "length": 20, "mc": 0} | numbers
    return entry(axes, tuple(fields.values()), name)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "axes": (lambda f: f.publish(_entry_with(b"[1]")), "axes must be one JSON object"),
    "no json": (lambda f: f.publish(_entry_with(b"{]")), "axes of an index entry are not JSON"),
    "outside": (lambda f: f.publish(_entry_with({"time": 9}, "../x.tif")), "is not a plain file name"),
    "missing": (lambda f: f.publish(_entry_with({"time": 9}, "b.tif")), "but it is missing"),
    "zero size": (lambda f: f.publish(_entry_with({"time": 9}, width=0)), "zeros where its bytes should be"),
    "negative": (lambda f: f.publish(_entry_with({"time": 9}, width=-5)), "impossible numbers"),
    "huge": (lambda f: f.publish(_entry_with({"time": 9}, width=2**31 - 1, height=2**31 - 1)), "impossible numbers"),
    "far": (lambda f: f.publish(_entry_with({"time": 9}, offset=2**32 - 1)), "end beyond the end of the file"),
    "far metadata": (lambda f: f.publish(_entry_with({"time": 9}, md=2**32 - 1)), "end beyond the end of the file"),
    "type": (lambda f: f.publish(_entry_with({"time": 9}, type=7)), "pixel type 7"),
    "length": (lambda f: f.publish(struct.pack("<I", 2**31)), "are not an index entry"),
    "twice": (lambda f: f.publish(_entry_with({"time": 9})), "share bytes"),
    "tail": (lambda f: _append(f, b"more"), "4 bytes after the last frame"),
    "zeros": (lambda f: _append(f, bytes(64)), "64 bytes of zeros after the last frame"),
    "loop": (lambda f: overwrite(f.path / STACK, _AT + 158, struct.pack("<I", _AT)), "continues at byte 30"),
    "short chain": (lambda f: overwrite(f.path / STACK, _AT + 158, bytes(4)), "no page in the stack's chain"),
    "summary length": (lambda f: overwrite(f.path / STACK, 24, struct.pack("<I", 2**31)), "ends beyond the file"),
    "version": (lambda f: overwrite(f.path / STACK, 12, struct.pack("<I", 4)), "version 4 cannot be read"),
}


def _append(folder: Folder, content: bytes) -> None:
    with (folder.path / STACK).open("ab") as file:
        file.write(content)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_made_here(folder: Folder, name: str) -> None:
    assert texts(folder.path) == []
    damage, expected = DAMAGES[name]
    damage(folder)
    found = texts(folder.path)
    assert any(expected in text for text in found), found


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [
        (0, 5, "width: 5 in the page, 4 in the index"),
        (1, 5, "height: 5 in the page, 3 in the index"),
        (2, 12, "1 samples of 12 bits in the page, pixel type 1 in the index"),
        (3, 8, "the index states another compression, the page has TIFF compression 8"),
        (4, 0, "photometric interpretation 0"),
        (5, 9, "a page that no index entry names"),
        (6, 3, "tag 258 has a number of values of 1"),
        (7, 4, "rows per strip are not the height, but 4"),
        (8, 25, "length of the pixels: 25 in the page, 24 in the index"),
        (9, 40, "X and Y resolution are not two equal numbers"),
        (11, 2, "resolution unit is not 3 (cm), but 2"),
        (12, 9, "metadata offset: 9 in the page, 232 in the index"),
    ],
)
def test_every_tag_counts(folder: Folder, tag: int, value: int, expected: str) -> None:
    overwrite(folder.path / STACK, _AT + 2 + 12 * tag + 8, struct.pack("<I", value))
    report, _ = check(folder.path)
    found = [(problem.text, problem.offset) for problem in report.problems]
    assert (expected, _AT) in found, found


def test_the_two_resolutions_are_two(folder: Folder) -> None:
    """One bit can make an offset that of the other."""
    overwrite(folder.path / STACK, _AT + 2 + 12 * 9 + 8, struct.pack("<I", _AT + 162 + 8))
    assert texts(folder.path) == ["X and Y resolution are not two equal numbers"]


def test_metadata_must_name_the_axes_of_the_entry(folder: Folder) -> None:
    for metadata in ({"Axes": {"time": 5}}, {"Axes": 4}, [1]):
        folder.add({"time": 4}, image(4), metadata=metadata)
    found = texts(folder.path)
    assert [text[:18] for text in found] == ["metadata says axes", "metadata says axes", "metadata is a list"]
    assert {problem.frame for problem in check(folder.path)[0].problems} == {4, 5, 6}


def test_frames_without_axes_and_repeated_axes_are_notes(folder: Folder) -> None:
    folder.add({"time": 0}, image(4), metadata={"n": 1})
    report, columns = check(folder.path)
    assert report.problems == []
    assert len(report.notes) == 2
    assert columns.has_axes.tolist() == [True] * 4 + [False]


def test_a_bad_entry_does_not_hide_the_others(folder: Folder) -> None:
    folder.publish(_entry_with(b"[1]"))
    folder.publish(_entry_with({"time": 9}, width=-1))
    folder.add({"time": 4}, image(4))
    report, columns = check(folder.path)
    assert len(columns) == 5
    assert report.problem_count == 2


def test_stack_files_must_have_the_same_summary(tmp_path: Path) -> None:
    made = Folder(tmp_path / "a", summary={"a": 1})
    made.add({"time": 0}, image(0))
    made.summary = {"a": 2}
    made.start_stack("a_NDTiffStack_1.tif")
    made.add({"time": 1}, image(1))
    assert texts(made.path) == ["the summary metadata is not that of the other stack files"]


def test_many_stack_files_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are closed and opened again where there are too many."""
    monkeypatch.setattr(ndtiff_check, "_MAX_OPEN", 1)
    made = Folder(tmp_path / "a")
    for number in range(6):
        made.summary = {"a": number // 5}
        made.start_stack(f"a_NDTiffStack_{number}.tif")
        made.add({"time": number}, image(number))
    (made.path / STACK).unlink()
    assert texts(made.path) == ["the summary metadata is not that of the other stack files"]


def test_compressed_frames_are_checked_as_far_as_the_index_tells(tmp_path: Path) -> None:
    made = Folder(tmp_path / "a")
    data = zlib.compress(image(0, (40, 50)).tobytes())
    numbers = made.add_page(np.frombuffer(data, np.uint8).reshape(1, -1), b"{}")
    stack = made.path / STACK
    for tag, value in ((0, 50), (1, 40), (2, 16), (3, 8), (7, 40)):
        overwrite(stack, _AT + 2 + 12 * tag + 8, struct.pack("<I", value))
    made.publish(entry({"time": 0}, (numbers[0], 50, 40, 1, 8, *numbers[5:])))
    report, columns = check(made.path)
    assert report.problems == []
    assert columns.length.tolist() == [len(data)]


def test_a_sparse_file_costs_no_memory(folder: Folder) -> None:
    """Counts of gigabytes in files that have them, as holes."""
    stack, index = folder.path / STACK, folder.path / "NDTiff.index"
    folder.publish(_entry_with({"time": 9}, md=10_000, length=2**30))
    os.truncate(stack, 2**32 + 5)
    os.truncate(index, 2**33)
    found = texts(folder.path)
    assert any("metadata of 1073741824 bytes" in text for text in found), found
    assert any("bytes of zeros after the last entry" in text for text in found), found
    overwrite(stack, 24, struct.pack("<I", 2**31))
    assert any("a summary of 2147483648 bytes" in text for text in texts(folder.path))


def test_problems_are_bounded_and_all_counted(tmp_path: Path) -> None:
    made = Folder(tmp_path / "a")
    count = MAX_PROBLEMS + 500
    made.publish(b"".join(_entry_with({"time": number}, md=2**31) for number in range(count)))
    report, columns = check(made.path)
    assert len(columns) == count
    assert len(report.problems) == MAX_PROBLEMS
    assert report.problem_count >= count


def test_pipes_and_folders_in_the_place_of_files(folder: Folder) -> None:
    make_pipe_file(folder.path / "pipe.tif")
    (folder.path / "folder.tif").mkdir()
    assert texts(folder.path) == []  # no files: readers do not look at them
    folder.publish(_entry_with({"time": 9}, "pipe.tif") + _entry_with({"time": 10}, "folder.tif"))
    assert texts(folder.path).count("is not a regular file") == 2


def test_a_frame_that_shares_bytes_with_the_part_before_is_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "one")
    folder.add({"time": 0}, image(0))
    (row,) = read_index(folder.path).numbers
    inside = int(row["metadata_offset"]) + 1
    folder.publish(_entry_with({"time": 9}, offset=inside, md=inside + 24, length=2))
    report = CheckReport()
    parts = list(ndtiff.FORMAT.check(folder.path, report, False, 1))
    assert [len(part) for part in parts] == [1, 1]
    assert any("share bytes" in problem.text for problem in report.problems)
