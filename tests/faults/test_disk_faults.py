"""Every disk call of a short run fails in turn, once or for good: what was published stays readable and right."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import AcqStreamError, DatasetError, DiskFull, WriterBehind
from acqstream.integrity.recover import recover
from acqstream.integrity.verify import verify
from acqstream.log.state_file import STATE_NAME, read_state
from acqstream.model.receipt import UNFORCED
from acqstream.model.state import AcquisitionState
from tests.log.make_frames import Frame, frame_of, log_threads, start_log
from tests.log.read_back import check_dataset, check_ndstorage, check_ours
from tests.storage.scripted_disk import ANY, ScriptedDisk

PATIENCE_S = 0.05  # with a disk that fails
WELL_S = 20.0  # with one that does not: however slow the machine is
LIMIT_BYTES = 7_600_000  # seven of the large frames in a stack file
FRAMES = [frame_of(number, (320, 512) if number % 3 else (9, 11)) for number in range(13)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.log.threads.RETRY_S", 0.02)
    monkeypatch.setattr("acqstream.log.log.RETRY_S", 0.02)
    monkeypatch.setattr("acqstream.log.writer.BATCH_INTERVAL_S", 0.002)  # lone frames wait for no timer


def run_log(folder: Path, disk: ScriptedDisk, patience_s: float = WELL_S) -> tuple[int, bool]:
    """A run with a roll-over, in step with the disk; how many frames were published, and whether it went well."""
    log = start_log(folder, disk=disk, limit=LIMIT_BYTES, memory_bytes=2**21, durability="batch")
    told: AcqStreamError | None = None
    try:
        log.wait_until_open()
        for frame in FRAMES:
            log.append(frame.header, frame.image, timeout_s=patience_s)
            if frame.header.number % 4 == 3:
                log.wait_for_published(frame.header.number + 1, patience_s)
        log.set_display({"Gamma": 1})
        log.close(patience_s=patience_s)
    except AcqStreamError as error:
        told = error
        log.begin_close("error", "given up")
        log.wait_until_finished()
    assert told is None or log.error is not None or isinstance(told, DiskFull | WriterBehind)
    assert log.is_finished
    assert log.receipt is not None
    published = log.cursors().published
    assert log.cursors().durable == log.receipt.stored <= published
    missing = sum(gap.count for gap in log.receipt.missing)
    assert log.receipt.stored + missing == log.cursors().received
    unforced = [gap.count for gap in log.receipt.missing if gap.reason == UNFORCED]
    assert sum(unforced) == published - log.receipt.stored
    assert not unforced or log.receipt.status == "failed"
    return published, log.receipt.complete


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


def survive(folder: Path, disk: ScriptedDisk, place: str) -> None:
    """One run on a disk with faults; what is there afterwards is right, and recovery agrees."""
    published, is_well = run_log(folder, disk, PATIENCE_S)
    assert not log_threads(), place
    assert not disk._names, f"{place}: left open"
    check_readable(folder, FRAMES[:published])
    if is_well:
        assert published == len(FRAMES), place
    if not (folder / STATE_NAME).exists():
        return
    state = read_state(str(folder)).state
    if state is AcquisitionState.FAILED:
        problems = verify(folder).problems
        assert all("before the last frames were forced" in problem.text for problem in problems), (place, problems)
        assert recover(folder) is None
    if state.writing or state is AcquisitionState.FAILED:
        report = recover(folder, is_resumed=True)
        assert report is not None, place
        assert published <= report.published <= len(FRAMES), place
        check_dataset(folder, FRAMES[: report.published], complete=False, oracles=False)


def fail_call(folder: Path, nth: int, code: int, *, for_good: bool) -> int:
    """A run whose nth call fails; how often it did."""
    disk = ScriptedDisk()
    disk.fail(ANY, nth, code, for_good=for_good)
    survive(folder, disk, f"call {nth} with {errno.errorcode[code]}")
    return disk.delivered


def count_calls(folder: Path, *kinds: str) -> int:
    disk = ScriptedDisk()
    run_log(folder, disk)
    return len(disk.of(*kinds)) if kinds else len(disk.calls)


@pytest.mark.thinned(2)
@pytest.mark.promise("failing-disk-call")
@pytest.mark.slow
@pytest.mark.timeout_s(240)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("for_good", [False, True])
def test_every_call_fails_in_turn(tmp_path: Path, code: int, for_good: bool) -> None:
    tried = range(1, count_calls(tmp_path / "cells") + 1)
    delivered = sum(fail_call(tmp_path / f"run{nth}", nth, code, for_good=for_good) > 0 for nth in tried)
    assert delivered > 0.9 * len(tried)  # batches differ from run to run, and so does the number of calls


@pytest.mark.thinned(2)
@pytest.mark.promise("failing-disk-call")
@pytest.mark.slow
@pytest.mark.timeout_s(240)
@pytest.mark.parametrize("for_good", [False, True])
def test_every_write_is_short_in_turn(tmp_path: Path, for_good: bool) -> None:
    """A short write is no error: the rest is written."""
    tried = range(1, count_calls(tmp_path / "cells", "pwritev") + 1)
    delivered = 0
    for nth in tried:
        disk = ScriptedDisk()
        fault = disk.shorten_from(nth, 5000 if nth % 2 else 4096, for_good=for_good)
        published, is_well = run_log(tmp_path / f"run{nth}", disk)
        assert (published, is_well) == (len(FRAMES), True), f"write {nth}"
        check_dataset(tmp_path / f"run{nth}", FRAMES, oracles=False)
        delivered += fault.delivered > 0
    assert delivered > 0.8 * len(tried)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ESTALE, errno.EFBIG, errno.ENODEV])
@pytest.mark.parametrize("for_good", [False, True])
def test_some_calls_fail(tmp_path: Path, code: int, for_good: bool) -> None:
    """As above, a sample for every run of the tests, with the errors of disks and mounts that go away."""
    delivered = [fail_call(tmp_path / f"run{nth}", nth, code, for_good=for_good) for nth in range(1, 80, 6)]
    assert delivered.count(0) <= 2
