"""The memory budget: shares that are taken from the system while their acquisition runs."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import AcquisitionRefused, ConfigError
from acqstream.log import memory as memory_module
from acqstream.log.log import Log
from acqstream.log.memory import ALONE_BYTES, MIN_FRAMES, SHARE_STEP_BYTES, MemoryBudget, Share
from tests.log.make_frames import frames_of, spec_of
from tests.waiting import until

MIB = 2**20


def test_every_acquisition_gets_a_quarter_of_what_is_free() -> None:
    budget = MemoryBudget(64 * MIB)
    assert budget.lend().length == 16 * MIB
    assert budget.lend().length == 12 * MIB
    assert budget.used_bytes == budget.peak_bytes == 28 * MIB


def test_a_run_of_known_frames_that_no_view_follows_gets_less() -> None:
    budget = MemoryBudget(2048 * MIB)
    assert budget.lend(8 * MIB).length == ALONE_BYTES == 128 * MIB
    assert budget.lend(32 * MIB).length > 2 * ALONE_BYTES  # a few frames fit
    assert budget.lend(8 * MIB, is_followed=True).length > 2 * ALONE_BYTES
    assert budget.lend().length > 2 * ALONE_BYTES  # whatever comes, fits


def test_a_share_has_room_for_a_few_frames_of_the_size_that_is_known() -> None:
    budget = MemoryBudget(64 * MIB)
    share = budget.lend(4 * MIB)
    assert share.length >= MIN_FRAMES * 4 * MIB * 2
    assert len(share.view) == share.length


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    budget = MemoryBudget(32 * MIB)
    budget.lend()
    with pytest.raises(AcquisitionRefused) as info:
        budget.lend(8 * MIB)
    assert info.value.code == "denied"
    for number in (str(24 * MIB), str(32 * MIB), "1 acquisitions", "memory_mb"):
        assert number in str(info.value)
    assert budget.used_bytes == 8 * MIB


def test_a_budget_is_used_up_and_comes_back() -> None:
    budget = MemoryBudget(16 * MIB)
    shares = []
    with pytest.raises(AcquisitionRefused):
        while True:
            shares.append(budget.lend())
    assert len(shares) == 4
    peak = budget.peak_bytes
    for share in shares:
        share.close()
    assert budget.used_bytes == 0
    assert budget.peak_bytes == peak == 16 * MIB
    assert budget.lend().length == 4 * MIB


class Parts:
    """Of an acquisition: they refer to each other, as those of a log do."""

    def __init__(self, share: Share) -> None:
        self.view = share.view
        self.itself = self


def test_memory_of_ended_acquisitions_is_gone_before_another_one_takes_some() -> None:
    budget = MemoryBudget(64 * MIB)
    gc.disable()  # as if nothing else collected it
    try:
        for _ in range(8):
            share = budget.lend()
            memory = weakref.ref(share.view.obj)
            Parts(share)
            share.close()
            del share
            assert memory() is not None
            budget.lend().close()
            assert memory() is None
    finally:
        gc.enable()


def test_an_ended_log_lets_its_memory_go_without_a_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(None))
    budget = MemoryBudget(64 * MIB)
    share = budget.lend()
    memory = weakref.ref(share.view.obj)
    with Log(tmp_path / "cells", spec_of(), memory=share.view) as log:
        for frame in frames_of(5):
            log.append(frame.header, frame.image)
    assert log.receipt is not None
    assert log.receipt.stored == 5
    assert memory() is not None
    gc.disable()
    try:
        share.close()
        until(lambda: memory() is None, "its memory is gone")  # a thread may be about to end
    finally:
        gc.enable()
    budget.collect()
    assert collected == []


def test_memory_that_stays_in_use_is_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(None))
    budget = MemoryBudget(64 * MIB)
    share = budget.lend()
    parts = Parts(share)
    share.close()
    for _ in range(100):
        budget.collect()
    assert len(parts.view) == share.length
    assert 0 < len(collected) <= 10


def test_shares_are_memory_of_their_own() -> None:
    budget = MemoryBudget(32 * MIB)
    shares = [budget.lend() for _ in range(3)]
    for number, share in enumerate(shares):
        share.view[:] = bytes([number]) * share.length
    shares[1].close()
    shares[1] = budget.lend()
    shares[1].view[:] = b"\x01" * shares[1].length
    assert [set(share.view) for share in shares] == [{0}, {1}, {2}]


@given(steps=st.lists(st.one_of(st.none(), st.integers(0, 2 * MIB)), max_size=40), data=st.data())
def test_shares_never_exceed_the_budget(steps: list[int | None], data: st.DataObject) -> None:
    budget = MemoryBudget(33 * MIB)
    assert budget.budget_bytes == 32 * MIB
    shares: list[Share] = []
    for frame_bytes in steps:
        place = data.draw(st.integers(0, 2 * len(shares)))
        if place < len(shares):
            shares.pop(place).close()
            continue
        try:
            shares.append(budget.lend(frame_bytes))
        except AcquisitionRefused:
            assert shares  # an empty budget takes any of these
        assert all(share.length % SHARE_STEP_BYTES == 0 for share in shares)
        assert budget.used_bytes <= budget.budget_bytes
        assert budget.used_bytes == sum(share.length for share in shares) <= budget.peak_bytes


def present_bytes(share: Share) -> int:
    """Of a memory file: its pages that the system has."""
    assert share.memory is not None
    assert share.memory.descriptor is not None
    return os.fstat(share.memory.descriptor).st_blocks * 512


@pytest.mark.skipif(sys.platform != "linux", reason="pages of memory files are counted on Linux only")
def test_pages_come_in_the_background_before_they_are_used_and_keep_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_module, "PRESENT_STEP_BYTES", 2 * MIB)
    budget = MemoryBudget(128 * MIB)
    share = budget.lend()
    share.view[5 * MIB] = 7
    assert present_bytes(share) < share.length // 2
    share.bring_in(share.length)
    until(lambda: present_bytes(share) == share.length, "all of it")
    assert (share.view[5 * MIB], share.view[5 * MIB + 1], share.view[share.length - 1]) == (7, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is asked of /proc")
def test_a_budget_takes_nothing_at_rest_and_a_share_goes_back_to_the_system() -> None:
    def shared_bytes() -> int:
        return int(psutil.Process().memory_info().shared)

    before = shared_bytes()
    budget = MemoryBudget(512 * MIB)
    assert shared_bytes() < before + 8 * MIB
    shares = [budget.lend()]
    shares[0].bring_in(shares[0].length)
    until(lambda: shared_bytes() > before + 64 * MIB, "it is there")
    shares.pop().close()
    until(lambda: shared_bytes() < before + 16 * MIB, "the system has it again")


def test_that_the_system_has_no_memory_is_the_error_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(setting: str, needed_bytes: int) -> None:
        raise ConfigError(f"{setting} needs {needed_bytes} bytes, and none are left")

    budget = MemoryBudget(64 * MIB)
    monkeypatch.setattr(memory_module, "check_memory", refuse)
    with pytest.raises(AcquisitionRefused, match="no memory for this run: memory_mb needs 16777216 bytes") as info:
        budget.lend()
    assert info.value.code == "denied"
    assert budget.used_bytes == 0
    monkeypatch.undo()
    assert budget.lend().length == 16 * MIB
