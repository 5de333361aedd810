"""Writes runs of bytes inside existing files: blocks of large ones past the page cache where the system can.

The page cache copies each byte, and writes it when the file is forced: half the rate on a busy disk.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import TracebackType
from typing import Self

import numpy as np

from acqstream.storage.block_file import BLOCK_BYTES
from acqstream.storage.block_run import SpareBlocks, cut_at_blocks
from acqstream.storage.disk import Disk, write_all
from acqstream.storage.edge_blocks import EdgeBlocks, HeldBlocks
from acqstream.storage.platform.capabilities import gathers_writes
from acqstream.storage.store import Content, Run

MIN_DIRECT_BYTES = 2**20  # below, a request of its own costs more than the copy
_MOST_RUNS = 256  # whose ends are kept from other threads at a time


class InPlaceFiles:
    """Writes inside files, from any thread. Raises OSError; a part may be written then.

    Nobody else may write to these files meanwhile: a block that two runs share is written with the bytes of both.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._can_direct = True
        self._edges = EdgeBlocks()

    def write(self, path: str, runs: Iterable[Run]) -> int:
        """Write runs, none over another, into a file; the number of bytes. They are not forced."""
        written, waiting = 0, _joined(runs)
        with _OpenFile(self._disk, path) as file:
            while batch := list(itertools.islice(waiting, _MOST_RUNS)):
                spans = [(offset, offset + sum(map(len, content))) for offset, content in batch]
                with self._edges.hold(path, spans, file.read) as edges:
                    self._write_batch(file, batch, edges)
                written += sum(end - begin for begin, end in spans)
        return written

    def forget(self, path: str) -> None:
        """Another file has got this name, or none has it any more."""
        self._edges.forget(path)

    def _write_batch(self, file: _OpenFile, batch: Iterable[Run], edges: HeldBlocks) -> None:
        for run in batch:
            if not (self._can_direct and self._write_direct(file, run, edges)):
                self._write_cached(file, run, edges)

    def _write_direct(self, file: _OpenFile, run: Run, edges: HeldBlocks) -> bool:
        """Write a run past the page cache; False if it must go through it."""
        cut = cut_at_blocks(*run, MIN_DIRECT_BYTES, file.spare)
        if cut is None:
            return False
        (begin, middle), (end, rest) = cut.middle, cut.tail
        parts = [*middle]
        try:
            if rest and end + BLOCK_BYTES > file.size:  # with all of its last block the file would become longer
                self._write_cached(file, cut.tail, edges)
                rest = ()
            if head := b"".join(cut.head[1]):
                begin -= BLOCK_BYTES
                edges[begin] = edges[begin][: -len(head)] + head
                parts.insert(0, file.first.filled(edges[begin]))
            if tail := b"".join(rest):
                edges[end] = tail + edges[end][len(tail) :]
                parts.append(file.last.filled(edges[end]))
            write_all(self._disk, file.direct, parts, begin, step=BLOCK_BYTES)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._can_direct = False  # opening fails, or only writing does (FUSE, network mounts)
        return self._can_direct

    def _write_cached(self, file: _OpenFile, run: Run, edges: HeldBlocks) -> None:
        """Write a run through the page cache."""
        offset, content = run
        end = write_all(self._disk, file.cached, content, offset)
        # What is remembered of these blocks would be older than the file.
        for at in (offset, end):
            edges.pop(at - at % BLOCK_BYTES, None)


class _OpenFile:
    """A file while runs are written into it by one thread: two descriptors at most, as one has one way of writing."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._descriptors: list[int] = []
        # Those of one call: other threads write at the same time.
        self.spare = SpareBlocks() if gathers_writes() else None
        self.first, self.last = SpareBlocks(), SpareBlocks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._descriptors:
            self._disk.close(descriptor)

    @cached_property
    def direct(self) -> int:
        return self._open(direct=True)

    @cached_property
    def cached(self) -> int:
        return self._open(direct=False)

    @cached_property
    def size(self) -> int:
        return self._disk.size(self.direct)

    def read(self, block: int) -> bytes:
        """A block that lies inside the file."""
        data = self._disk.pread(self.cached, BLOCK_BYTES, block)
        if len(data) < BLOCK_BYTES:
            raise OSError(errno.EIO, f"{len(data)} bytes at byte {block}, expected {BLOCK_BYTES}")
        return data

    def _open(self, *, direct: bool) -> int:
        descriptor = self._disk.open(self.path, create=False, direct=direct)
        self._descriptors.append(descriptor)
        return descriptor


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
