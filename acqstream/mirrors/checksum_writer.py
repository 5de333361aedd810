"""Keeps the checksums of what a publisher stores, in a list of this process's own beside the container."""

from __future__ import annotations

import heapq
import itertools
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import xxhash

from acqstream.arrays.array_spec import Position
from acqstream.errors import StorageError
from acqstream.formats.checksum_list import (
    DOCUMENT,
    FOLDER,
    NOTE_KEY,
    ChecksumNote,
    Entry,
    list_key,
    list_number,
    page_bytes,
)
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, InPlace
from acqstream.storage.files.disk import Run
from acqstream.storage.stores.store import WritableStore

_PAGE_ENTRIES = 4096  # waiting in memory at most; a page takes fewer than 16 MiB of keys with so many


class ChecksumWriter:
    """From any thread. Methods raise StorageError. beside: the store of the view's folder; None: lists are in `store`.

    A chunk is added when it is stored. `flush` comes before the sync that makes chunks durable, and so do shapes and
    documents that name them: what is announced has its checksum.
    """

    def __init__(self, store: WritableStore, beside: WritableStore | None) -> None:
        self._store = store
        # A mirror of an earlier version keeps its lists inside.
        self._lists = store if beside is None or store.size(NOTE_KEY) is not None else beside
        self._lock = threading.Lock()  # for all that follows
        self._entries: list[Entry] = []
        self._axes = 0
        self._key = ""

    def announce(self, layout: ChunkLayout, *, is_new: bool) -> None:
        """Say what the lists are about, unless an earlier process has; is_new: the container has no chunk yet."""
        if is_new and self._lists is not self._store:  # of a container that was removed
            for name in list(self._lists.children(FOLDER)):
                self._lists.delete(f"{FOLDER}/{name}")
        if self._lists.size(NOTE_KEY) is None:
            levels = layout.plan.levels
            chunks = tuple(level.chunk_shape for level in levels)
            note = ChecksumNote(levels[0].axes, chunks, layout.needs == "in_place", is_new)
            self._lists.ensure(NOTE_KEY, note.encode())

    def begin(self, layout: ChunkLayout) -> None:
        """Choose the list, before the first `add`."""
        with self._lock:
            if self._key:
                return
            self.announce(layout, is_new=False)
            numbers = (list_number(name) for name in self._lists.children(FOLDER))
            self._axes = len(layout.plan.full.axes)
            self._key = list_key(max((number for number in numbers if number is not None), default=0) + 1, _new_name())

    def add(self, level: int, position: Position, place: tuple[str, int], content: Encoded) -> None:
        """Note bytes of a chunk that were stored; place is the object's key and the offset in it."""
        self._add([_entry(level, position, place, content)])

    def write(self, level: int, key: str, chunks: Sequence[tuple[Position, InPlace]]) -> None:
        """Write chunks inside an object of the store, each of which has its runs in their order, and note them.

        Each run is summed right before it is written: memory is read once for both.
        """
        entries: list[Entry] = []  # noted once all is written

        def runs_of(position: Position, part: InPlace) -> Iterator[tuple[int, Encoded, Position]]:
            return ((offset, content, position) for offset, content in part.runs)

        def summed() -> Iterator[Run]:
            runs = heapq.merge(*itertools.starmap(runs_of, chunks), key=itemgetter(0))  # in the order of the file
            for offset, content, position in runs:
                entries.append(_entry(level, position, (key, offset), content))
                yield offset, content

        _, head, length, tail = chunks[0][1]
        self._store.write(key, summed(), head=head, length=length, tail=tail)
        self._add(entries)

    def add_documents(self, documents: Mapping[str, bytes]) -> None:
        """Note documents as they were stored."""
        nowhere = (0,) * self._axes
        with self._lock:
            for key, content in documents.items():
                checksum = xxhash.xxh3_64_intdigest(content)
                self._entries.append(Entry(DOCUMENT, nowhere, key, 0, len(content), checksum))

    def flush(self, *, is_closed: bool = False) -> None:
        """Write everything that was added; `sync` forces it. is_closed: the container is complete."""
        with self._lock:
            if self._key and (self._entries or is_closed):
                self._write(is_closed=is_closed)

    def sync(self) -> None:
        """Have the lists survive a power cut, before the caller syncs the container."""
        self.flush()
        if self._lists is not self._store:
            self._lists.sync()

    def _add(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            self._entries += entries
            if len(self._entries) >= _PAGE_ENTRIES:
                self._write()

    def _write(self, *, is_closed: bool = False) -> None:
        while self._entries or is_closed:
            part, rest = self._entries[:_PAGE_ENTRIES], self._entries[_PAGE_ENTRIES:]
            is_last = is_closed and not rest
            page = [page_bytes(part, self._axes, is_closed=is_last)]
            try:
                if "append" in self._lists.capabilities:
                    self._lists.append(self._key, page)
                else:  # each page is a list of its own
                    self._lists.put(self._key, page)
                    self._key = _key_after(self._key)
            except StorageError:
                # A part of the page may be there: whatever follows it would look damaged.
                self._key = _key_after(self._key)
                raise
            self._entries, is_closed = rest, is_closed and not is_last


def _entry(level: int, position: Position, place: tuple[str, int], content: Encoded) -> Entry:
    digest = xxhash.xxh3_64()
    for part in content:
        digest.update(part)
    key, offset = place
    return Entry(level, tuple(position), key, offset, sum(map(len, content)), digest.intdigest())


def _key_after(key: str) -> str:
    """The key of a list that supersedes another one."""
    return list_key((list_number(key.rpartition("/")[2]) or 0) + 1, _new_name())


def _new_name() -> str:
    return secrets.token_hex(8)
