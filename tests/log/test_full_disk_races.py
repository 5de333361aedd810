"""A full disk together with something else: a failed sync, a wrong checksum, an end, a start."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.log.threads import SpaceGate
from acqstream.log.writer import Writer
from acqstream.model.state import AcquisitionState
from tests.log.make_frames import MIB, append, frames_of, memory_of, spec_of, start_log, wait_for
from tests.log.read_back import check_dataset, stack_paths
from tests.storage.scripted_disk import ScriptedDisk

STACK = "Stack.tif"
LIMIT_BYTES = 7_600_000  # seven of the large frames in a stack file
WAIT_S = 20.0


class HookedDisk(ScriptedDisk):
    """Asks a function of the test before writes and syncs: kind, file name, how many such calls on files so named."""

    def __init__(self, hook: Callable[[str, str, int], None]) -> None:
        super().__init__()
        self._hook = hook
        self._counts: dict[tuple[str, str], int] = {}

    def _ask(self, kind: str, fd: int) -> None:
        name = os.path.basename(self._names[fd])
        count = self._counts[kind, name] = self._counts.get((kind, name), 0) + 1
        self._hook(kind, name, count)

    def pwritev(self, fd, buffers, offset):
        self._ask("pwritev", fd)
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd):
        self._ask("fdatasync", fd)
        super().fdatasync(fd)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def is_paused(log: Log) -> bool:
    return log.state is AcquisitionState.PAUSED


def journal_numbers(folder: Path) -> list[int]:
    content = (folder / journal.JOURNAL_NAME).read_bytes()[journal.HEADER_BYTES :]
    numbers: list[int] = np.frombuffer(content, journal.RECORD_DTYPE)["number"].tolist()
    return numbers


def interrupted(folder: Path, log: Log) -> Log:
    """The log ends as interrupted; a new one goes on with its dataset."""
    log.begin_close("interrupted", "stopped")
    assert log.wait_until_finished(WAIT_S)
    assert log.receipt is not None
    assert log.receipt.status == "interrupted"
    state = read_state(str(folder))
    return Log(folder, spec_of(resume=True), memory=memory_of(), resume=state, stack_limit_bytes=LIMIT_BYTES)


def test_a_failed_sync_whose_new_file_is_full_after_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What found room is committed while the rest waits; the next commit does not overtake it."""
    monkeypatch.setattr("acqstream.log.writer.WRITE_BYTES", 300_000)  # one large frame a call
    rolls_over = threading.Event()
    wait_until_idle = Writer._wait_until_idle

    def note(writer: Writer) -> None:
        rolls_over.set()
        wait_until_idle(writer)

    monkeypatch.setattr(Writer, "_wait_until_idle", note)
    frames = frames_of(12, (320, 512))
    first_sync, second_sync, go = threading.Event(), threading.Event(), threading.Event()
    slow_go, full = threading.Event(), threading.Event()
    full.set()

    def hook(kind: str, name: str, count: int) -> None:
        if (kind, name, count) == ("fdatasync", "cells_NDTiffStack.tif", 4):
            first_sync.set()
            assert go.wait(WAIT_S)
            raise OSError(errno.EIO, "Input/output error")
        if (kind, name) == ("pwritev", "cells_NDTiffStack_1.tif") and count > 1 and full.is_set():
            raise no_space()
        if (kind, name, count) == ("fdatasync", "cells_NDTiffStack_1.tif", 1):
            second_sync.set()
            assert slow_go.wait(WAIT_S)

    log = start_log(tmp_path / "cells", disk=HookedDisk(hook), limit=LIMIT_BYTES, memory_bytes=8 * MIB)
    append(log, frames[:3])
    append(log, frames[3:4], is_awaited=False)
    assert first_sync.wait(WAIT_S)
    rolls_over.clear()
    append(log, frames[4:9], is_awaited=False)
    assert rolls_over.wait(WAIT_S)  # it waits for that commit
    go.set()
    assert second_sync.wait(WAIT_S)
    full.clear()
    append(log, frames[9:], is_awaited=False)
    wait_for(log, lambda: not log.paused_why)  # the writer goes on beside the slow sync
    slow_go.set()
    log.close()
    assert log.receipt is not None
    assert log.receipt.complete
    assert journal_numbers(tmp_path / "cells") == list(range(12))
    check_dataset(tmp_path / "cells", frames)


def test_a_wrong_checksum_in_a_batch_whose_sync_fails(tmp_path: Path) -> None:
    frames = frames_of(8, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk, memory_bytes=8 * MIB)
    append(log, frames[:2])
    stall = disk.stall("fdatasync", 1, part=STACK)
    disk.fail("fdatasync", 1, part=STACK)
    log.append(frames[2].header._replace(checksum=1), frames[2].image)
    assert stall.entered.wait(WAIT_S)
    append(log, frames[3:], is_awaited=False)
    stall.go.set()
    log.close()
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored, log.receipt.refused) == ("completed", 7, 1)
    assert log.receipt.missing[0].first == 2
    check_dataset(tmp_path / "cells", frames[:2] + frames[3:], tiff_pages=False)


def test_the_loop_lets_go_while_the_gate_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of(6, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:2])
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    append(log, frames[2:3], is_awaited=False)
    wait_for(log, lambda: is_paused(log))
    log.hold("the last bytes are kept")
    read = SpaceGate.__dict__["reason"].fget
    asked, go = threading.Event(), threading.Event()
    loop = threading.Thread(target=log.hold, args=("",))

    def reason(gate: SpaceGate) -> str:
        why: str = read(gate)
        if threading.current_thread() is loop and not asked.is_set():
            asked.set()
            go.wait(1.0)  # another thread would have its turn here, if it could
        return why

    monkeypatch.setattr(SpaceGate, "reason", property(reason))
    loop.start()
    assert asked.wait(WAIT_S)
    disk.mend()
    loop.join(WAIT_S)
    wait_for(log, lambda: not log._parts.intake.window.is_held)  # the window moves again
    append(log, frames[3:])
    log.close()
    check_dataset(tmp_path / "cells", frames)


