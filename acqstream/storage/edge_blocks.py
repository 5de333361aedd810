"""Blocks of the disk that two runs of a file share, as they were written last.

A run that ends inside a block can be written past the page cache only with the whole block. The other bytes of it are
those of the run beside it, which another thread may be writing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from acqstream.storage.block_file import BLOCK_BYTES

MAX_BLOCKS = 8192  # remembered: 32 MiB of blocks of 4 KiB

Span = tuple[int, int]
"""The first byte of a run, and the one after its last."""


class HeldBlocks(dict[int, bytes]):
    """The bytes of blocks that no other thread changes; one that is not known is read."""

    def __init__(self, known: Mapping[int, bytes], read: Callable[[int], bytes]) -> None:
        super().__init__(known)
        self._read = read

    def __missing__(self, block: int) -> bytes:
        data = self[block] = self._read(block)
        return data


class EdgeBlocks:
    """The shared blocks of all files that one process writes, by the byte where they begin. From any thread.

    A block is remembered until the other run is written too; the oldest are forgotten, and read from the file when they
    are needed.
    """

    def __init__(self, most: int = MAX_BLOCKS) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._held: set[tuple[str, int]] = set()
        self._known: dict[str, dict[int, bytes]] = {}  # by path, the oldest first
        self._count = 0

    @contextmanager
    def hold(self, path: str, runs: Sequence[Span], read: Callable[[int], bytes]) -> Iterator[HeldBlocks]:
        """Keep other threads from the ends of these runs while they are written.

        Gives the blocks that a run has only a part of; the caller puts what it writes, and drops what it writes in
        another way. read(block) returns the bytes of one that is not known. After an error none is known.
        """
        shared = {at - at % BLOCK_BYTES for run in runs for at in run if at % BLOCK_BYTES}
        keys = {(path, block) for block in shared}
        with self._changed:
            self._changed.wait_for(lambda: self._held.isdisjoint(keys))
            self._held |= keys
            known = self._take(path, runs)
        blocks = HeldBlocks({block: known[block] for block in shared & known.keys()}, read)
        try:
            yield blocks
        except BaseException:
            blocks.clear()
            raise
        finally:
            with self._changed:
                self._note(path, {block: data for block, data in blocks.items() if block not in known})
                self._held -= keys
                self._changed.notify_all()

    def forget(self, path: str) -> None:
        """Forget the blocks of a file: it is another one now, or gone."""
        with self._changed:
            self._count -= len(self._known.pop(path, ()))

    def _take(self, path: str, runs: Sequence[Span]) -> dict[int, bytes]:
        """Forget the blocks that these runs have bytes of; what they were."""
        blocks = self._known.get(path)
        if not blocks:
            return {}
        found: dict[int, bytes] = {}
        for begin, end in runs:
            span = range(begin - begin % BLOCK_BYTES, end, BLOCK_BYTES)
            # Asked for each run, and as a rule only its ends are known.
            parts = (span[:1], span[-1:]) if blocks.keys().isdisjoint(span[1:-1]) else (span, span[:0])
            found |= {block: blocks.pop(block) for part in parts for block in part if block in blocks}
        self._count -= len(found)
        if not blocks:
            del self._known[path]
        return found

    def _note(self, path: str, blocks: Mapping[int, bytes]) -> None:
        if blocks:
            self._known.setdefault(path, {}).update(blocks)
            self._count += len(blocks)
        while self._count > self._most:
            oldest, others = next(iter(self._known.items()))
            block = next(iter(others))
            self._take(oldest, [(block, block + 1)])
