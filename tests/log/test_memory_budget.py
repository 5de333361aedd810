"""The memory budget: shares of one region."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import AcquisitionRefused
from acqstream.log.memory import MIN_FRAMES, SHARE_STEP_BYTES, MemoryBudget, Share

MIB = 2**20


def test_every_acquisition_gets_a_quarter_of_what_is_free() -> None:
    budget = MemoryBudget(64 * MIB)
    assert budget.lend().length == 16 * MIB
    assert budget.lend().length == 12 * MIB
    assert budget.used_bytes == budget.peak_bytes == 28 * MIB


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
def test_shares_never_overlap_and_are_aligned(steps: list[int | None], data: st.DataObject) -> None:
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
        in_order = sorted((share.offset, share.offset + share.length) for share in shares)
        assert all(end <= start for (_, end), (start, _) in pairwise(in_order))
        assert all(value % SHARE_STEP_BYTES == 0 for pair in in_order for value in pair)
        assert all(end <= budget.budget_bytes for _, end in in_order)
        assert budget.used_bytes == sum(share.length for share in shares) <= budget.peak_bytes
