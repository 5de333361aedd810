"""Cuts a run of bytes where the blocks of the disk begin: all but its ends can be written past the page cache. Pure.

Where memory lies as far behind a boundary as its bytes do in the file, blocks are written from where they are. A block
whose bytes lie in several pieces of memory is copied: one for each piece.
"""

from __future__ import annotations

from typing import NamedTuple

from acqstream.storage.block_file import BLOCK_BYTES
from acqstream.storage.disk import Content, Run
from acqstream.storage.memory import PageMemory
from acqstream.storage.platform.alignment import address_of

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
