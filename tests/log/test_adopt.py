"""Frames that the log writes from memory of the producer's, without a copy."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from acqstream.log.log import Log
from tests.log.make_frames import (
    LEAST_LIMIT_BYTES,
    MIB,
    Frame,
    frame_of,
    frames_of,
    memory_of,
    spec_of,
    start_log,
)
from tests.log.read_back import check_dataset, read_journal, stack_paths
from tests.storage.scripted_disk import ScriptedDisk
from tests.waiting import until

STACK = "Stack.tif"
BATCH_SYNC = 2  # of the first stack: its header is forced first
LARGE = (512, 300)


class ProducersMemory:
    """Slots as a producer has them, and which of them the log has let go."""

    def __init__(self, count: int, slot_bytes: int = MIB, *, shift: int = 0) -> None:
        self._memory = memory_of(count * slot_bytes + 4096)
        self._slot_bytes = slot_bytes
        self._shift = shift
        self.released: list[int] = []

    def slot(self, number: int, length: int) -> memoryview:
        start = number * self._slot_bytes + self._shift
        return self._memory[start : start + length]

    def hand(self, log: Log, frame: Frame) -> None:
        number = frame.header.number
        slot = self.slot(number, frame.image.nbytes)
        slot[:] = frame.image.data.cast("B")
        array = np.frombuffer(slot, np.uint8)  # lives as long as the log keeps a view of it
        weakref.finalize(array, self.released.append, number)
        log.adopt(frame.header, array.data)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("<u2", (512, 512)),  # whole blocks
        ("<u2", (512, 300)),
        ("|u1", (700, 401)),  # ends within a block
        ("|u1", (300, 301, 3)),
        ("|u1", (64, 4097)),
        ("<u2", (30, 31)),  # packed: copied
    ],
)
def test_adopted_frames_come_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    frames = [frame_of(number, shape, dtype, metadata={"number": number}) for number in range(5)]
    memory = ProducersMemory(5)
    with start_log(tmp_path / "cells") as log:
        for frame in frames:
            memory.hand(log, frame)
    check_dataset(tmp_path / "cells", frames)
    until(lambda: sorted(memory.released) == [0, 1, 2, 3, 4], "the slots are let go")
    assert log.memory_peak_bytes <= 5 * 8192  # of 5 MiB that were written


def test_the_log_writes_from_where_the_pixels_are(tmp_path: Path) -> None:
    """What the slot holds when it is written is what gets to the disk, and its checksum tells."""
    frames = frames_of(3, LARGE)
    memory, disk = ProducersMemory(3), ScriptedDisk()
    stall = disk.stall("fdatasync", BATCH_SYNC, part=STACK)
    log = start_log(tmp_path / "cells", disk=disk)
    memory.hand(log, frames[0])
    assert stall.entered.wait(20)
    held = disk.stall("pwritev", part=STACK)
    memory.hand(log, frames[1])
    assert held.entered.wait(20)
    memory.hand(log, frames[2])
    memory.slot(2, 1)[0] ^= 1  # before its write
    held.go.set()
    stall.go.set()
    assert log.close(sent=3).status == "completed"
    assert log.receipt is not None
    (gap,) = log.receipt.missing
    assert (gap.first, gap.count, "its place in shared memory was changed" in gap.reason) == (2, 1, True)
    check_dataset(tmp_path / "cells", frames[:2])
    until(lambda: sorted(memory.released) == [0, 1, 2], "the slots are let go")


def test_a_slot_is_let_go_when_its_frame_is_published(tmp_path: Path) -> None:
    frames = frames_of(3, LARGE)
    memory, disk = ProducersMemory(3), ScriptedDisk()
    stall = disk.stall("fdatasync", BATCH_SYNC + 1, part=STACK)
    with start_log(tmp_path / "cells", disk=disk) as log:
        memory.hand(log, frames[0])
        assert log.wait_for_published(1)
        memory.hand(log, frames[1])
        assert stall.entered.wait(20)
        memory.hand(log, frames[2])
        until(lambda: bool(memory.released), "the slots are let go")
        released = list(memory.released)
        stall.go.set()
        assert released == [0]
    until(lambda: memory.released == [0, 1, 2], "the slots are let go")


def test_mixed_with_small_frames_and_others_that_are_copied(tmp_path: Path) -> None:
    frames = [frame_of(number, LARGE if number % 3 else (31, 33)) for number in range(60)]
    memory, shifted = ProducersMemory(60), ProducersMemory(60, shift=64)
    with start_log(tmp_path / "cells", limit=LEAST_LIMIT_BYTES) as log:
        for frame in frames:
            if frame.header.number % 4 == 0:
                log.append(frame.header, frame.image)
            else:
                (shifted if frame.header.number % 7 == 0 else memory).hand(log, frame)
                assert log.wait_for_published(frame.header.number - 8)
    assert len(stack_paths(tmp_path / "cells")) > 2
    check_dataset(tmp_path / "cells", frames)


@pytest.mark.parametrize("kind", ["fdatasync", "pwritev"])
def test_a_failed_stack_file_is_written_again_from_the_slots(tmp_path: Path, kind: str) -> None:
    frames = [frame_of(number, (700, 401), "|u1") for number in range(8)]
    memory, disk = ProducersMemory(8), ScriptedDisk()
    with start_log(tmp_path / "cells", disk=disk) as log:
        for frame in frames[:3]:
            memory.hand(log, frame)
        assert log.wait_for_published(3)
        disk.fail(kind, part=STACK)
        for frame in frames[3:]:
            memory.hand(log, frame)
    assert disk.delivered == 1
    assert len(stack_paths(tmp_path / "cells")) == 2
    check_dataset(tmp_path / "cells", frames)
    until(lambda: sorted(memory.released) == list(range(8)), "the slots are let go")


def test_a_slot_changed_between_two_files_is_found(tmp_path: Path) -> None:
    frames = frames_of(1, LARGE)
    memory, disk = ProducersMemory(1), ScriptedDisk()
    disk.fail("fdatasync", BATCH_SYNC, part=STACK)
    again = disk.stall("create", 2, part="Stack")
    log = start_log(tmp_path / "cells", disk=disk)
    memory.hand(log, frames[0])
    assert again.entered.wait(20)
    memory.slot(0, 1)[0] ^= 1
    again.go.set()
    assert [gap.first for gap in log.close(sent=1).missing] == [0]


def test_what_is_given_up_is_let_go(tmp_path: Path) -> None:
    frames = frames_of(4, LARGE)
    memory, disk = ProducersMemory(4), ScriptedDisk()
    log = start_log(tmp_path / "cells", disk=disk)
    memory.hand(log, frames[0])
    assert log.wait_for_published(1)
    disk.fail("pwritev", part="Stack", for_good=True)
    held = disk.stall("pwritev", part=STACK)
    for frame in frames[1:]:
        memory.hand(log, frame)
    held.go.set()
    assert log.wait_until_finished(20)
    assert log.error is not None
    assert log.receipt is not None
    assert log.receipt.stored == 1
    del log  # with its error, whose traceback has the bytes of the call that failed
    until(lambda: gc.collect() >= 0 and sorted(memory.released) == [0, 1, 2, 3], "the slots are let go")


def test_frames_without_a_checksum_are_copied(tmp_path: Path) -> None:
    """Nothing would tell that a slot was changed before it was written, or between that and the checksum."""
    frames = [frame_of(number, LARGE, checksum=number > 0) for number in range(2)]
    memory, disk = ProducersMemory(2), ScriptedDisk()
    held = disk.stall("pwritev", 2, part=STACK)  # the first one is of its header
    with start_log(tmp_path / "cells", disk=disk) as log:
        memory.hand(log, frames[0])
        memory.hand(log, frames[1])
        released = list(memory.released)
        memory.slot(0, 1)[0] ^= 1
        held.go.set()
    assert released == [0]
    check_dataset(tmp_path / "cells", frames)


def test_frames_without_a_checksum_get_one(tmp_path: Path) -> None:
    frame = frame_of(0, LARGE, checksum=False)
    memory = ProducersMemory(1)
    with start_log(tmp_path / "cells") as log:
        memory.hand(log, frame)
    assert log.receipt is not None
    assert log.receipt.without_checksum == 1
    assert np.array_equal(np.frombuffer(memory.slot(0, frame.image.nbytes), "<u2"), frame.image.ravel())
    check_dataset(tmp_path / "cells", [frame])


def test_nothing_but_the_frame_gets_into_the_file(tmp_path: Path) -> None:
    """Neither what lies behind it in the producer's memory, nor what the log's ring held before."""
    frames = [frame_of(number, (700, 401), "|u1") for number in range(12)]
    memory, used = ProducersMemory(12), memory_of(64 * 4096)
    used[:] = b"\xee" * len(used)
    memory._memory[:] = b"\xdd" * len(memory._memory)
    with Log(tmp_path / "cells", spec_of(), memory=used) as log:
        for frame in frames:
            memory.hand(log, frame)
            assert log.wait_for_published(frame.header.number + 1)
    (path,) = stack_paths(tmp_path / "cells")
    content = path.read_bytes()
    records = read_journal(tmp_path / "cells")
    for record in records[:-1]:
        end = int(record["offset"] + record["length"])
        assert not any(content[end : end + -end % 4096])
    assert b"\xdd" * 8 not in content
    assert b"\xee" * 8 not in content
