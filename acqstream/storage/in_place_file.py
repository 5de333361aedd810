"""Writes runs of bytes inside existing files: blocks of large ones past the page cache where the system can.

The page cache copies each byte, and writes it when the file is forced: half the rate on a busy disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import numpy as np

from acqstream.storage.block_file import BLOCK_BYTES
from acqstream.storage.block_run import SpareBlocks, cut_at_blocks
from acqstream.storage.disk import Content, Disk, Run, write_all
from acqstream.storage.platform.capabilities import gathers_writes

MIN_DIRECT_BYTES = 2**20  # below, a request of its own costs more than the copy


class InPlaceFiles:
    """Writes inside files, from any thread. Raises OSError; a part may be written then."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._can_direct = True

    def write(self, path: str, runs: Iterable[Run]) -> int:
        """Write runs into a file; the number of bytes. They are not forced."""
        written = 0
        with ExitStack() as files:
            # Two descriptors at most: one file cannot be written in both ways through one.
            opened: dict[bool, int] = {}

            def descriptor(*, direct: bool) -> int:
                if direct not in opened:
                    opened[direct] = self._disk.open(path, create=False, direct=direct)
                    files.callback(self._disk.close, opened[direct])
                return opened[direct]

            # One for each call: other threads write at the same time.
            spare = SpareBlocks() if gathers_writes() else None
            for run in _joined(runs):
                rest = [run]
                if self._can_direct and (cut := cut_at_blocks(*run, MIN_DIRECT_BYTES, spare)) is not None:
                    rest = [cut.head, cut.tail] if self._write_direct(descriptor, cut.middle) else rest
                for offset, content in rest:
                    if content:
                        write_all(self._disk, descriptor(direct=False), content, offset)
                written += sum(map(len, run[1]))
        return written

    def _write_direct(self, descriptor: Callable[..., int], run: Run) -> bool:
        """Write blocks past the page cache; False if they must go through it."""
        offset, content = run
        try:
            write_all(self._disk, descriptor(direct=True), content, offset, step=BLOCK_BYTES)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._can_direct = False  # opening fails, or only writing does (FUSE, network mounts)
        return self._can_direct


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """The same bytes, with runs that lie one after the other as one."""
    start, end = 0, -1
    parts: list[bytes | memoryview] = []
    for offset, content in runs:
        if offset != end:
            if parts:
                yield start, parts
            start, parts, end = offset, [], offset
        parts += content
        end += sum(map(len, content))
    if parts:
        yield start, parts


def is_aligned(offset: int, content: Content) -> bool:
    """Return True for a large run whose place, parts and memory consist of complete blocks."""
    return offset % BLOCK_BYTES == 0 and consists_of_blocks(content)


def consists_of_blocks(content: Content) -> bool:
    """Return True for a large run whose parts and memory consist of complete blocks: `write` can be direct."""
    if sum(map(len, content)) < MIN_DIRECT_BYTES:
        return False
    parts = (np.frombuffer(part, np.uint8) for part in content)
    return all(len(part) % BLOCK_BYTES == 0 and part.ctypes.data % BLOCK_BYTES == 0 for part in parts)
