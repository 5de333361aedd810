"""Large writes past the page cache where the system can: new complete files, and runs of bytes inside existing ones.

The page cache copies each byte and writes it when the file is forced. For blocks of some MiB that takes three times the
processor time, and half the rate on a busy machine.

All of a run but its ends is written past it, cut where the blocks of the disk begin. Where memory lies as far behind a
boundary as its bytes do in the file, blocks are written from where they are. A block whose bytes lie in several pieces
of memory is copied: one for each piece.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.files.disk import Content, Disk, Run, using, write_all
from acqstream.storage.files.read_file import BLOCK_BYTES, BlockMemory
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import address_of, gathers_writes

_Piece = bytes | memoryview


class BlockRun(NamedTuple):
    """A run in three. middle consists of complete blocks, in file and memory; the others are shorter than one."""

    head: Run
    middle: Run
    tail: Run


class SpareBlocks:
    """Memory for the blocks that are copied; those of a run are valid until the next one is cut."""

    def __init__(self) -> None:
        self._view = memoryview(b"")

    def take(self, count: int) -> memoryview:
        """Memory of so many blocks, or more, on a boundary of a page."""
        if len(self._view) < count * BLOCK_BYTES:
            self._view = PageMemory(count * BLOCK_BYTES).view
        return self._view


def cut_at_blocks(offset: int, content: Content, min_bytes: int, spare: SpareBlocks | None) -> BlockRun | None:
    """Cut a run that begins at byte `offset` of a file; None if it is shorter than `min_bytes`, or has no whole block.

    None also if memory lies otherwise, as all of it would be copied, and for a block to copy without spare ones.
    """
    if sum(map(len, content)) < min_bytes:
        return None
    free: memoryview | None = None  # taken for the first block to copy: most runs have none
    head: list[_Piece] = []
    middle: list[_Piece] = []
    waiting: list[_Piece] = []  # of a block that is not complete
    is_begun, at = not offset % BLOCK_BYTES, offset  # is_begun: the head is complete
    for piece in content:
        size = len(piece)
        if size and (address_of(piece) - at) % BLOCK_BYTES:
            return None
        # First what completes the block that an earlier piece has begun,
        first = min(size, -at % BLOCK_BYTES)
        if first:
            waiting.append(memoryview(piece)[:first])
            if not (at + first) % BLOCK_BYTES:
                if not is_begun:
                    head, is_begun = waiting, True
                elif spare is None:
                    return None
                else:
                    free = spare.take(len(content)) if free is None else free[BLOCK_BYTES:]
                    middle.append(_copied(waiting, free))
                waiting = []
        # then the blocks that this piece has alone. All begin on a boundary of memory, as they do in the file.
        at += size
        stop = max(first, size - at % BLOCK_BYTES)
        if stop > first:
            middle.append(memoryview(piece)[first:stop])
        if stop < size:
            waiting.append(memoryview(piece)[stop:])
    if not middle:
        return None
    begin, end = offset + sum(map(len, head)), at - sum(map(len, waiting))
    return BlockRun((offset, head), (begin, middle), (end, waiting))


def _copied(pieces: list[_Piece], block: memoryview) -> memoryview:
    at = 0
    for piece in pieces:
        block[at : at + len(piece)] = piece
        at += len(piece)
    return block[:at]


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


def consists_of_blocks(content: Content) -> bool:
    """Return True for a large run whose parts and memory consist of complete blocks: `write` can be direct."""
    if sum(map(len, content)) < MIN_DIRECT_BYTES:
        return False
    parts = (np.frombuffer(part, np.uint8) for part in content)
    return all(len(part) % BLOCK_BYTES == 0 and part.ctypes.data % BLOCK_BYTES == 0 for part in parts)


PIECE_BYTES = 4 * 2**20
_KEPT_PIECES = 4


class WholeFiles:
    """Creates files, from any thread. A large one takes PIECE_BYTES of memory while it is written."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._memory = BlockMemory(PIECE_BYTES, _KEPT_PIECES)
        self._can_direct = True

    def make(
        self,
        path: str,
        content: Sequence[bytes | memoryview],
        length: int | None = None,
        tail: Sequence[bytes | memoryview] = (),
        *,
        is_forced: bool = True,
    ) -> None:
        """Write a new file and force it, unless the caller does. A length beyond the content leaves a hole.

        `tail` comes last.

        Raises OSError; a part of the file may exist then.
        """
        total = sum(len(part) for part in content)
        if self._can_direct and length is None and total >= MIN_DIRECT_BYTES:
            try:
                self._make_direct(path, content, total, is_forced)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._can_direct = False  # opening fails, or only writing does (FUSE, network mounts)
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        with using(self._disk, self._disk.open(path, create=True)) as fd:
            if length is not None:
                self._disk.truncate(fd, length)
            write_all(self._disk, fd, content, 0)
            if tail and length is not None:
                write_all(self._disk, fd, tail, length - sum(map(len, tail)))
            if is_forced:
                self._disk.fdatasync(fd)

    def _make_direct(self, path: str, content: Sequence[bytes | memoryview], total: int, is_forced: bool) -> None:
        with using(self._disk, self._disk.open(path, create=True, direct=True)) as fd:
            self._disk.reserve(fd, 0, total)
            memory, offset = self._memory.take(PIECE_BYTES), 0
            for filled in _pieces(content, memory[:PIECE_BYTES]):
                # Direct I/O takes complete blocks only: the last one is filled with zeros, which truncate cuts off.
                padded = -(-filled // BLOCK_BYTES) * BLOCK_BYTES
                memory[filled:padded] = 0
                write_all(self._disk, fd, [memory[:padded].data], offset, step=BLOCK_BYTES)
                offset += filled
            if total % BLOCK_BYTES:
                self._disk.truncate(fd, total)
            if is_forced:
                self._disk.fdatasync(fd)


def _pieces(content: Sequence[bytes | memoryview], memory: NDArray[np.uint8]) -> Iterator[int]:
    """Copy `content` into `memory` piece by piece; yield the bytes of each piece. Only the last one may be shorter."""
    filled = 0
    for part in content:
        data, start = np.frombuffer(part, np.uint8), 0
        while start < len(data):
            count = min(len(data) - start, len(memory) - filled)
            memory[filled : filled + count] = data[start : start + count]
            filled, start = filled + count, start + count
            if filled == len(memory):
                yield filled
                filled = 0
    if filled:
        yield filled
