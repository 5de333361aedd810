"""A small file system of its own, in memory, for tests that fill it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOST_TRIES = 100


@contextmanager
def small_disk(place: Path, size_mb: int) -> Iterator[Path]:
    """A folder at `place` that holds size_mb MiB; skips the test where that cannot be had."""
    place.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not possible here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """A file that takes all of the space but leave_bytes."""
    path = folder / "filler"
    for _ in range(MOST_TRIES):
        status = os.statvfs(folder)
        with path.open("ab") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, max(4096, status.f_bavail * status.f_frsize - leave_bytes))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                continue  # somebody took a part of it meanwhile
        return path
    raise AssertionError(f"{folder} cannot be filled")
