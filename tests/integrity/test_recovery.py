"""Recovery: whatever a crash left, it ends in a dataset where every published frame is right."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.daemon import crash_recovery
from acqstream.daemon.crash_recovery import recover_all
from acqstream.errors import CorruptDataset, StorageError
from acqstream.integrity.recover import RecoveryReport, recover
from acqstream.log import journal
from acqstream.log.state_file import read_state, write_state
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.disk import LocalDisk
from tests.formats.ndtiff.ndtiff_bytes import entry, overwrite
from tests.log.crashed import Step, content_of, crash, cut, entry_starts, without_leftovers
from tests.log.make_frames import Frame, frame_of, frames_of, start_log, write_log
from tests.log.read_back import check_dataset, open_ndstorage, read_index, read_journal, stack_paths
from tests.storage.scripted_disk import ANY, ScriptedDisk

INDEX, JOURNAL = "NDTiff.index", journal.JOURNAL_NAME
SMALL = frames_of(5, (6, 7))
LARGE = frames_of(11, (320, 512))  # seven to a stack file


def recovered(folder: Path) -> RecoveryReport:
    report = recover(folder)
    assert report is not None
    return report


def check_recovered(folder: Path, frames: Sequence[Frame], *, oracles: bool = True) -> None:
    """In order, and so it stays."""
    check_dataset(folder, frames, complete=False, oracles=oracles)
    state = read_state(str(folder))
    assert state.state is AcquisitionState.INTERRUPTED
    assert journal.decode_journal_header((folder / JOURNAL).read_bytes(), "").clean
    before = content_of(folder)
    assert recover(folder) is None
    write_state(LocalDisk(), str(folder), dataclasses.replace(state, state=AcquisitionState.RUNNING))
    recovered(folder)
    assert content_of(folder) == before


@pytest.mark.parametrize("frames", [SMALL, LARGE], ids=["small", "large"])
def test_a_killed_writer_loses_nothing_published(tmp_path: Path, frames: list[Frame]) -> None:
    folder = crash(tmp_path / "cells", frames)
    with acqstream.open(folder) as dataset:
        assert not dataset.complete
    report = recovered(folder)
    assert (report.published, report.rolled_forward, report.records_added, report.records_cut) == (len(frames), 0, 0, 0)
    check_recovered(folder, frames)


@pytest.mark.promise("recovery")
def test_index_cut_anywhere_is_rolled_forward(tmp_path: Path) -> None:
    crashed = crash(tmp_path / "crashed", SMALL)
    starts = entry_starts(crashed)
    for length in range(starts[-3], starts[-1]):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        cut(folder / INDEX, length)
        whole = sum(start <= length for start in starts) - 1
        assert recovered(folder).rolled_forward == len(SMALL) - whole
        assert content_of(folder)[INDEX] == content_of(crashed)[INDEX]
        check_recovered(folder, SMALL, oracles=length % 20 == 0)
        shutil.rmtree(folder)


def test_index_with_zeros_at_its_end_is_rolled_forward(tmp_path: Path) -> None:
    """After a power cut a file may have its length and not its bytes."""
    crashed = crash(tmp_path / "crashed", SMALL)
    content = (crashed / INDEX).read_bytes()
    for length in range(entry_starts(crashed)[-3], len(content)):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        (folder / INDEX).write_bytes(content[:length].ljust(len(content), b"\0"))
        recovered(folder)
        assert (folder / INDEX).read_bytes() == content, length
        check_recovered(folder, SMALL, oracles=length % 20 == 0)
        shutil.rmtree(folder)


def test_a_foreign_entry_changes_no_order_of_axes(tmp_path: Path) -> None:
    frames = [frame_of(n, (6, 7), axes={"time": n, "channel": 0}) for n in range(3)]
    folder = crash(tmp_path / "cells", frames)
    content = (folder / INDEX).read_bytes()
    (folder / INDEX).write_bytes(entry({"channel": 9, "time": 9}) + content)
    recovered(folder)
    assert (folder / INDEX).read_bytes() == content


@pytest.mark.promise("recovery")
@pytest.mark.parametrize("zeros", [False, True])
def test_journal_cut_anywhere_gets_its_records_back(tmp_path: Path, zeros: bool) -> None:
    crashed = crash(tmp_path / "crashed", SMALL)
    content = (crashed / JOURNAL).read_bytes()
    for length in range(len(content) - 2 * journal.RECORD_BYTES, len(content), 3):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        (folder / JOURNAL).write_bytes(content[:length].ljust(len(content) if zeros else 0, b"\0"))
        report = recovered(folder)
        assert report.records_added in ((1, 2) if zeros else (-(-(len(content) - length) // 64),))
        found, original = read_journal(folder), read_journal(crashed)
        for field in ("number", "flags", "stack", "offset", "length", "checksum", "directory", "pixel_type"):
            assert np.array_equal(found[field], original[field]), field
        added = np.arange(len(found)) >= len(found) - report.records_added
        assert np.array_equal(found["own_checksum"] == 1, added)  # the producer's are lost: these are computed anew
        check_recovered(folder, SMALL, oracles=length % 20 == 0)
        shutil.rmtree(folder)


@pytest.mark.parametrize("frames", [SMALL, LARGE[:4]], ids=["small", "large"])
def test_a_stack_cut_behind_the_index_is_rolled_forward_as_far_as_it_goes(tmp_path: Path, frames: list[Frame]) -> None:
    crashed = crash(tmp_path / "crashed", frames)
    starts = entry_starts(crashed)
    stack = stack_paths(crashed)[0].name
    records = read_journal(crashed)
    first, last = (int(records["directory"][position]) for position in (-2, -1))
    size = (crashed / stack).stat().st_size
    near = {edge + step for edge in (first, last, size) for step in range(-3, 200, 13)}
    previous = 0
    for length in sorted(one for one in near if first <= one < size):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        cut(folder / INDEX, starts[-3])
        cut(folder / stack, length)
        report = recovered(folder)
        assert previous <= report.rolled_forward <= 2
        assert report.rolled_forward + report.records_cut == 2
        check_recovered(folder, frames[: len(frames) - report.records_cut], oracles=False)
        previous = report.rolled_forward
        shutil.rmtree(folder)
    assert previous >= 1


def test_a_record_whose_pixels_differ_costs_no_other_frame(tmp_path: Path) -> None:
    crashed = crash(tmp_path / "crashed", SMALL)
    starts, records = entry_starts(crashed), read_journal(crashed)
    for bad in (2, 3, 4):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        cut(folder / INDEX, starts[2])
        with stack_paths(folder)[0].open("r+b") as file:
            file.seek(int(records["offset"][bad]) + 5)
            file.write(b"\xa5\x5a\xa5")
        report = recovered(folder)
        assert (report.published, report.records_cut) == (4 if bad == 4 else 5, 1)
        check_recovered(folder, [frame for frame in SMALL if frame.header.number != bad], oracles=bad == 4)
        shutil.rmtree(folder)


def test_journal_and_index_torn_together(tmp_path: Path) -> None:
    crashed = crash(tmp_path / "crashed", SMALL)
    starts = entry_starts(crashed)
    for entries in range(6):
        for records in range(6):
            folder = shutil.copytree(crashed, tmp_path / "cells")
            cut(folder / INDEX, starts[entries] + (7 if entries < 5 else 0))
            cut(folder / JOURNAL, journal.HEADER_BYTES + 64 * records + (20 if records < 5 else 0))
            recovered(folder)
            check_recovered(folder, SMALL[: max(entries, records)], oracles=entries == records)
            shutil.rmtree(folder)


def test_skipped_numbers_survive(tmp_path: Path) -> None:
    steps: list[Step] = [2, *frames_of(2, first=2), 3, frame_of(7), 1]
    frames = [step for step in steps if isinstance(step, Frame)]
    crashed = crash(tmp_path / "crashed", steps)
    starts = entry_starts(crashed)
    for entries in range(4):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        cut(folder / INDEX, starts[entries])
        assert recovered(folder).published == 9
        assert list(read_journal(folder)["flags"]) == [2, 2, 1, 1, 2, 2, 2, 1, 2]
        check_recovered(folder, frames)
        shutil.rmtree(folder)


def test_stacks_without_published_frames_are_put_aside(tmp_path: Path) -> None:
    folder = crash(tmp_path / "cells", LARGE)
    first, second = stack_paths(folder)
    records = read_journal(folder)
    kept = int(np.count_nonzero(records["stack"] == 0)) - 1
    cut(folder / INDEX, entry_starts(folder)[kept])
    cut(folder / JOURNAL, journal.HEADER_BYTES + 64 * kept)
    (folder / "cells_NDTiffStack_2.tif.part").write_bytes(b"")
    report = recovered(folder)
    assert (report.finished_stacks, report.put_aside) == ((first.name,), (second.name,))
    assert (folder / (second.name + ".unpublished")).exists()
    check_recovered(folder, LARGE[:kept])


def test_nothing_was_published(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    stall = disk.stall("fdatasync", 2, part="Stack.tif")
    with start_log(tmp_path / "alive", disk=disk, summary={"a": 1}) as log:
        log.append(SMALL[0].header, SMALL[0].image)
        assert stall.entered.wait(20)
        folder = shutil.copytree(tmp_path / "alive", tmp_path / "cells")
        stall.go.set()
    assert recovered(folder).published == 0
    check_recovered(folder, [])
    assert stack_paths(folder)[0].stat().st_size == 4096
    with acqstream.open(folder) as dataset, open_ndstorage(folder) as oracle:
        assert dataset.summary_metadata["a"] == oracle.summary_metadata["a"] == 1


def test_no_stack_file_yet(tmp_path: Path) -> None:
    folder = crash(tmp_path / "cells", [])
    assert recovered(folder).published == 0
    assert not list(folder.glob("*.part"))
    (folder / INDEX).unlink()
    write_state(LocalDisk(), str(folder), dataclasses.replace(read_state(str(folder)), state=AcquisitionState.RUNNING))
    recovered(folder)
    assert (folder / INDEX).read_bytes() == b""


@pytest.mark.promise("recovery")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_recovery_interrupted_at_any_of_its_calls_is_done_by_the_next(tmp_path: Path, code: int) -> None:
    steps: list[Step] = [1, *[frame_of(number, (320, 512)) for number in range(1, 10)], 2, frame_of(12)]
    frames = [step for step in steps if isinstance(step, Frame)]
    crashed = crash(tmp_path / "crashed", steps)
    cut(crashed / INDEX, entry_starts(crashed)[-3] + 5)
    with stack_paths(crashed)[-1].open("ab") as file:
        file.write(b"x" * 10_000)
    (crashed / "cells_NDTiffStack_2.tif.part").write_bytes(b"")
    shutil.copy(stack_paths(crashed)[0], crashed / "cells_NDTiffStack_2.tif")
    whole = shutil.copytree(crashed, tmp_path / "whole")
    disk = ScriptedDisk()
    assert recover(whole, disk) is not None
    assert len(disk.calls) > 15
    check_recovered(whole, frames)
    for nth in range(1, len(disk.calls) + 1):
        folder = shutil.copytree(crashed, tmp_path / "cells")
        scripted = ScriptedDisk()
        scripted.fail(ANY, nth, code, for_good=True)
        with pytest.raises((StorageError, OSError)):
            recover(folder, scripted)
        assert scripted.delivered
        recover(folder)
        assert read_state(str(folder)).state is AcquisitionState.INTERRUPTED
        assert without_leftovers(folder) == without_leftovers(whole), disk.calls[nth - 1]
        shutil.rmtree(folder)


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        log.append(SMALL[0].header, SMALL[0].image)
        assert log.wait_for_published(1)
        before = content_of(tmp_path / "cells")
        assert recover(tmp_path / "cells") is None
        assert content_of(tmp_path / "cells") == before
        assert read_state(str(tmp_path / "cells")).state is AcquisitionState.RUNNING
    check_dataset(tmp_path / "cells", SMALL[:1])


@pytest.mark.promise("recovery")
def test_finished_datasets_are_not_touched(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", SMALL)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "cells").iterdir()}
    assert recover_all([tmp_path / "cells"]) == []
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "cells").iterdir()} == before


def test_entries_whose_bytes_are_missing_are_cut(tmp_path: Path) -> None:
    """A copy made while the dataset grew: its index may be younger than its stack and its journal."""
    folder = crash(tmp_path / "cells", LARGE[:5])
    cut(folder / JOURNAL, journal.HEADER_BYTES + 64 * 2)
    cut(stack_paths(folder)[0], int(read_index(folder).numbers["pixel_offset"][3]) + 10_000)
    whole_journal = shutil.copytree(crash(tmp_path / "other", LARGE[:5]), tmp_path / "whole")
    cut(stack_paths(whole_journal)[0], int(read_index(whole_journal).numbers["pixel_offset"][3]) + 10_000)
    report = recovered(folder)
    assert (report.published, report.records_added, report.records_cut) == (3, 1, 0)
    check_recovered(folder, LARGE[:3])
    report = recovered(whole_journal)
    assert (report.published, report.records_added, report.records_cut) == (3, 0, 2)
    check_recovered(whole_journal, LARGE[:3])


def test_an_entry_or_a_page_with_impossible_numbers_is_cut(tmp_path: Path) -> None:
    """Torn and damaged: what lost its other half says something impossible."""
    crashed = crash(tmp_path / "crashed", SMALL)
    starts = entry_starts(crashed)
    for pixel_type in (300, -1):
        no_record = shutil.copytree(crashed, tmp_path / f"no_record{pixel_type}")
        cut(no_record / JOURNAL, (no_record / JOURNAL).stat().st_size - journal.RECORD_BYTES)
        overwrite(no_record / INDEX, starts[-1] - 20, struct.pack("<i", pixel_type))
        recovered(no_record)
        check_recovered(no_record, SMALL[:-1])
    no_entry = shutil.copytree(crashed, tmp_path / "no_entry")
    cut(no_entry / INDEX, starts[-2])
    directory = int(read_journal(no_entry)[-1]["directory"])
    overwrite(stack_paths(no_entry)[0], directory + 2 + 8, b"\xff" * 4)  # width: the value of the first tag
    assert recovered(no_entry).records_cut == 1
    check_recovered(no_entry, SMALL[:-1])


def test_a_fault_in_recovery_does_not_keep_the_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = crash(tmp_path / "good", SMALL), crash(tmp_path / "bad", SMALL)

    def faulty(folder: Path) -> RecoveryReport | None:
        if folder == bad:
            raise KeyError(folder)
        return recover(folder)

    monkeypatch.setattr(crash_recovery, "recover", faulty)
    assert [report.folder for report in recover_all([bad, good])] == [str(good)]
    assert f"cannot recover {bad}: unexpected error" in caplog.text


def test_one_bad_dataset_does_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(crash_recovery.logger, "error", lambda text, *values: told.append(text % values))
    good, bad = crash(tmp_path / "good", SMALL), crash(tmp_path / "bad", SMALL)
    (tmp_path / "other").mkdir()
    (bad / JOURNAL).write_bytes(b"x" * 5000)
    with pytest.raises(CorruptDataset, match="not a journal"):
        recover(bad)
    reports = recover_all([bad, tmp_path / "other", good])
    assert [report.folder for report in reports] == [str(good)]
    assert len(told) == 1
    assert f"cannot recover {bad}: " in told[0]
    (bad / JOURNAL).unlink()
    with pytest.raises(CorruptDataset, match="journal is missing"):
        recover(bad)


def test_what_a_failed_sync_may_have_lost_is_written_again(tmp_path: Path) -> None:
    """After it the system shows bytes that are not on the disk, and no sync writes them."""
    folder, disk = crash(tmp_path / "cells", SMALL), ScriptedDisk()
    recover(folder, disk)
    for name, first in ((INDEX, 0), (JOURNAL, journal.HEADER_BYTES)):
        writes = disk.of("pwritev", part=name)
        end = (folder / name).stat().st_size
        assert any((call.offset, call.offset + call.length) == (first, end) for call in writes), (name, writes)
