"""A full disk pauses the log: it goes on by itself when there is space, and ends whole when there will be none."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from acqstream.errors import DiskFull
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, read_receipt, read_state
from acqstream.model.state import AcquisitionState
from tests.live.stored import unstalled
from tests.log.make_frames import MIB, append, frames_of, log_threads, memory_of, spec_of, start_log, wait_for
from tests.log.read_back import check_dataset, stack_paths
from tests.storage.scripted_disk import ScriptedDisk

STACK = "Stack.tif"
PLACES = [
    ("pwritev", STACK),  # the frames
    ("pwritev", journal.JOURNAL_NAME),
    ("pwritev", INDEX_NAME),
    ("create", "Stack_1.tif"),  # a roll-over
    ("pwritev", "Stack_1.tif.part"),
]
LIMIT_BYTES = 7_600_000  # seven of the large frames in a stack file


def start_log_with_reserve(folder: Path, disk: ScriptedDisk) -> Log:
    """Its small writes at the end find space."""
    return Log(folder, spec_of(), memory=memory_of(), disk=disk, free_reserve=disk.mend)


def is_paused(log: Log) -> bool:
    """It is, and has told so: the window is held by then."""
    return log.state is AcquisitionState.PAUSED and any(code == "disk_full" for code, _, _ in log.notes.warnings)


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(("kind", "part"), PLACES)
def test_it_goes_on_when_there_is_space(tmp_path: Path, kind: str, part: str, code: int) -> None:
    frames = frames_of(12, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk, limit=LIMIT_BYTES)
    append(log, frames[:3])
    disk.fail(kind, code=code, part=part, for_good=True)
    append(log, frames[3:9], is_awaited=False)  # all of them fit into memory
    wait_for(log, lambda: is_paused(log))
    published = log.cursors().published
    assert 3 <= published < 9
    window = log.limit()
    assert window == log.limit()
    assert window.payload_bytes <= log.received_payload_bytes + 4 * MIB
    disk.mend()
    append(log, frames[9:])
    assert log.state is AcquisitionState.RUNNING
    log.close()
    assert disk.delivered > 0
    assert [code for code, _, _ in unstalled(log.notes.warnings)] == ["disk_full", "disk_space"]
    assert log.receipt is not None
    assert log.receipt.complete
    check_dataset(tmp_path / "cells", frames)


def test_what_was_written_before_is_published_while_it_waits(tmp_path: Path) -> None:
    frames = frames_of(6, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:2])
    stall = disk.stall("pwritev", 1, part=STACK)
    append(log, frames[2:3], is_awaited=False)
    assert stall.entered.wait(20)
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    append(log, frames[3:], is_awaited=False)
    stall.go.set()
    wait_for(log, lambda: is_paused(log))
    assert log.wait_for_published(3)
    disk.mend()
    log.close()
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.parametrize("status", ["completed", "error", "canceled", "interrupted"])
def test_giving_up_closes_the_dataset_whole(tmp_path: Path, status) -> None:
    frames = frames_of(9, (320, 512))
    disk = ScriptedDisk()
    log = start_log_with_reserve(tmp_path / "cells", disk)
    append(log, frames[:4])
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    append(log, frames[4:], is_awaited=False)
    wait_for(log, lambda: is_paused(log))
    log.begin_close(status, "the producer is gone", sent=9)
    if status == "completed":
        assert not log.wait_until_finished(0.5)  # the producer waits: so does the log
        log.abandon("error", "out of patience")
    assert log.wait_until_finished(20)
    receipt = log.receipt
    assert receipt is not None
    assert receipt.status == ("error" if status == "completed" else status)
    assert (receipt.stored, receipt.sent) == (4, 9)
    assert [(gap.first, gap.count) for gap in receipt.missing] == [(4, 5)]
    assert "No space left" in receipt.missing[0].reason
    assert "No space left" in receipt.reason
    assert log.error is None
    assert not log_threads()
    assert not read_state(str(tmp_path / "cells")).state.writing
    assert (read_receipt(str(tmp_path / "cells")) == receipt) is (status != "interrupted")
    check_dataset(tmp_path / "cells", frames[:4], complete=status != "interrupted")


def test_frames_that_found_no_space_are_sent_again_after_an_interruption(tmp_path: Path) -> None:
    frames = frames_of(9, (320, 512))
    disk = ScriptedDisk()
    log = start_log_with_reserve(tmp_path / "cells", disk)
    append(log, frames[:4])
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    append(log, frames[4:], is_awaited=False)
    wait_for(log, lambda: is_paused(log))
    log.begin_close("interrupted", "the daemon was stopped")
    assert log.wait_until_finished(20)
    state = read_state(str(tmp_path / "cells"))
    with Log(tmp_path / "cells", spec_of(resume=True), memory=memory_of(), resume=state) as again:
        again.wait_until_open()
        assert again.received == 4
        append(again, frames[4:])
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.parametrize("part", [INDEX_NAME, journal.JOURNAL_NAME, STATE_NAME, RECEIPT_NAME])
def test_the_space_kept_for_the_end_is_given_up_last(tmp_path: Path, part: str) -> None:
    """Frames are on the disk already, only the small files find no space: the reserve is for them."""
    frames = frames_of(6, (320, 512))
    disk = ScriptedDisk()
    freed: list[bool] = []

    def free_reserve() -> None:
        freed.append(True)
        disk.mend()

    folder = tmp_path / "cells"
    log = Log(folder, spec_of(), memory=memory_of(), disk=disk, free_reserve=free_reserve)
    append(log, frames[:3])
    disk.fail("pwritev", code=errno.ENOSPC, part=part, for_good=True)
    append(log, frames[3:], is_awaited=False)
    log.begin_close()
    wait_for(log, lambda: bool(log.paused_why))
    assert not freed
    log.abandon("error", "out of patience")
    assert log.wait_until_finished(20)
    assert freed == [True]
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("completed", 6)  # nothing was left out after all
    check_dataset(folder, frames)


def test_appending_in_process_says_that_the_disk_is_full(tmp_path: Path) -> None:
    frames = frames_of(40, (320, 512))
    disk = ScriptedDisk()
    log = start_log_with_reserve(tmp_path / "cells", disk)
    append(log, frames[:2])
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    with pytest.raises(DiskFull) as caught:
        append(log, frames[2:3], is_awaited=False)
        wait_for(log, lambda: is_paused(log))
        for frame in frames[3:]:
            log.append(frame.header, frame.image, timeout_s=0.3)
    assert caught.value.number == 2
    with pytest.raises(DiskFull):
        log.close(patience_s=0.3)
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("error", 2)
    check_dataset(tmp_path / "cells", frames[:2])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_found_by_a_sync_is_as_a_failed_sync(tmp_path: Path, code: int) -> None:
    """As on NFS: the file is given up, and another one tried until there is space."""
    frames = frames_of(6, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:3])
    disk.fail("fdatasync", code=code, part=STACK, for_good=True)
    append(log, frames[3:], is_awaited=False)
    assert log.wait_for_published(6)
    log.close(patience_s=0.3)  # the first file cannot be finished: a warning
    assert len(stack_paths(tmp_path / "cells")) == 2
    check_dataset(tmp_path / "cells", frames)


def test_a_disk_that_stands_still_is_told_with_cause_and_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acqstream.storage.files.disk.STALL_S", 1e9)  # what is slow before is none of this
    frames = frames_of(3, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:1])
    stall = disk.stall("fdatasync", 1, part=STACK)
    append(log, frames[1:], is_awaited=False)
    assert stall.entered.wait(20)
    monkeypatch.setattr("acqstream.storage.files.disk.STALL_S", 0.2)
    while not (told := log.stall).startswith("fdatasync "):
        assert not log.is_finished
    assert re.fullmatch(r"fdatasync of cells_NDTiffStack\.tif takes \d+\.\d s", told)
    stall.go.set()
    log.close()
    assert log.stall == ""
    assert log.receipt is not None
    noted, *_ = [one for one in log.receipt.stalls if one.call == "fdatasync"]  # other calls may be as slow
    assert (noted.call, noted.file) == ("fdatasync", "cells_NDTiffStack.tif")
    assert noted.seconds >= 0.2
    assert [code for code, _, _ in log.notes.warnings] == ["disk_stalled"] * len(log.notes.stalls)
    saved = read_receipt(str(tmp_path / "cells"))
    assert saved is not None
    assert saved.stalls == log.receipt.stalls
