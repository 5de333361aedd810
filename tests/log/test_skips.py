"""Numbers that never come: any count of them costs next to nothing, in memory and on the disk, then and later."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from acqstream.errors import CorruptDataset, FrameRefused
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.recover import recover
from acqstream.integrity.verify import verify
from acqstream.log import journal
from acqstream.log.committer import Committer
from acqstream.log.group import MAX_GAP_REASONS
from acqstream.log.log import Log
from acqstream.log.state_file import read_receipt, read_state
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import AcquisitionState
from tests.log.crashed import crash
from tests.log.make_frames import MIB, Frame, frame_of, memory_of, spec_of, start_log, wait_for
from tests.log.read_back import check_dataset, read_journal
from tests.storage.scripted_disk import ScriptedDisk

JOURNAL = journal.JOURNAL_NAME
MANY = 20_000_000


def put(log: Log, number: int) -> Frame:
    frame = frame_of(number, axes={"time": number % 2**31})
    log.append(frame.header, frame.image)
    return frame


def header_of(folder: Path) -> journal.JournalHeader:
    return journal.decode_journal_header((folder / JOURNAL).read_bytes(), JOURNAL)


@pytest.mark.parametrize("count", [MANY, 10**12, MAX_NUMBER - 4])
def test_a_long_gap_is_one_record(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "cells"
    tracemalloc.start()
    with start_log(folder) as log:
        log.wait_until_open()
        frames = [put(log, 0), put(log, 1)]
        log.skip(2, count, "nobody knows")
        frames.append(put(log, 2 + count))
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB  # the ring is not traced
    assert (folder / JOURNAL).stat().st_size == journal.HEADER_BYTES + 4 * journal.RECORD_BYTES
    assert header_of(folder) == journal.JournalHeader(log.spec.dataset_id, True, journal.VERSION)
    receipt = read_receipt(str(folder))
    assert receipt == log.receipt
    assert receipt is not None
    assert (receipt.stored, receipt.skipped, receipt.complete) == (3, count, True)
    assert receipt.missing == (MissingFrames(2, count, "nobody knows"),)
    check_dataset(folder, frames)
    result = verify(folder)
    assert (result.ok, result.problems, result.skipped, result.hashed_frames) == (True, [], count, 3)
    assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    tracemalloc.stop()


def test_frame_numbers_have_an_end(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        put(log, 0)
        with pytest.raises(FrameRefused, match=f"frame numbers end at {MAX_NUMBER}") as caught:
            log.skip(1, MAX_NUMBER, "too far")
        assert caught.value.code == "bad_header"
        log.skip(1, MAX_NUMBER - 1, "to the end")


@pytest.mark.parametrize("count", [1, journal.MAX_SINGLE_SKIPS])
def test_a_short_gap_has_a_record_for_each_number(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "cells"
    with start_log(folder) as log:
        put(log, 0)
        log.skip(1, count, "")
        put(log, 1 + count)
    assert read_journal(folder)["number"].tolist() == list(range(2 + count))


@pytest.mark.parametrize("version", [0, 4, 2**32 - 1])
def test_a_journal_of_another_version_is_refused_by_name(tmp_path: Path, version: int) -> None:
    content = journal.encode_journal_header("abcd", clean=True, version=version)
    with pytest.raises(CorruptDataset, match=f"journal of version {version} .* reads 1 to 3"):
        journal.decode_journal_header(content, "x")


def test_gaps_that_follow_one_another_are_one(tmp_path: Path) -> None:
    """A producer that skips one by one; also where each has a reason of its own memory stays bounded."""
    disk = ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk) as log:
        log.wait_until_open()
        disk.fail("pwritev", code=errno.ENOSPC, part="Stack.tif", for_good=True)
        put(log, 0)
        wait_for(log, lambda: log.state is AcquisitionState.PAUSED)
        for number in range(1, 50_001):
            log.skip(number, 1, "dark")
        for number in range(50_001, 100_001):
            log.skip(number, 1, f"reason {number}")
        assert len(log._parts.intake._groups._closed) <= MAX_GAP_REASONS
        disk.mend()
        assert log.wait_for_published(100_001)
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.skipped) == (1, 100_000)
    assert log.receipt.missing[:2] == (MissingFrames(1, 50_000, "dark"), MissingFrames(50_001, 1, "reason 50001"))
    assert log.receipt.missing[-1].reason == "several reasons"
    assert sum(gap.count for gap in log.receipt.missing) == 100_000
    assert len(read_journal(tmp_path / "cells")) <= 1 + MAX_GAP_REASONS
    assert verify(tmp_path / "cells").ok


def test_gaps_wait_while_there_is_no_space(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    with start_log(folder, durability="batch") as log:
        put(log, 0)
        assert log.wait_for_published(1)
        log.hold("no space left")
        assert log.state is AcquisitionState.PAUSED
        size = (folder / JOURNAL).stat().st_size
        for number in range(1, 1001):
            log.skip(number, 1, str(number % 3))
        with log._parts.intake.condition:
            assert len(log._parts.intake._groups._closed) == 1000
            assert not log._parts.intake.has_closed  # nothing for the writer
        assert log.cursors().published == 1
        assert (folder / JOURNAL).stat().st_size == size
        log.hold("")
        assert log.wait_for_published(1001)
        log.hold("no space left")
        log.skip(1001, 5, "at the end")
    assert log.receipt is not None
    assert (log.receipt.skipped, log.receipt.complete) == (1005, True)


def test_a_frame_behind_gaps_brings_them_along_while_there_is_no_space(tmp_path: Path) -> None:
    """It was on its way, within the window."""
    with start_log(tmp_path / "cells") as log:
        put(log, 0)
        assert log.wait_for_published(1)
        log.hold("no space left")
        log.skip(1, 3, "")
        frame = frame_of(4)
        log.reserve(frame.header).fill(frame.image.data.cast("B"))
        assert log.wait_for_published(5)
        log.hold("")


def test_it_is_resumed_behind_long_gaps(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    with start_log(folder) as log:
        frames = [put(log, 0)]
        log.skip(1, MANY, "first")
        frames.append(put(log, 1 + MANY))
        log.skip(2 + MANY, 7, "single ones")
        log.begin_close("interrupted")
    gaps = read_state(str(folder)).gaps
    assert gaps == (MissingFrames(1, MANY, "first"), MissingFrames(2 + MANY, 7, "single ones"))
    for reason in ("second", "third"):
        log = Log(folder, spec_of(), memory=memory_of(), resume=read_state(str(folder)))
        log.wait_until_open()
        assert log.received == log.cursors().durable
        assert log.counts.skipped == log.received - len(frames)
        log.skip(log.received, MANY, reason)
        frames.append(put(log, log.received))
        log.begin_close("interrupted")
        assert log.wait_until_finished(20)
    with Log(folder, spec_of(), memory=memory_of(), resume=read_state(str(folder))) as log:
        log.wait_until_open()
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.skipped) == (4, 3 * MANY + 7)
    assert [(gap.count, gap.reason) for gap in log.receipt.missing] == [
        (MANY, "first"),
        (7, "single ones"),
        (MANY, "second"),
        (MANY, "third"),
    ]
    check_dataset(folder, frames)
    assert verify(folder).problems == []


def crashed_run(folder: Path) -> list[Frame]:
    """A crash behind gaps with frames between and after; their reasons are lost with the daemon."""
    frames = [frame_of(number) for number in (0, MANY + 1, MANY + 5, MANY + 46)]
    crash(folder, [frames[0], MANY, frames[1], 3, frames[2], 40, frames[3]])
    return frames


@pytest.mark.parametrize("lost", ["nothing", "index end", "journal end"])
def test_it_is_recovered_with_long_gaps(tmp_path: Path, lost: str) -> None:
    folder = tmp_path / "cells"
    frames = crashed_run(folder)
    index = folder / INDEX_NAME
    if lost == "index end":
        index.write_bytes(index.read_bytes()[:-150])
    if lost == "journal end":
        (folder / JOURNAL).write_bytes((folder / JOURNAL).read_bytes()[: -journal.RECORD_BYTES])
    report = recover(folder)
    assert report is not None
    assert report.published == frames[-1].header.number + 1 == MANY + 47
    check_dataset(folder, frames, complete=False)
    with Log(folder, spec_of(), memory=memory_of(), resume=read_state(str(folder))) as log:
        log.wait_until_open()
    assert log.receipt is not None
    reason = "skipped or refused before the writer was interrupted"
    assert log.receipt.missing == (
        MissingFrames(1, MANY, reason),
        MissingFrames(MANY + 2, 3, reason),
        MissingFrames(MANY + 6, 40, reason),
    )
    assert verify(folder).problems == []


def test_verify_finds_every_changed_bit_of_long_gaps(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    with start_log(folder) as log:
        for count in (100, 200):
            put(log, log.received)
            log.skip(log.received, count, "x")
        put(log, log.received)
    content = (folder / JOURNAL).read_bytes()
    chance = np.random.default_rng(1)
    for at in range(journal.HEADER_BYTES, len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << int(chance.integers(8))
        (folder / JOURNAL).write_bytes(changed)
        assert not verify(folder).ok, at
    (folder / JOURNAL).write_bytes(content)
    assert verify(folder).ok


def test_a_damaged_record_of_a_long_gap_costs_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    with start_log(folder) as log:
        for count in (100, 200):
            put(log, log.received)
            log.skip(log.received, count, "x")
        put(log, log.received)
    path = folder / JOURNAL
    content = bytearray(path.read_bytes())
    content[journal.HEADER_BYTES + journal.RECORD_BYTES] ^= 1
    path.write_bytes(content)
    result = verify(folder)
    assert (result.hashed_frames, result.missing_count, result.missing[0]) == (3, 100, MissingFrames(1, 100, "lost"))
    assert sum(problem.path == str(path) for problem in result.problems) == 1


def test_an_entry_behind_a_gap_waits_until_the_gap_is_forced(tmp_path: Path) -> None:
    """Else a power cut might keep the entry alone, and its frame would get the number of the gap."""
    disk = ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk, durability="close") as log:
        put(log, 0)
        assert log.wait_for_published(1)
        before = len(disk.calls)
        for number in (2, 3):
            if number == 2:
                log.skip(1, 1, "")
            put(log, number)
            assert log.wait_for_published(number + 1)
        calls = [(c.kind, c.name) for c in disk.calls[before:] if c.name in (JOURNAL, INDEX_NAME) and c.kind != "size"]
    assert sorted(calls[: calls.index(("fdatasync", JOURNAL))]) == [("pwritev", JOURNAL)] * (
        calls.index(("fdatasync", JOURNAL))
    )
    behind = calls[calls.index(("fdatasync", JOURNAL)) + 1 :]
    assert behind == [("pwritev", INDEX_NAME), ("pwritev", JOURNAL), ("pwritev", INDEX_NAME)]  # the next one is free


def test_recovery_forces_the_journal_before_it_adds_entries(tmp_path: Path) -> None:
    """Gaps in it may be in the page cache only, of the daemon that was killed."""
    folder = tmp_path / "cells"
    frames = crashed_run(folder)
    (folder / INDEX_NAME).write_bytes((folder / INDEX_NAME).read_bytes()[:-150])
    disk = ScriptedDisk()
    recover(folder, disk)
    calls = [(call.kind, call.name) for call in disk.calls if call.name in (JOURNAL, INDEX_NAME)]
    assert calls.index(("fdatasync", JOURNAL)) < calls.index(("pwritev", INDEX_NAME))
    check_dataset(folder, frames, complete=False)


def test_an_entry_that_lost_its_end_is_found_wherever_it_is(tmp_path: Path) -> None:
    """Where the index is not forced with every batch, a power cut may take a piece from its middle."""
    crashed = tmp_path / "crashed"
    frames = crashed_run(crashed)
    content = (crashed / INDEX_NAME).read_bytes()
    for end in range(len(content) // 4, len(content) // 2, 2):  # the second entry is in there
        folder = shutil.copytree(crashed, tmp_path / "cells")
        changed = content[: end - 8] + bytes(8) + content[end:]
        (folder / INDEX_NAME).write_bytes(changed)
        recover(folder)
        assert (folder / INDEX_NAME).read_bytes() == content, end
        shutil.rmtree(folder)
    recover(crashed)
    check_dataset(crashed, frames, complete=False)


def test_the_index_is_forced_before_more_entries_wait_than_recovery_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acqstream.log.committer._FORCE_AT_ENTRIES", 3)
    forced: list[int] = []
    original = Committer._force

    def force(committer: Committer) -> None:
        forced.append(committer.published)
        original(committer)

    monkeypatch.setattr(Committer, "_force", force)
    with start_log(tmp_path / "cells", durability="close") as log:
        for number in range(7):
            put(log, number)
            assert log.wait_for_published(number + 1)
    assert forced == [3, 6, 7]
