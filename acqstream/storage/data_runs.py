"""Which parts of a sparse file hold data."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from acqstream.errors import StorageError

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def data_runs(path: Path) -> list[tuple[int, int]]:
    """Byte ranges [start, end) of a file that hold data, in order; what lies between them are holes and reads as zeros.

    The whole file is one range where platform or file system cannot tell. Raises StorageError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            return _runs(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError.wrap(error, str(path), "look for holes") from error


def _runs(descriptor: int, size: int) -> list[tuple[int, int]]:
    if size == 0:
        return []
    if not hasattr(os, "SEEK_DATA"):
        return [(0, size)]
    runs: list[tuple[int, int]] = []
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            if error.errno in (errno.EINVAL, errno.ENOTSUP):
                return [(0, size)]
            raise
        runs.append((start, end))
    return runs
