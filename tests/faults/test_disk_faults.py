"""Every disk call of a short run fails in turn, once or for good: what was published stays readable and right."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.pipeline.recovery import recover
from acqstream.pipeline.state_file import STATE_NAME, read_state
from tests.pipeline.make_frames import Frame, frame_of, log_threads, start_log
from tests.pipeline.read_back import check_dataset, check_ndstorage, check_ours
from tests.storage.scripted_disk import ANY, ScriptedDisk

LIMIT_BYTES = 7_600_000  # seven of the large frames in a stack file
FRAMES = [frame_of(number, (320, 512) if number % 3 else (9, 11)) for number in range(13)]


def run_log(folder: Path, disk: ScriptedDisk) -> tuple[int, bool]:
    """A run with a roll-over, in step with the disk; how many frames were published, and whether it went well."""
    log = start_log(folder, disk=disk, limit=LIMIT_BYTES, memory_bytes=2**21, durability="batch")
    try:
        log.wait_until_open()
        for frame in FRAMES:
            log.append(frame.header, frame.image)
            if frame.header.number % 4 == 3:
                log.wait_for_published(frame.header.number + 1)
        log.set_display({"Gamma": 1})
        log.close()
    except AcqStreamError:
        log.begin_close()
        log._thread.join()
        assert log.error is not None
    assert log.is_finished
    assert log.receipt is not None
    published = log.cursors().published
    assert log.cursors().durable <= published == log.receipt.stored
    missing = sum(gap.count for gap in log.receipt.missing)
    assert published + missing == log.cursors().received
    return published, log.error is None


def test_the_run_without_faults(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    assert run_log(tmp_path / "cells", disk) == (len(FRAMES), True)
    check_dataset(tmp_path / "cells", FRAMES)
    assert len(list((tmp_path / "cells").glob("*.tif"))) == 2
    assert not disk._names  # every descriptor is closed


def check_readable(folder: Path, frames: list[Frame]) -> None:
    """The published frames, and no others, for our reader and another one."""
    if not frames and not (folder / "NDTiff.index").exists():
        return
    try:
        with acqstream.open(folder) as dataset:
            complete = dataset.complete
    except DatasetError:
        assert not frames
        return
    check_ours(folder, frames, complete=complete)
    if frames:
        check_ndstorage(folder, frames)


def survive(folder: Path, nth: int, code: int, *, for_good: bool) -> int:
    """One run with one fault; how often the fault was delivered."""
    disk = ScriptedDisk()
    disk.fail(ANY, nth, code, for_good=for_good)
    published, _ = run_log(folder, disk)
    place = f"call {nth}: {disk.calls[min(nth, len(disk.calls)) - 1]}"
    assert not log_threads(), place
    assert not disk._names, f"{place}: left open"
    check_readable(folder, FRAMES[:published])
    if (folder / STATE_NAME).exists() and read_state(str(folder)).state.writing:
        report = recover(folder)
        assert report is not None, place
        assert published <= report.published <= len(FRAMES), place
        check_dataset(folder, FRAMES[: report.published], complete=False, oracles=False)
    return disk.delivered


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_good", [False, True])
def test_every_call_fails_in_turn(tmp_path: Path, code: int, for_good: bool) -> None:
    disk = ScriptedDisk()
    run_log(tmp_path / "cells", disk)
    tried = range(1, len(disk.calls) + 1, 1 if code == errno.EIO else 3)
    delivered = sum(survive(tmp_path / f"run{nth}", nth, code, for_good=for_good) > 0 for nth in tried)
    assert delivered > 0.9 * len(tried)  # batches differ from run to run, and so does the number of calls


@pytest.mark.parametrize("for_good", [False, True])
def test_some_calls_fail(tmp_path: Path, for_good: bool) -> None:
    """As above, a sample for every run of the tests."""
    delivered = [survive(tmp_path / f"run{nth}", nth, errno.EIO, for_good=for_good) for nth in range(1, 80, 6)]
    assert delivered.count(0) <= 2
