"""Repair of our own datasets: the index comes back byte for byte, and every frame's pixels are proved."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError, DatasetLocked, StorageError
from acqstream.integrity.repair import BACKUP_NAME, repair
from acqstream.log import journal
from acqstream.log.state_file import read_state, write_state
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.disk import LocalDisk
from tests.formats.ndtiff.ndtiff_bytes import overwrite
from tests.integrity.repair.damaged_sets import HastyDisk, age, signatures, write_ndstorage
from tests.log.crashed import LIMIT_BYTES, content_of, crash, cut, entry_starts, without_leftovers
from tests.log.make_frames import Frame, frame_of, frames_of, mixed_frames, start_log, write_log
from tests.log.read_back import check_dataset, check_ours, read_index, read_journal, stack_paths
from tests.storage.scripted_disk import ANY, ScriptedDisk

INDEX, JOURNAL = "NDTiff.index", journal.JOURNAL_NAME
SMALL = frames_of(5, (6, 7))
LARGE = frames_of(11, (320, 512))  # seven to a stack file
TEXTS = [frame_of(n, (6, 7), axes={"channel": "µ🔬"[n % 2], "time": n // 2}) for n in range(6)]
KINDS: dict[str, list[Frame]] = {
    "packed": SMALL,
    "rolled over": LARGE,
    "mixed": mixed_frames(9),
    "texts": TEXTS,
    "rgb": [frame_of(n, (9, 8, 3), "|u1") for n in range(3)],
    "12 bit": [frame_of(n, (9, 8), bits=12, metadata={"BitDepth": 16}) for n in range(3)],
    "negative": [frame_of(n, (9, 8), axes={"z": -n}) for n in range(3)],
}


def dataset(folder: Path, frames: list[Frame], **more: Any) -> Path:
    """Finished, and not touched for an hour."""
    write_log(folder, frames, limit=LIMIT_BYTES, **more)
    age(folder)
    return folder


@pytest.mark.promise("repair")
@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_index_comes_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    frames = KINDS[kind]
    folder = dataset(tmp_path / "cells", frames)
    before = content_of(folder)
    assert repair(folder).is_whole
    assert content_of(folder) == before
    (folder / INDEX).unlink()
    report = repair(folder)
    assert content_of(folder) == before
    (level,) = report.levels
    assert (level.kept, level.recovered, report.lost, level.guessed.count) == (0, len(frames), 0, 0)
    assert (report.notes, level.backup) == ([], "")
    check_dataset(folder, frames)


def test_skipped_numbers_and_replaced_frames(tmp_path: Path) -> None:
    frames = [frame_of(n, (6, 7), axes={"time": n % 3}) for n in range(3, 8)]
    with start_log(tmp_path / "cells", replace_duplicates=True) as log:
        log.skip(0, 3, "no light")
        for frame in frames:
            log.append(frame.header, frame.image)
    folder = tmp_path / "cells"
    before = content_of(folder)
    (folder / INDEX).unlink()
    assert repair(folder).levels[0].recovered == 5
    assert content_of(folder) == before


def test_a_dataset_without_frames(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", [])
    (folder / INDEX).unlink()
    repair(folder)
    assert (folder / INDEX).read_bytes() == b""
    with acqstream.open(folder) as found:
        assert list(found.keys()) == []


@pytest.mark.promise("repair")
@pytest.mark.parametrize("zeros", [False, True])
def test_index_cut_at_every_byte(tmp_path: Path, zeros: bool) -> None:
    folder = dataset(tmp_path / "cells", SMALL[:3])
    content = (folder / INDEX).read_bytes()
    for length in range(len(content)):
        (folder / INDEX).write_bytes(content[:length].ljust(len(content) if zeros else 0, b"\0"))
        report = repair(folder, disk=HastyDisk())
        assert (folder / INDEX).read_bytes() == content, length
        assert (report.lost, report.levels[0].guessed.count) == (0, 0)
        assert report.levels[0].kept + report.levels[0].recovered == 3
        (folder / BACKUP_NAME).unlink(missing_ok=True)  # cut in the zeros at its end, it is whole
    check_dataset(folder, SMALL[:3])


def test_a_damaged_entry_in_the_middle_costs_no_other(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", SMALL)
    content, start = (folder / INDEX).read_bytes(), entry_starts(folder)[2]
    for at in range(start, entry_starts(folder)[3]):
        (folder / INDEX).write_bytes(content)
        overwrite(folder / INDEX, at, bytes([content[at] ^ 0x41]))
        report = repair(folder, disk=HastyDisk())
        assert report.levels[0].kept >= 4
        found = (folder / INDEX).read_bytes()
        assert found == content or report.levels[0].guessed.count == 1, "another time is a matter of taste"


def test_a_frame_whose_pixels_differ_is_lost_and_told(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", LARGE)
    record = read_journal(folder)[8]
    stack = stack_paths(folder)[1]
    overwrite(stack, int(record["offset"]) + 77, b"\x55\xaa\x55")
    (folder / INDEX).unlink()
    report = repair(folder)
    (finding,) = report.levels[0].lost
    assert (finding.file, finding.offset) == (stack.name, int(record["offset"]))
    assert "differ from their checksum" in finding.text
    check_ours(folder, LARGE[:8] + LARGE[9:])
    again = repair(folder)
    assert (again.is_whole, again.lost) == (True, 1)


def test_pixels_are_read_only_if_the_index_is_not_whole(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", SMALL)
    overwrite(stack_paths(folder)[0], int(read_journal(folder)["offset"][1]), b"\x55\xaa")
    assert repair(folder).is_whole
    cut(folder / INDEX, entry_starts(folder)[-2])
    assert repair(folder).lost == 1


def test_a_stack_without_its_final_cut_is_finished(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", LARGE)
    before = content_of(folder)
    for number, path in enumerate(stack_paths(folder)):
        records = read_journal(folder)
        size, directory = path.stat().st_size, int(records["directory"][records["stack"] == number][-1])
        overwrite(path, directory + 158, (size + 4096 - size % 4096).to_bytes(4, "little"))
        overwrite(path, size + 4000, b"not published")
    (folder / INDEX).unlink()
    assert repair(folder).levels[0].finished_stacks == [path.name for path in stack_paths(folder)]
    assert content_of(folder) == before


def test_a_page_that_was_never_published_is_not_listed(tmp_path: Path) -> None:
    """In a stack file that was not finished a page without a record is one; in a finished one its record is lost."""
    for finished in (False, True):
        folder = dataset(tmp_path / f"cells-{finished}", SMALL)
        (stack,) = stack_paths(folder)
        if not finished:
            overwrite(stack, int(read_journal(folder)["directory"][-1]) + 158, (2**20).to_bytes(4, "little"))
        cut(folder / JOURNAL, journal.HEADER_BYTES + 4 * 64)
        (folder / INDEX).unlink()
        report = repair(folder)
        assert (report.levels[0].guessed.count, report.lost) == (int(finished), 0)
        check_ours(folder, SMALL if finished else SMALL[:4])


def test_a_lost_journal_is_said_and_no_new_one_is_made(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", LARGE)
    before = content_of(folder)
    (folder / JOURNAL).unlink()
    for damage in (lambda: None, (folder / INDEX).unlink, lambda: cut(folder / INDEX, 300)):
        damage()
        report = repair(folder, force=True)
        assert "checksums of all frames" in report.notes[0]
        assert report.lost == 0
        assert (folder / INDEX).read_bytes() == before[INDEX]
    assert not (folder / JOURNAL).exists()


@pytest.mark.parametrize("at", [20, journal.HEADER_BYTES + 2 * 64 + 30])
def test_a_damaged_journal_stays_and_its_frames_come_back(tmp_path: Path, at: int) -> None:
    folder = dataset(tmp_path / "cells", SMALL)
    overwrite(folder / JOURNAL, at, b"\xff")
    before = content_of(folder)
    (folder / INDEX).unlink()
    report = repair(folder)
    assert content_of(folder) == before
    assert "it is left as it is" in report.notes[0]
    assert report.levels[0].guessed.count == (at > journal.HEADER_BYTES)
    assert report.lost == 0


def test_a_missing_stack_file_is_told_frame_by_frame(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", LARGE)
    gone = stack_paths(folder)[1]
    count = int(np.count_nonzero(read_journal(folder)["stack"] == 1))
    gone.rename(tmp_path / "elsewhere.tif")
    report = repair(folder)
    assert report.lost == report.levels[0].dropped.count == count
    check_ours(folder, LARGE[: len(LARGE) - count])
    (tmp_path / "elsewhere.tif").rename(gone)
    repair(folder)
    check_dataset(folder, LARGE)


@pytest.mark.parametrize("damage", ["none", "index deleted", "index cut", "index garbled"])
def test_a_crashed_dataset_is_recovered(tmp_path: Path, damage: str) -> None:
    folder = crash(tmp_path / "cells", LARGE)
    starts = entry_starts(folder)
    if damage == "index deleted":
        (folder / INDEX).unlink()
    elif damage == "index cut":
        cut(folder / INDEX, starts[4] + 9)
    elif damage == "index garbled":
        overwrite(folder / INDEX, starts[4] + 6, b"\xff\xff")
    dry = repair(folder, dry_run=True)
    report = repair(folder)
    assert report.state_changed
    assert dry.lost == report.lost == 0
    assert read_state(str(folder)).state is AcquisitionState.INTERRUPTED
    check_dataset(folder, LARGE, complete=False)
    assert repair(folder).is_whole


@pytest.mark.parametrize("damage", ["deleted", "no journal"])
def test_a_crashed_dataset_whose_journal_is_lost_ends_as_failed(tmp_path: Path, damage: str) -> None:
    folder = crash(tmp_path / "cells", SMALL)
    if damage == "deleted":
        (folder / JOURNAL).unlink()
    else:
        overwrite(folder / JOURNAL, 0, b"X" * 100)
    (folder / INDEX).unlink()
    age(folder)
    report = repair(folder)
    assert report.state_changed
    assert read_state(str(folder)).state is AcquisitionState.FAILED
    check_ours(folder, SMALL)
    age(folder)
    assert repair(folder).is_whole


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        log.append(SMALL[0].header, SMALL[0].image)
        assert log.wait_for_published(1)
        before = content_of(tmp_path / "cells")
        for state in (AcquisitionState.RUNNING, AcquisitionState.INTERRUPTED):
            now = dataclasses.replace(read_state(str(tmp_path / "cells")), state=state)
            write_state(LocalDisk(), str(tmp_path / "cells"), now)
            for force in (False, True):
                with pytest.raises(DatasetLocked):
                    repair(tmp_path / "cells", force=force)
        assert content_of(tmp_path / "cells") == before
    check_dataset(tmp_path / "cells", SMALL[:1])


def lose_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def tear_index(folder: Path) -> None:
    cut(folder / INDEX, entry_starts(folder)[3] + 11)


def lose_state(folder: Path) -> None:
    tear_index(folder)
    (folder / "acqstream.json").write_bytes(b"{")


@pytest.mark.parametrize("damage", [lose_index, tear_index, lose_state])
def test_a_dry_run_leaves_every_byte(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    for folder in (dataset(tmp_path / "done", LARGE), crash(tmp_path / "crashed", LARGE)):
        damage(folder)
        age(folder)
        before = signatures(folder)
        dry = repair(folder, dry_run=True)
        assert signatures(folder) == before
        report = repair(folder)
        assert [level.recovered for level in dry.levels] == [level.recovered for level in report.levels]
        assert dry.lost == report.lost == 0


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "cells", SMALL)
    tear_index(folder)
    before = content_of(folder)
    disk = ScriptedDisk()
    disk.fail("create", code=errno.EROFS, for_good=True)
    with pytest.raises(StorageError, match="Read-only file system"):
        repair(folder, disk=disk)
    assert content_of(folder) == before


def damaged_ours(folder: Path) -> Path:
    """Torn index, and a stack that lacks its final cut."""
    dataset(folder, LARGE)
    tear_index(folder)
    size = stack_paths(folder)[-1].stat().st_size
    os.truncate(stack_paths(folder)[-1], size + 4096)
    return folder


def damaged_foreign(folder: Path) -> Path:
    write_ndstorage(folder, [{"time": time} for time in range(4)]).rename(folder.with_name("moved"))
    folder.rmdir()
    folder.with_name("moved").rename(folder)
    cut(folder / INDEX, 100)
    age(folder)
    return folder


@pytest.mark.parametrize("make", [damaged_ours, damaged_foreign, lambda folder: crash(folder, LARGE)])
def test_a_repair_cut_short_at_any_of_its_calls_is_done_by_the_next(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """A call fails and all behind it: also what a killed repair leaves. The index is always the old or the new one."""
    damaged = make(tmp_path / "damaged")
    whole = shutil.copytree(damaged, tmp_path / "whole")
    disk = ScriptedDisk(HastyDisk())
    report = repair(whole, disk=disk, force=True)
    assert not report.is_whole
    old, new = (damaged / INDEX).read_bytes(), (whole / INDEX).read_bytes()
    kinds = {"read", "close"}
    for nth in range(1, len(disk.calls) + 1):
        if disk.calls[nth - 1].kind in kinds:
            continue
        folder = shutil.copytree(damaged, tmp_path / "cells")
        scripted = ScriptedDisk(HastyDisk())
        scripted.fail(ANY, nth, for_good=True)
        with pytest.raises((AcqStreamError, OSError)):
            repair(folder, disk=scripted, force=True)
        assert (folder / INDEX).read_bytes() in (old, new), disk.calls[nth - 1]
        repair(folder, force=True, disk=HastyDisk())
        assert without_leftovers(folder) == without_leftovers(whole), disk.calls[nth - 1]
        shutil.rmtree(folder)


def test_what_the_reader_needs_is_what_is_there(tmp_path: Path) -> None:
    """Entries of a repaired index are those of the log: names, axes and numbers."""
    folder = dataset(tmp_path / "cells", TEXTS)
    axes, numbers = read_index(folder).axes, read_index(folder).numbers.tolist()
    lose_index(folder)
    repair(folder)
    assert (read_index(folder).axes, read_index(folder).numbers.tolist()) == (axes, numbers)
