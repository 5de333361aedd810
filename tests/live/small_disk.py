"""A small file system of its own, in memory, for tests that fill it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

MOST_TRIES = 100
MIB = 2**20
VOLUME = "ACQSTREAM_TEST_VOLUME"


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


@contextmanager
def small_volume(place: Path, size_mb: int) -> Iterator[Path]:
    """As `small_disk`; on Windows a folder of the volume that ACQSTREAM_TEST_VOLUME names, which tests may fill.

    It must be empty and have size_mb MiB: a virtual disk, or under Wine a mount that Linux made beforehand.
    """
    if sys.platform != "win32":
        with small_disk(place, size_mb) as disk:
            yield disk
        return
    volume = os.environ.get(VOLUME)
    if not volume:
        pytest.skip(f"{VOLUME} names no small volume that may be filled")
    usage = shutil.disk_usage(volume)
    assert size_mb * 0.9 <= usage.total / MIB <= size_mb * 1.1, f"{volume} has {usage.total / MIB:.0f} MiB"
    folder = Path(volume) / place.name
    folder.mkdir()
    try:
        yield folder
    finally:
        until(lambda: _is_removed(folder), "no program has a file of it open")


def _is_removed(folder: Path) -> bool:
    try:
        shutil.rmtree(folder)
    except PermissionError:  # a process that was ended has not closed its files yet
        return False
    return True


def fill(folder: Path, leave_bytes: int) -> Path:
    """A file that takes all of the space but leave_bytes."""
    path = folder / "filler"
    for _ in range(MOST_TRIES):
        with path.open("ab", buffering=0) as file:
            try:
                _take(file.fileno(), shutil.disk_usage(folder).free - leave_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                continue  # somebody took a part of it meanwhile
        return path
    raise AssertionError(f"{folder} cannot be filled")


def _take(descriptor: int, length: int) -> None:
    """Give an empty file this length, without holes; after an error it may have a part of it (Windows)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, max(4096, length))
        return
    while length > 0:
        length -= os.write(descriptor, bytes(min(length, MIB)))
