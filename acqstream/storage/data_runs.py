"""The ranges of a sparse file that contain data."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from acqstream.errors import StorageError

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def data_runs(path: Path) -> list[tuple[int, int]]:
    """Byte ranges [start, end) with data, in order; the bytes between them are holes and read as zeros.

    The complete file is one range if the platform or file system reports no holes. Raises StorageError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            return _runs(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError.wrap(error, str(path), "find the holes") from error


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