def test_giving_up_with_journal_and_stack_both_out_of_space(tmp_path: Path) -> None:
    frames = frames_of(9, (320, 512))
    disk = ScriptedDisk()
    ended = threading.Event()

    def on_change() -> None:
        if threading.current_thread().name.startswith("commit-") and ended.is_set():
            writing.join(0.5)  # the writer has its turn before this thread has cleared its batch

    log = Log(tmp_path / "cells", spec_of(), memory=memory_of(), disk=disk, on_change=on_change)
    writing = log._parts.thread
    append(log, frames[:3])
    disk.fail("pwritev", code=errno.ENOSPC, part=journal.JOURNAL_NAME, for_good=True)
    append(log, frames[3:4], is_awaited=False)
    wait_for(log, lambda: is_paused(log))
    disk.fail("pwritev", code=errno.ENOSPC, part=STACK, for_good=True)
    log.skip(4, 1, "camera")
    append(log, frames[5:6], is_awaited=False)
    ended.set()
    log.begin_close("interrupted", "the daemon was stopped")
    assert log.wait_until_finished(WAIT_S)
    assert log.error is None
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("interrupted", 3)


@pytest.mark.parametrize("fault", ["header at the close", "two files without a frame"])
def test_a_dataset_without_frames_is_gone_on_with_past_its_first_roll_over(tmp_path: Path, fault: str) -> None:
    folder, frames = tmp_path / "cells", frames_of(20, (320, 512))
    disk = ScriptedDisk()
    log = Log(folder, spec_of(), memory=memory_of(), disk=disk, stack_limit_bytes=LIMIT_BYTES)
    log.wait_until_open()
    if fault == "header at the close":
        disk.fail("pwritev", 1, errno.EIO, part="Stack.tif.part")
    else:
        disk.fail("pwritev", 2, errno.EIO, part=STACK)  # the first is the header
        disk.fail("pwritev", 2, errno.ENOSPC, part="Stack_1.tif", for_good=True)
        append(log, frames[:1], is_awaited=False)
        wait_for(log, lambda: is_paused(log))
    again = interrupted(folder, log)
    append(again, frames)
    again.close()
    check_dataset(folder, frames)


def test_going_on_while_there_is_no_space_for_a_stack_file(tmp_path: Path) -> None:
    folder, frames = tmp_path / "cells", frames_of(6, (320, 512))
    log = start_log(folder)
    append(log, frames[:3])
    log.begin_close("interrupted", "stopped")
    assert log.wait_until_finished(WAIT_S)
    disk = ScriptedDisk()
    disk.fail("create", code=errno.ENOSPC, part="Stack_1.tif", for_good=True)
    state = read_state(str(folder))
    again = Log(folder, spec_of(resume=True), memory=memory_of(), disk=disk, resume=state)
    append(again, frames[3:], is_awaited=False)
    wait_for(again, lambda: is_paused(again))
    disk.mend()
    again.close()
    check_dataset(folder, frames)


def test_a_sync_that_keeps_finding_no_space_leaves_no_files_behind(tmp_path: Path) -> None:
    folder, frames = tmp_path / "cells", frames_of(6, (320, 512))
    full = threading.Event()
    tries: list[str] = []

    def hook(kind: str, name: str, count: int) -> None:
        if full.is_set() and kind == "fdatasync" and name.endswith(".tif"):  # headers still fit, frames do not
            tries.append(name)
            raise no_space()

    log = start_log(folder, disk=HookedDisk(hook))
    append(log, frames[:3])
    full.set()
    append(log, frames[3:4], is_awaited=False)
    wait_for(log, lambda: len(set(tries)) > 4 or len(tries) > 8)
    assert len(stack_paths(folder)) < 5
    full.clear()
    append(log, frames[4:])
    log.close()
    check_dataset(folder, frames)


@pytest.mark.parametrize("name", [journal.JOURNAL_NAME, INDEX_NAME])
def test_a_sync_of_the_small_files_without_space_is_a_failed_sync(tmp_path: Path, name: str) -> None:
    """The kernel tells it once: a second try would say that all is well."""
    frames = frames_of(6, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk, durability="close")
    append(log, frames)
    disk.fail("fdatasync", 1, errno.ENOSPC, part=name)
    log.begin_close("interrupted", "stopped")
    assert log.wait_until_finished(WAIT_S)
    assert log.receipt is not None
    assert log.receipt.status == "failed"
    assert log.cursors().durable == 0


def test_an_index_without_space_and_a_journal_that_cannot_be_cut(tmp_path: Path) -> None:
    """Journal and index would not say the same: nobody may go on with that."""
    frames = frames_of(4, (320, 512))
    disk = ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    append(log, frames[:3])
    disk.fail("pwritev", 1, errno.ENOSPC, part=INDEX_NAME, for_good=True)
    disk.fail("truncate", 1, errno.ENOSPC, part=journal.JOURNAL_NAME)
    append(log, frames[3:], is_awaited=False)
    wait_for(log, lambda: is_paused(log))
    log.begin_close("interrupted", "stopped")
    assert log.wait_until_finished(WAIT_S)
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("failed", 3)
