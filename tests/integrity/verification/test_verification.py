"""Verification: a dataset as it was written is proved, on any copy; every byte that matters is covered."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.errors import StorageError, UnknownFormat
from acqstream.formats.ndtiff.pages import StackPage
from acqstream.integrity import pixel_check
from acqstream.integrity.recover import recover
from acqstream.integrity.verify import Verification, verify
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.storage.files.read_file import ReadFile
from tests.host_system import make_link, make_pipe_file
from tests.log.make_frames import (
    Frame,
    frame_of,
    frames_of,
    memory_of,
    mixed_frames,
    spec_of,
    start_log,
    write_log,
)
from tests.log.read_back import read_index, read_pages, stack_paths

GOLDEN = Path(__file__).parents[2] / "golden" / "ndtiff"
LIMIT_BYTES = 7_600_000
Edit = Callable[[dict[str, Any]], Any]
INDEX, JOURNAL, STATE, RECEIPT = "NDTiff.index", journal.JOURNAL_NAME, "acqstream.json", "receipt.json"
SMALL = frames_of(5, (6, 7))

DATASETS: dict[str, list[Frame]] = {
    "small": frames_of(300),
    "mixed": mixed_frames(9),
    "large": frames_of(11, (320, 512)),
    "uint8": frames_of(3, (701, 403), "|u1"),
    "rgb": frames_of(3, (20, 31, 3), "|u1"),
    "large rgb": frames_of(2, (400, 300, 3), "|u1"),
    **{f"{bits} bits": [frame_of(number, bits=bits) for number in range(2)] for bits in (10, 11, 12, 14)},
    "metadata": [frame_of(n, (3, 5), "|u1", metadata={"text": "µ" * n, "n": [n]}) for n in range(20)],
    "axes": [frame_of(n, axes={"channel": "DAPI" if n % 2 else "µ", "z": -n}) for n in range(6)],
    "empty": [],
}


def texts(result: Verification) -> list[str]:
    return [problem.text for problem in result.problems]


def check_proved(result: Verification, frames: int) -> None:
    assert result.problems == []
    assert result.ok
    assert (result.frames, result.hashed_frames) == (frames, frames)
    proved = ["files", "journal", "metadata", "pixels", "receipt", "root"]
    assert [line.partition(":")[0] for line in result.proved] == proved


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five small frames, finished."""
    with start_log(tmp_path / "cells") as log:
        for frame in SMALL:
            log.append(frame.header, frame.image)
        log.begin_close(sent=5)
    return tmp_path / "cells"


# What is in order.


@pytest.mark.parametrize("name", DATASETS)
def test_what_the_log_writes_is_proved(tmp_path: Path, name: str) -> None:
    frames = DATASETS[name]
    write_log(tmp_path / "cells", frames, limit=LIMIT_BYTES)
    result = verify(tmp_path / "cells")
    check_proved(result, len(frames))
    assert result.hashed_bytes == result.payload_bytes == sum(frame.image.nbytes for frame in frames)
    assert result.notes == []
    assert name != "large" or len(stack_paths(tmp_path / "cells")) > 1


