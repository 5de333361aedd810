"""Memory that a producer owns and the daemon writes from: a sealed memory file (Linux).

It has no name and lives as long as anybody has it open or mapped. The seals promise whoever maps it that it neither
shrinks nor grows nor loses pages, so that no access can fail (memfd_create(2), "File sealing").
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np

from acqstream.storage.huge_pages import map_file

PAGE_BYTES = 4096
_F_SEAL_SHRINK, _F_SEAL_GROW = 0x2, 0x4
_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1: nobody maps it writable after its owner, and no pages are taken out of it
_SEALS = _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_FUTURE_WRITE


def make_shared_memory(length: int) -> tuple[memoryview, int]:
    """`length` bytes (whole pages) that are there, sealed, and a descriptor to hand over. Raises OSError."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memory files that can be sealed (memfd)")
    import fcntl

    if length > (available := _available_bytes()):  # the system would look for it until it kills somebody
        raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {length} bytes wanted, {available} available")
    descriptor = os.memfd_create("acqstream-producer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, length)
        pages = map_file(descriptor, length, is_ours=True)
        os.posix_fallocate(descriptor, 0, length)  # all of it now: a page that is missing later could not be reported
        np.frombuffer(pages, dtype=np.uint8)[::PAGE_BYTES] = 0  # no `put` waits for one either
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return pages, descriptor


def map_shared_memory(descriptor: int) -> memoryview:
    """All of a producer's memory, read-only. The descriptor may be closed.

    Raises OSError, and ValueError for what could fail later: memory that is not sealed, not there, or no memory.
    """
    import fcntl

    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"it is no memory file that can be sealed: {error}") from error
    if seals & _SEALS != _SEALS:
        raise ValueError("it is not sealed against being shrunk, grown and mapped writable again")
    status = os.fstat(descriptor)  # now it stays so
    if status.st_size < PAGE_BYTES or status.st_size % PAGE_BYTES:
        raise ValueError(f"it has {status.st_size} bytes; expected whole pages of {PAGE_BYTES}, at least one")
    if status.st_blocks * 512 < status.st_size:
        raise ValueError(f"only {status.st_blocks * 512} of its {status.st_size} bytes are there")
    return map_file(descriptor, status.st_size, is_ours=False)


def _available_bytes() -> int:
    """Memory that can be had without swapping, as the kernel estimates it."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize
