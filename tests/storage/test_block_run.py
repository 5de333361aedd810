"""Runs cut where the blocks of the disk begin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.storage.files.direct_file import SpareBlocks, cut_at_blocks
from acqstream.storage.files.read_file import BLOCK_BYTES
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import check_alignment

LENGTH = 12 * BLOCK_BYTES
lengths = st.one_of(st.integers(0, 40), st.integers(BLOCK_BYTES - 20, BLOCK_BYTES + 20), st.integers(0, LENGTH))


def pieces_of(lengths: list[int], offset: int, shift: int = 0) -> list[memoryview]:
    """Random bytes in pieces of memory of their own, each `shift` bytes further than as in the file."""
    random, pieces = np.random.default_rng(len(lengths)), []
    for length in lengths:
        memory = np.frombuffer(PageMemory(2 * BLOCK_BYTES + length).view, np.uint8)
        begin = (offset + shift) % BLOCK_BYTES
        memory[begin : begin + length] = random.integers(0, 256, length, np.uint8)
        pieces.append(memory[begin : begin + length].data)
        offset += length
    return pieces


@given(st.lists(lengths, max_size=8), st.integers(0, 3 * BLOCK_BYTES), st.integers(0, 3 * BLOCK_BYTES))
def test_the_middle_consists_of_blocks_and_the_rest_is_shorter(sizes: list[int], offset: int, least: int) -> None:
    content = pieces_of(sizes, offset)
    cut = cut_at_blocks(offset, content, least, SpareBlocks())
    begin, end = -(-offset // BLOCK_BYTES) * BLOCK_BYTES, (offset + sum(sizes)) // BLOCK_BYTES * BLOCK_BYTES
    assert (cut is None) == (sum(sizes) < least or end <= begin)
    if cut is None:
        return
    assert (cut.head[0], cut.middle[0], cut.tail[0]) == (offset, begin, end)
    check_alignment([memoryview(piece) for piece in cut.middle[1]], begin)
    assert [sum(map(len, part)) for _, part in cut] == [begin - offset, end - begin, offset + sum(sizes) - end]
    assert b"".join(bytes(piece) for _, part in cut for piece in part) == b"".join(map(bytes, content))


@given(st.lists(lengths, max_size=8), st.integers(0, BLOCK_BYTES), st.integers(1, BLOCK_BYTES - 1))
def test_memory_that_lies_otherwise_is_not_cut(sizes: list[int], offset: int, shift: int) -> None:
    if any(sizes):
        assert cut_at_blocks(offset, pieces_of(sizes, offset, shift), 0, SpareBlocks()) is None


def test_only_blocks_in_several_pieces_are_copied() -> None:
    content = pieces_of([3 * BLOCK_BYTES + 100, 3 * BLOCK_BYTES], 16)
    cut = cut_at_blocks(16, content, 0, SpareBlocks())
    assert cut is not None
    first, copied, last = (np.frombuffer(piece, np.uint8) for piece in cut.middle[1])
    assert [len(piece) // BLOCK_BYTES for piece in (first, copied, last)] == [2, 1, 2]
    assert np.shares_memory(first, np.frombuffer(content[0], np.uint8))
    assert np.shares_memory(last, np.frombuffer(content[1], np.uint8))
    assert cut_at_blocks(16, content, 0, None) is None  # a system that writes piece by piece
    whole = cut_at_blocks(0, pieces_of([2 * BLOCK_BYTES] * 2, 0), 0, None)
    assert whole is not None
    assert len(whole.middle[1]) == 2


@pytest.mark.parametrize("count", [1, 5])
def test_spare_blocks_are_taken_once(count: int) -> None:
    spare = SpareBlocks()
    first = np.frombuffer(spare.take(count), np.uint8)
    assert np.shares_memory(first, np.frombuffer(spare.take(1), np.uint8))
    assert len(spare.take(count + 1)) >= (count + 1) * BLOCK_BYTES


def test_no_spare_block_is_taken_without_one_to_copy() -> None:
    class NoSpare(SpareBlocks):
        def take(self, count: int) -> memoryview:
            raise AssertionError(f"{count} blocks were taken")

    assert cut_at_blocks(0, pieces_of([2 * BLOCK_BYTES] * 2, 0), 0, NoSpare()) is not None
    assert cut_at_blocks(16, pieces_of([100] * 90, 16, 1), 0, NoSpare()) is None  # memory that lies otherwise
