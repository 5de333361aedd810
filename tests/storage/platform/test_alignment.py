"""What direct I/O asks of a call. Runs everywhere."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import address_of, check_alignment, check_sectors

BLOCK = 4096


def test_complete_blocks_of_page_memory_pass() -> None:
    memory = PageMemory(4 * BLOCK).view
    check_alignment([memory[:BLOCK], memory[BLOCK : 3 * BLOCK]], 7 * BLOCK)
    check_alignment([], 0)
    check_alignment([memory[:0]], BLOCK)


@pytest.mark.parametrize(
    ("start", "length", "offset", "text"),
    [
        (0, BLOCK, 100, "offset 100"),
        (0, 100, 0, "a length of 100 bytes"),
        (8, BLOCK, 0, "memory at address 0x"),
        (512, BLOCK, 0, "memory at address 0x"),
        (0, BLOCK, 512, "offset 512"),
    ],
)
def test_a_call_that_breaks_a_condition_is_refused(start: int, length: int, offset: int, text: str) -> None:
    memory = PageMemory(4 * BLOCK).view
    with pytest.raises(OSError, match=text) as caught:
        check_alignment([memory[2 * BLOCK : 3 * BLOCK], memory[start : start + length]], offset)
    assert caught.value.errno == errno.EINVAL


def test_the_address_of_memory_that_cannot_be_written() -> None:
    array = np.zeros(100, np.uint8)
    assert address_of(array.data[3:].toreadonly()) == array.ctypes.data + 3
    assert address_of(b"abc") > 0


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_disks_of_common_sectors_take_direct_calls(sector_bytes: int) -> None:
    check_sectors(sector_bytes, "file")


@pytest.mark.parametrize(("sector_bytes", "text"), [(0, "does not report"), (8192, "8192"), (65536, "65536")])
def test_others_do_not_and_the_reason_is_given(sector_bytes: int, text: str) -> None:
    with pytest.raises(OSError, match=f"no direct I/O: .*{text}") as caught:
        check_sectors(sector_bytes, "file")
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, "file")
