"""Cuts a run of bytes where the blocks of the disk begin: all but its ends can be written past the page cache. Pure.

Where memory lies as far behind a boundary as its bytes do in the file, blocks are written from where they are. A block
whose bytes lie in several pieces of memory is copied: one for each piece.
"""

from __future__ import annotations

from typing import NamedTuple

from acqstream.storage.block_file import BLOCK_BYTES
from acqstream.storage.memory import PageMemory
from acqstream.storage.platform.alignment import address_of
from acqstream.storage.store import Content, Run

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
    length = sum(map(len, content))
    begin, end = -offset % BLOCK_BYTES, (offset + length) // BLOCK_BYTES * BLOCK_BYTES - offset
    if length < min_bytes or end <= begin or not _lies_as_in_file(offset, content):
        return None
    middle: list[_Piece] = []
    waiting: list[_Piece] = []  # of a block that is not complete
    free = memoryview(b"") if spare is None else spare.take(len(content))
    for piece in _part(content, begin, end):
        # First what completes the block that an earlier piece has begun,
        at = min(len(piece), BLOCK_BYTES - sum(map(len, waiting))) if waiting else 0
        if waiting:
            if spare is None:
                return None
            waiting.append(piece[:at])
            if sum(map(len, waiting)) == BLOCK_BYTES:
                middle.append(_copied(waiting, free))
                waiting, free = [], free[BLOCK_BYTES:]
        # then the blocks that this piece has alone. All begin on a boundary of memory, as they do in the file.
        stop = at + (len(piece) - at) // BLOCK_BYTES * BLOCK_BYTES
        middle += [piece[at:stop]] * (stop > at)
        # The last block of all ends with a piece: `end` is a boundary.
        waiting += [piece[stop:]] * (len(piece) > stop)
    head, tail = _part(content, 0, begin), _part(content, end, length)
    return BlockRun((offset, head), (offset + begin, middle), (offset + end, tail))


def _lies_as_in_file(offset: int, content: Content) -> bool:
    for piece in content:
        if len(piece) and (address_of(piece) - offset) % BLOCK_BYTES:
            return False
        offset += len(piece)
    return True


def _part(content: Content, begin: int, end: int) -> list[_Piece]:
    """The bytes from `begin` to `end`, without empty pieces."""
    found: list[_Piece] = []
    at = 0
    for piece in content:
        first, stop = max(begin - at, 0), min(end - at, len(piece))
        if first < stop:
            found.append(memoryview(piece)[first:stop])
        at += len(piece)
    return found


def _copied(pieces: list[_Piece], block: memoryview) -> memoryview:
    at = 0
    for piece in pieces:
        block[at : at + len(piece)] = piece
        at += len(piece)
    return block[:at]