def test_skipped_numbers_are_no_loss(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        log.skip(0, 2, "dark")
        log.append(frame_of(2).header, frame_of(2).image)
        log.skip(3, 1, "timeout")
        log.append(frame_of(4, checksum=False).header, frame_of(4).image)
        log.begin_close(sent=5)
    result = verify(tmp_path / "cells")
    check_proved(result, 2)
    assert (result.skipped, result.missing_count, result.own_checksums) == (3, 0, 1)


def test_a_copy_a_level_and_a_file_are_the_same_dataset(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "other name")
    for path in (copy, copy / INDEX, stack_paths(copy)[0]):
        result = verify(path)
        check_proved(result, 5)
        assert ["moved" in note for note in result.notes] == [True]


def test_a_dataset_gone_on_with_and_a_recovered_one_are_proved(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        for count, frame in enumerate(SMALL[:2], 1):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(count)  # each in a group of its own
        shutil.copytree(tmp_path / "cells", tmp_path / "crashed")
        log.begin_close("interrupted", "stopped")
    interrupted = verify(tmp_path / "cells")
    assert (interrupted.ok, interrupted.state, interrupted.hashed_frames) == (True, "INTERRUPTED", 2)
    assert any("number of frames sent" in line for line in interrupted.not_proved)

    crashed = verify(tmp_path / "crashed")
    assert texts(crashed) == [
        "no process writes it, but it was never closed: start the daemon on it, or run `acqstream repair`"
    ]
    assert crashed.hashed_frames == 2
    torn = shutil.copytree(tmp_path / "crashed", tmp_path / "torn")  # the last frame was not published yet
    os.truncate(torn / INDEX, read_index(torn).offsets[1])
    os.truncate(stack_paths(torn)[0], read_pages(stack_paths(torn)[0])[1].pixels)
    assert (texts(verify(torn)), verify(torn).hashed_frames) == (texts(crashed), 1)
    assert recover(tmp_path / "crashed") is not None
    assert verify(tmp_path / "crashed").ok

    state = read_state(str(tmp_path / "cells"))
    with Log(tmp_path / "cells", spec_of(), memory=memory_of(), resume=state) as log:
        log.wait_until_open()
        for frame in SMALL[2:]:
            log.append(frame.header, frame.image)
    check_proved(verify(tmp_path / "cells"), 5)


def test_while_it_is_written_what_is_published_is_proved(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells", limit=LIMIT_BYTES) as log:
        for count, frame in enumerate(DATASETS["large"], 1):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(count)
            result = verify(tmp_path / "cells")
            assert result.problems == []
            assert result.ok
            assert result.writing
            assert result.hashed_frames == result.frames == count
    check_proved(verify(tmp_path / "cells"), 11)


@pytest.mark.parametrize("name", ["py_uint16", "java_pyramid_u16", "real_v2_flat", "duplicate_axes"])
def test_datasets_of_other_writers_are_proved_as_far_as_they_go(name: str) -> None:
    result = verify(GOLDEN / name / "data")
    assert result.ok
    assert [line.partition(":")[0] for line in result.proved] == ["files"]
    assert any("there is no journal" in line for line in result.not_proved)
    assert result.hashed_frames == 0


def test_frames_larger_than_a_piece_are_hashed_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_check, "READ_BYTES", 64 * 1024)
    write_log(tmp_path / "cells", mixed_frames(9))
    check_proved(verify(tmp_path / "cells"), 9)
    last = stack_paths(tmp_path / "cells")[-1]
    flip(last, read_pages(last)[3].pixels + 320 * 512 * 2 - 1, 0)
    result = verify(tmp_path / "cells")
    assert [problem.frame for problem in result.problems] == [3]


def test_progress_is_told_in_bytes(folder: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    verify(folder, lambda phase, done, total: told.setdefault(phase, []).append((done, total)))
    assert told["pixels"][-1] == (5 * 84, 5 * 84)
    assert told["journal"][-1] == (5 * 64, 5 * 64)


# What is missing.


def test_frames_that_never_came_make_it_incomplete(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    for frame in SMALL:
        log.append(frame.header, frame.image)
    log.close(sent=8)
    result = verify(tmp_path / "cells")
    assert result.problems == []
    assert not result.ok
    assert (result.missing_count, [(gap.first, gap.count) for gap in result.missing]) == (3, [(5, 3)])


@pytest.mark.parametrize("name", [JOURNAL, STATE, RECEIPT])
def test_without_one_of_our_files_less_is_proved(folder: Path, name: str) -> None:
    (folder / name).unlink()
    result = verify(folder)
    assert texts(result) == ["is missing"]
    assert result.problems[0].path == str(folder / name)
    assert result.hashed_frames == (0 if name == JOURNAL else 5)
    if name != STATE:
        assert any("there is no journal" in line or "no readable receipt" in line for line in result.not_proved)


def test_without_all_of_our_files_it_is_a_dataset_of_its_own(folder: Path) -> None:
    for name in (JOURNAL, STATE, RECEIPT):
        (folder / name).unlink()
    result = verify(folder)
    assert result.ok
    assert any("there is no journal" in line for line in result.not_proved)


def test_without_the_index_the_pixels_are_proved_still(folder: Path) -> None:
    (folder / INDEX).unlink()
    result = verify(folder)
    assert not result.ok
    assert result.hashed_frames == 5


# Every byte.


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))


COVERED, FREE, TEXT = "covered", "free", "text"


def page_bytes(page: StackPage, content: bytes) -> Iterator[tuple[int, int, str]]:
    """Parts of one page of ours, as docs/verify.md tells: start, end, and whether a change must be found."""
    yield page.directory, page.next_at + 4, COVERED
    for tag in range(13):
        field = page.directory + 2 + 12 * tag
        if content[field + 2] == 3 and content[field + 4] == 1:
            yield field + 10, field + 12, FREE  # of a 32-bit field with a 16-bit value
    behind = page.next_at + 4
    yield behind, behind + 16 + (6 if page.samples == 3 else 0), COVERED  # RGB bits, resolutions
    yield page.pixels, page.pixels + page.pixel_bytes, COVERED
    yield page.metadata, page.metadata + page.metadata_bytes, COVERED


def kinds_of(path: Path) -> list[str]:
    """For every byte of a file: whether a change of it must be found."""
    content = path.read_bytes()
    if path.name == INDEX:
        return [COVERED] * len(content)
    kinds = [FREE] * len(content)
    parts: list[tuple[int, int, str]] = []
    if path.name == JOURNAL:
        parts = [(0, 88, COVERED), (journal.HEADER_BYTES, len(content), COVERED)]
    else:
        summary_end = 28 + int.from_bytes(content[24:28], "little")
        parts = [(0, 16, COVERED), (20, 28, COVERED), (28, summary_end, TEXT)]
        for page in read_pages(path):
            parts += page_bytes(page, content)
    for start, end, kind in parts:
        kinds[start:end] = [kind] * (end - start)
    return kinds


def write_flippable(folder: Path) -> Path:
    """A grey frame, a skipped number, an RGB frame; no root hash, so that each record must prove itself."""
    with start_log(folder) as log:
        for frame in (frame_of(0, (3, 5), metadata={"k": 7}), frame_of(2, (4, 2, 3), "|u1")):
            if frame.header.number == 2:
                log.skip(1, 1, "dark")
            log.append(frame.header, frame.image)
        log.begin_close(sent=3)
    edit_receipt(folder, lambda receipt: receipt.update(root_sha256=""))
    return folder


def edit_receipt(folder: Path, edit: Edit) -> None:
    receipt = json.loads((folder / RECEIPT).read_text())
    edit(receipt)
    (folder / RECEIPT).write_text(json.dumps(receipt))


def flips(folder: Path) -> list[tuple[Path, int, int, str]]:
    """One bit of every covered byte; of free ones those inside directories and a few of each gap."""
    chosen = []
    for path in (*stack_paths(folder), folder / INDEX, folder / JOURNAL):
        kinds = kinds_of(path)
        for at, kind in enumerate(kinds):
            wide_gap = kind == FREE and set(kinds[max(0, at - 8) : at + 8]) == {FREE}
            if kind != TEXT and not (wide_gap and at % 211):
                chosen.append((path, at, at * 5 % 8, kind))
    return chosen


@pytest.mark.promise("verify")
@pytest.mark.slow
def test_a_flipped_bit_is_found_wherever_it_matters_and_only_there(tmp_path: Path) -> None:
    folder = write_flippable(tmp_path / "cells")
    wrong = []
    for path, at, bit, kind in flips(folder):
        flip(path, at, bit)
        if verify(folder).ok is not (kind == FREE):
            wrong.append((path.name, at, bit, kind))
        flip(path, at, bit)
    assert wrong == []
    assert verify(folder).ok


PROVABLE = ("dataset_id", "status", "sent", "stored", "skipped", "payload_bytes", "without_checksum")


def provable(content: bytes) -> object:
    """What of a receipt the rest of the dataset can prove; the bytes themselves where they are no receipt."""
    try:
        values = json.loads(content)
        missing = [(gap["first"], gap["count"]) for gap in values["missing"]]
        root = values.get("root_sha256", "")  # an older receipt has none
        return [*(values[name] for name in PROVABLE), root, missing]
    except (ValueError, KeyError, TypeError):
        return content


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=200)
def test_random_damage_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A bit, a cut, or bytes more at the end, in any of the files."""
    base = tmp_path_factory.getbasetemp() / "damaged" / "cells"
    if not base.exists():
        base.parent.mkdir()
        write_flippable(base)
    path = data.draw(st.sampled_from([*stack_paths(base), base / INDEX, base / JOURNAL, base / RECEIPT]))
    content = path.read_bytes()
    kinds = [] if path.name == RECEIPT else kinds_of(path)
    way = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    at = data.draw(st.integers(0, len(content) - 1))
    must_be_found = True
    try:
        if way == "cut":
            os.truncate(path, at)
        elif way == "grow":
            path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=80)))
        else:
            flip(path, at, data.draw(st.integers(0, 7)))
        if path.name == RECEIPT:
            must_be_found = provable(path.read_bytes()) != provable(content)
        elif way == "flip":
            must_be_found = kinds[at] == COVERED
        assert not (must_be_found and verify(base).ok)
    finally:
        path.write_bytes(content)


def test_every_cut_of_the_index_is_found(folder: Path) -> None:
    content = (folder / INDEX).read_bytes()
    for length in {*range(0, len(content), 13), *read_index(folder).offsets}:
        (folder / INDEX).write_bytes(content[:length])
        assert not verify(folder).ok, length


# What is whole, but not in its place.


def test_two_frames_swapped_are_two_problems(folder: Path) -> None:
    stack = stack_paths(folder)[0]
    first, second = (read_pages(stack)[number].pixels for number in (1, 3))
    content = bytearray(stack.read_bytes())
    content[first : first + 84], content[second : second + 84] = (
        content[second : second + 84],
        content[first : first + 84],
    )
    stack.write_bytes(content)
    result = verify(folder)
    assert [(problem.frame, problem.offset) for problem in result.problems] == [(1, first), (3, second)]
    assert all("pixels hash to" in text for text in texts(result))
    assert result.hashed_frames == 3


def test_entries_in_another_order_are_found(folder: Path) -> None:
    content, starts = (folder / INDEX).read_bytes(), read_index(folder).offsets
    parts = [content[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    parts[1], parts[2] = parts[2], parts[1]
    (folder / INDEX).write_bytes(b"".join(parts))
    assert {problem.frame for problem in verify(folder).problems} == {1, 2}


@pytest.mark.parametrize("name", ["cells_NDTiffStack.tif", INDEX, JOURNAL, RECEIPT, STATE])
def test_a_file_of_another_dataset_is_found(folder: Path, tmp_path: Path, name: str) -> None:
    spec = dataclasses.replace(spec_of(), dataset_id="f" * 32)
    with Log(tmp_path / "b", spec, memory=memory_of()) as log:
        for number in range(5):
            frame = frame_of(number + 100, (6, 7))  # as large, but other pixels and other axes
            log.append(frame.header._replace(number=number), frame.image)
        log.begin_close(sent=5)
    shutil.copy(tmp_path / "b" / name, folder / name)
    result = verify(folder)
    assert result.problem_count > 0


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("number", "the frame number is not the record's position: record 2"),
        ("flags", "neither frame nor skip nor hole: record 2"),
        ("stack", "stack number 3 in the journal, 0 in the dataset"),
        ("offset", "pixel offset {new} in the journal, {old} in the dataset"),
        ("length", "pixel length 85 in the journal, 84 in the dataset"),
        ("checksum", "pixels hash to"),
        ("directory", "page directory {new} in the journal, {old} in the dataset"),
        ("pixel_type", "pixel type 2 in the journal, 1 in the dataset"),
    ],
)
def test_a_whole_record_that_says_something_else_is_found(folder: Path, field: str, expected: str) -> None:
    """Journal and receipt agree: somebody made them so."""
    content = bytearray((folder / JOURNAL).read_bytes())
    at = journal.HEADER_BYTES + 2 * journal.RECORD_BYTES
    record = np.frombuffer(content, journal.RECORD_DTYPE, count=1, offset=at).copy()
    old = int(record[field][0])
    record[field] += {"flags": 7, "stack": 3}.get(field, 1)
    fields = bytes(record.tobytes()[:60])
    content[at : at + 64] = fields + struct.pack("<I", zlib.crc32(fields))
    (folder / JOURNAL).write_bytes(content)
    root = hashlib.sha256(content[journal.HEADER_BYTES :]).hexdigest()
    edit_receipt(folder, lambda receipt: receipt.update(root_sha256=root))
    found = [(problem.text, problem.frame) for problem in verify(folder).problems]
    told = expected.format(old=old, new=int(record[field][0]))
    assert any(told in text and frame in (None, 2) for text, frame in found), found


def test_a_missing_entry_names_its_frame(folder: Path) -> None:
    starts = read_index(folder).offsets
    content = (folder / INDEX).read_bytes()
    (folder / INDEX).write_bytes(content[: starts[2]] + content[starts[3] :])
    result = verify(folder)
    assert "5 frames in the journal, 4 in the index" in texts(result)
    assert [problem.frame for problem in result.problems if "no entry for this frame" in problem.text] == [2]


EDITS: dict[str, tuple[Edit, str]] = {
    "stored": (lambda r: r.update(stored=6), "stored is 6, by the journal 5"),
    "skipped": (lambda r: r.update(skipped=1), "skipped is 1"),
    "bytes": (lambda r: r.update(payload_bytes=1), "payload_bytes is 1"),
    "checksums": (lambda r: r.update(without_checksum=1), "without_checksum is 1"),
    "status": (lambda r: r.update(status="canceled"), "status is 'canceled', but the state is COMPLETE"),
    "unknown status": (lambda r: r.update(status="fine"), "unknown status 'fine'"),
    "dataset": (lambda r: r.update(dataset_id="0"), "is of dataset '0'"),
    "root": (lambda r: r.update(root_sha256="0" * 64), "root hash 0000"),
    "sent more": (lambda r: r.update(sent=6), "the producer sent 6, stored and missing are 5"),
    "sent less": (lambda r: r.update(sent=4), "the producer sent 4, stored and missing are 5"),
    "missing": (lambda r: r.update(missing=[_gap(1, 1)]), "1 frame is listed as missing that exist"),
    "twice": (lambda r: r.update(missing=[_gap(5, 1), _gap(5, 1)]), "is not recorded"),
    "far": (lambda r: r.update(missing=[_gap(7, 1)], sent=8), "what became of numbers 5 to 6 is not recorded"),
    "absent": (lambda r: r.pop("stored"), "field 'stored' must be given"),
    "text": (lambda r: r.update(stored="5"), "field 'stored' must be an integer from 0 to 281474976710655, not '5'"),
    "negative": (lambda r: r.update(missing=[_gap(-1, 1)]), "field 'missing[0].first' must be an integer from 0 to"),
    "huge": (lambda r: r.update(missing=[_gap(0, 2**60)]), "field 'missing[0].count' must be an integer from 0 to"),
    "list": (lambda r: r.update(missing=4), "field 'missing' must be a list, not 4"),
}


def _gap(first: int, count: int) -> dict[str, Any]:
    return {"first": first, "count": count, "reason": "x"}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_receipt_is_found(folder: Path, name: str) -> None:
    edit, expected = EDITS[name]
    edit_receipt(folder, edit)
    found = texts(verify(folder))
    assert any(expected in text for text in found), found


def test_a_receipt_without_a_root_hash_proves_less(folder: Path) -> None:
    edit_receipt(folder, lambda receipt: receipt.update(root_sha256=""))
    result = verify(folder)
    assert result.ok
    assert any(line.startswith("root:") for line in result.not_proved)


# What is hostile, or breaks.


@pytest.mark.parametrize("name", [STATE, RECEIPT])
@pytest.mark.parametrize("content", ["[]", "{}", "null", "[" * 100_000, '{"format": 4}', "\0"])
def test_a_side_file_that_is_none_is_a_problem(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    result = verify(folder)
    assert [problem.path for problem in result.problems] == [str(folder / name)]
    assert result.hashed_frames == 5


@pytest.mark.parametrize("name", [STATE, RECEIPT, JOURNAL])
def test_pipes_and_huge_files_in_their_place(folder: Path, name: str) -> None:
    os.truncate(folder / name, 2**40)
    assert not verify(folder).ok
    make_pipe_file(folder / name)
    assert any("is not a regular file" in text for text in texts(verify(folder)))


def test_leftovers_are_noted(folder: Path) -> None:
    for name in ("a.tif.part", "b.tif.unpublished", "receipt.json.new", "notes.txt"):
        (folder / name).write_bytes(b"")
    result = verify(folder)
    check_proved(result, 5)
    assert len(result.notes) == 4


def test_a_link_is_noted_and_followed_to_regular_files_only(folder: Path, tmp_path: Path) -> None:
    stack = stack_paths(folder)[0]
    stack.rename(tmp_path / "away.tif")
    make_link(stack, tmp_path / "away.tif")
    result = verify(folder)
    check_proved(result, 5)
    assert len(result.notes) == 1
    stack.unlink()
    make_link(stack, Path("/dev/zero"))
    assert "is not a regular file" in texts(verify(folder))


def test_a_bad_sector_is_told_and_does_not_end_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_into = ReadFile.read_into

    def fail(self: ReadFile, offset: int, buffer: memoryview) -> int:
        if threading.current_thread().name.startswith("verify-read"):
            raise StorageError(OSError(5, "Input/output error"), str(self.path), "read")
        return read_into(self, offset, buffer)

    monkeypatch.setattr(ReadFile, "read_into", fail)
    result = verify(folder)
    assert result.hashed_frames == 0
    assert result.problems
    assert all("frames cannot be read: read: Input/output error" in text for text in texts(result))


def test_a_piece_of_a_frame_that_cannot_be_read_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "cells", frames_of(3, (320, 512)))
    start = read_pages(stack_paths(tmp_path / "cells")[0])[1].pixels
    read_into = ReadFile.read_into

    def fail(self: ReadFile, offset: int, buffer: memoryview) -> int:
        if offset == start + 64 * 1024:
            raise StorageError(OSError(5, "Input/output error"), str(self.path), "read")
        return read_into(self, offset, buffer)

    monkeypatch.setattr(pixel_check, "READ_BYTES", 64 * 1024)
    monkeypatch.setattr(ReadFile, "read_into", fail)
    result = verify(tmp_path / "cells")
    assert [(problem.text, problem.offset) for problem in result.problems] == [
        ("1 frame cannot be read: read: Input/output error", start + 64 * 1024)
    ]
    assert result.hashed_frames == 2


def test_nothing_there_and_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        verify(tmp_path)
