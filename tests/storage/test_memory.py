from __future__ import annotations

import contextlib
import gc
import mmap
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from acqstream.storage.handover import map_memory
from acqstream.storage.page_memory import PageMemory
from tests.host_system import descriptors_of

MIB = 2**20
LENGTHS = [4096, 5000, 2 * MIB, 5 * MIB + 4096]

not_windows = pytest.mark.skipif(
    sys.platform == "win32", reason="asks the kernel of Linux; sections of Windows: test_windows_shared_memory.py"
)
shares = pytest.mark.skipif(not PageMemory(4096, shared=True).descriptor, reason="no memory is shared on this system")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shared", [False, True])
def test_zeroed_and_aligned(length: int, shared: bool) -> None:
    memory = PageMemory(length, shared=shared)
    array = np.frombuffer(memory.view, np.uint8)
    assert len(memory) == len(array) == length
    assert array.ctypes.data % mmap.PAGESIZE == 0
    assert not array.any()
    array[:] = 7
    assert (memory.view.format, memory.view.itemsize, memory.view.readonly) == ("B", 1, False)


@shares
@pytest.mark.parametrize("length", LENGTHS)
def test_another_process_sees_what_is_written(length: int) -> None:
    memory = PageMemory(length, shared=True)
    assert memory.descriptor is not None
    assert not memory.private_reason
    seen = map_memory(memory.descriptor)
    memory.view[-3:] = b"end"
    assert bytes(seen[length - 3 : length]) == b"end"
    assert seen.readonly


@shares
@not_windows
def test_nobody_resizes_it_or_writes_to_it() -> None:
    memory = PageMemory(2 * MIB, shared=True)
    assert memory.descriptor is not None
    for length in (MIB, 4 * MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, length)
    with pytest.raises(PermissionError):
        mmap.mmap(memory.descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(memory.descriptor, b"x", 0)


@shares
@not_windows
@pytest.mark.parametrize("length", [4096, 4 * MIB])
def test_it_lives_as_long_as_its_views_and_no_longer(length: int) -> None:
    memory = PageMemory(length, shared=True)
    descriptor = memory.descriptor
    assert descriptor is not None
    part = memory.view[length // 2 : length // 2 + 10]
    copy = os.dup(descriptor)
    inode = os.fstat(copy).st_ino
    del memory
    gc.collect()
    with contextlib.suppress(OSError):  # it is closed; another thread may have got its number meanwhile
        assert os.fstat(descriptor).st_ino != inode
    part[:3] = b"yes"
    assert os.pread(copy, 3, length // 2) == b"yes"
    os.close(copy)
    assert is_mapped(inode)
    del part
    gc.collect()
    assert not is_mapped(inode)


def is_mapped(inode: int) -> bool:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return any(int(line.split()[4]) == inode and "memfd:acqstream" in line for line in lines)


@shares
@not_windows
def test_a_large_one_begins_where_a_huge_page_can() -> None:
    memory = PageMemory(4 * MIB, shared=True)
    assert np.frombuffer(memory.view, np.uint8).ctypes.data % (2 * MIB) == 0


@pytest.mark.parametrize(
    "why", [pytest.param("no memfd", marks=not_windows), "machine", pytest.param("refused", marks=not_windows)]
)
def test_where_it_cannot_be_shared_it_is_private(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def refuse(_descriptor: int, _length: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    if why == "no memfd":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif why == "machine":
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    else:
        monkeypatch.setattr(os, "ftruncate", refuse)
    gc.collect()  # what other tests have left goes now
    before = descriptors_of("memfd:acqstream")
    memory = PageMemory(4096, shared=True)
    memory.view[:3] = b"yes"
    assert memory.descriptor is None
    assert {"no memfd": "memfd", "machine": "out of order", "refused": "Cannot allocate"}[why] in memory.private_reason
    assert descriptors_of("memfd:acqstream") <= before  # others may go meanwhile
