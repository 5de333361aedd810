"""What direct I/O asks of offset, length and memory.

Linux and Windows refuse a call that breaks it; Wine and file systems in memory do not, so each call is checked here
before the system gets it where its own check cannot be relied on.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import numpy as np

DIRECT_STEP_BYTES = 4096
"""Offset, length and address of direct calls are multiples of this one. Disks have sectors of 512 or 4096 bytes."""


def address_of(buffer: memoryview | bytes) -> int:
    """The address of the first byte of a buffer that is not empty; the caller keeps the buffer."""
    # By numpy, because ctypes gives no address of memory that cannot be written.
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


def check_alignment(buffers: Sequence[memoryview | bytes], offset: int) -> None:
    """Raises OSError (EINVAL) unless offset, lengths and addresses are multiples of DIRECT_STEP_BYTES."""
    # Sectors of 4096 bytes are the rule, whatever the disk at hand would take: a dataset may be recorded to any.
    problems = [f"offset {offset}"] if offset % DIRECT_STEP_BYTES else []
    for buffer in buffers:
        if len(buffer) % DIRECT_STEP_BYTES:
            problems.append(f"a length of {len(buffer)} bytes")
        elif len(buffer) and address_of(buffer) % DIRECT_STEP_BYTES:
            problems.append(f"memory at address {address_of(buffer):#x}")
    if problems:
        text = f"direct I/O with {problems[0]}, expected a multiple of {DIRECT_STEP_BYTES}"
        raise OSError(errno.EINVAL, text)


def check_sectors(sector_bytes: int, path: str) -> None:
    """Raises OSError (EINVAL) unless the disk of `path` takes direct calls in steps of DIRECT_STEP_BYTES.

    sector_bytes: 0 if unknown, as on network file systems.
    """
    if sector_bytes == 0:  # trying could fail in the middle of a run instead of at its start
        raise OSError(errno.EINVAL, "no direct I/O: the disk does not report its sector size", path)
    if DIRECT_STEP_BYTES % sector_bytes:
        text = f"no direct I/O: the disk has sectors of {sector_bytes} bytes, expected {DIRECT_STEP_BYTES} at most"
        raise OSError(errno.EINVAL, text, path)
