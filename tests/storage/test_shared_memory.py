"""Memory that one process owns and another one writes from."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acqstream.storage.shared_memory import PAGE_BYTES, make_shared_memory, map_shared_memory

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory files here")


def test_what_one_writes_the_other_reads() -> None:
    pages, descriptor = make_shared_memory(3 * PAGE_BYTES)
    view = map_shared_memory(descriptor)
    os.close(descriptor)
    pages[PAGE_BYTES : PAGE_BYTES + 5] = b"hello"
    assert (len(view), bytes(view[PAGE_BYTES : PAGE_BYTES + 6])) == (3 * PAGE_BYTES, b"hello\0")
    assert view.readonly
    del pages
    assert bytes(view[PAGE_BYTES : PAGE_BYTES + 5]) == b"hello"  # it lives as long as it is mapped


def test_large_memory_lies_in_huge_pages_where_the_system_has_them() -> None:
    """On both sides: direct writes take thrice the processor time from small pages."""
    pages, descriptor = make_shared_memory(8 * 2**20)
    view = map_shared_memory(descriptor)
    os.close(descriptor)
    assert bytes(view) == bytes(8 * 2**20)  # read once, so that all of it is mapped
    for one in (pages, view):
        assert np.frombuffer(one, np.uint8).ctypes.data % 2**21 == 0
    if _huge_bytes() == 0:
        pytest.skip("this system puts no memory files into huge pages")
    assert _huge_bytes() >= 2 * 8 * 2**20


def _huge_bytes() -> int:
    """Of memory files that this process has mapped as huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("ShmemPmdMapped:"))


def test_it_keeps_its_size_and_nobody_else_writes() -> None:
    _, descriptor = make_shared_memory(2 * PAGE_BYTES)
    for size in (0, PAGE_BYTES, 3 * PAGE_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, PAGE_BYTES, flags=mmap.MAP_SHARED)
    with pytest.raises(PermissionError):
        os.write(descriptor, b"x")
    os.close(descriptor)


def test_its_owner_cannot_take_pages_away() -> None:
    """Else who maps it would be given new ones, of its own memory, or none."""
    kept, descriptor = make_shared_memory(2 * PAGE_BYTES)
    map_shared_memory(descriptor)
    libc = ctypes.CDLL(None, use_errno=True)
    address = np.frombuffer(kept, np.uint8).ctypes.data
    assert libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(2 * PAGE_BYTES), mmap.MADV_REMOVE) == -1
    assert ctypes.get_errno() == errno.EPERM
    os.close(descriptor)
    descriptor = os.memfd_create("a test", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(descriptor, 0, 2 * PAGE_BYTES)
    pages = mmap.mmap(descriptor, 2 * PAGE_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    with pytest.raises(ValueError, match="not sealed"):
        map_shared_memory(descriptor)
    pages.madvise(mmap.MADV_REMOVE)  # these seals allow it
    os.close(descriptor)


def test_it_is_looked_at_after_it_was_found_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may seal it at the last moment, when pages of it are gone."""
    descriptor = os.memfd_create("a test", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(descriptor, 0, 2 * PAGE_BYTES)
    pages = mmap.mmap(descriptor, 2 * PAGE_BYTES)
    ask = fcntl.fcntl

    def seal_late(number: int, command: int, *more: int) -> int:
        if command == fcntl.F_GET_SEALS:
            pages.madvise(mmap.MADV_REMOVE)
            ask(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10)
        return ask(number, command, *more)

    monkeypatch.setattr(fcntl, "fcntl", seal_late)
    with pytest.raises(ValueError, match="only 0 of its 8192 bytes are there"):
        map_shared_memory(descriptor)
    os.close(descriptor)


def test_memory_that_there_is_not_is_an_error_and_no_crash() -> None:
    gc.collect()  # what other tests have left goes now
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match=f"{2**50} bytes wanted") as caught:
        make_shared_memory(2**50)
    assert caught.value.errno == errno.ENOMEM
    assert os.listdir("/proc/self/fd") == before


def test_a_limit_of_the_address_space_is_an_error() -> None:
    code = (
        "import resource; from acqstream.storage.shared_memory import make_shared_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
        "try: make_shared_memory(2**30)\n"
        "except OSError as error: print('refused', error.errno, len(__import__('os').listdir('/proc/self/fd')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"refused {errno.ENOMEM} 4\n"  # the three of every process, and that of the listing
