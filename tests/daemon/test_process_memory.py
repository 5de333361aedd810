"""Memory in use: what is touched counts, what is announced or free does not."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from acqstream.daemon.connection_guard import ProcessMemory

MIB = 2**20


@pytest.fixture
def memory():
    one = ProcessMemory()
    if not one.is_possible:
        pytest.skip("needs Linux and glibc 2.33")
    yield one
    one.close()
    assert one.used_bytes() == 0


def test_touched_memory_counts_until_it_is_free(memory: ProcessMemory) -> None:
    before = memory.used_bytes()
    # Not from the heap, where tests before this one may have left touched blocks that are free.
    with mmap.mmap(-1, 100 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as large:
        assert memory.used_bytes() - before < 50 * MIB
        large.write(bytes(100 * MIB))
        assert memory.used_bytes() - before > 80 * MIB
    assert memory.used_bytes() - before < 50 * MIB


def test_free_blocks_that_the_heap_keeps_do_not_count(memory: ProcessMemory) -> None:
    before = memory.used_bytes()
    blocks = [np.ones(16 * 2**10, np.uint8) for _ in range(6400)]
    last = np.ones(16 * 2**10, np.uint8)  # keeps the heap from shrinking
    assert memory.used_bytes() - before > 80 * MIB
    blocks.clear()
    assert memory.used_bytes() - before < 50 * MIB
    del last
