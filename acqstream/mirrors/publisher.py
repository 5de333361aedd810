"""The life of a container in a store, for every chunk format.

A container is created or resumed, takes chunks, grows, and is finished. A document is put after the chunks and the
documents that it speaks of: first those of a member, then its chunks, then documents of the container, then listings.
Only a new container begins with its own ones: without our note its members would be complete arrays of another writer.
Every step may be repeated with the same result, so a restarted process repeats the steps that it is not sure of.
"""

from __future__ import annotations

import heapq
import itertools
import secrets
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import DatasetExists, StorageError
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
from acqstream.formats.chunk_layout import BESIDE, ChunkLayout, Encoded, InPlace
from acqstream.formats.chunk_reader import read_document
from acqstream.mirrors.open_shards import OPEN_SHARDS_BYTES, OpenShards
from acqstream.storage.files.disk import Run
from acqstream.storage.stores.store import WritableStore, require

_Layout = TypeVar("_Layout", bound=ChunkLayout)


def resume_layout(layout: _Layout, store: WritableStore) -> tuple[_Layout, bool] | None:
    """Return the layout of the existing container and whether it is complete; None if the store holds nothing.

    Raises DatasetExists if the store holds something else, CorruptDataset.
    """
    first, *others = layout.resume_keys()
    note = read_document(store, first)
    if note is None:
        if next(iter(store.keys()), None) is not None:
            raise DatasetExists(f"{store.url} exists and is not a container of acqstream: it has no {first}")
        return None
    documents = {key: content for key in others if (content := read_document(store, key)) is not None}
    return layout.resume({first: note, **documents}, store.url)


def existing_members(layout: ChunkLayout, store: WritableStore) -> Iterator[Position]:
    """Yield the members whose documents are in the store.

    Folders are listed first, each once: a new container has few of its members, which may be a million.
    """
    listed: dict[str, frozenset[str]] = {}
    for member in layout.plan.members():
        keys = [*layout.member_documents(member)]
        if not keys:
            continue
        parts, folder = keys[-1].split("/"), ""
        for part in parts[:-2]:  # the folders of the member itself, not those of its levels
            if folder not in listed:
                listed[folder] = frozenset(store.children(folder))
            if f"{part}/" not in listed[folder]:
                break
            folder = f"{folder}/{part}" if folder else part
        else:
            if store.size(keys[-1]) is not None:
                yield member


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


_MAX_TOGETHER = 4096  # documents that are put together
_LISTING_DELAY = (
    32  # between two syncs, listings may lack this part of the first axis: they cost more, the longer it is
)


class Publisher:
    """Publishes the chunks of one container. Methods raise StorageError.

    beside is the store of the folder around the container; None: listings beside the container are left out. lists is
    that of the view's folder, for checksums; None: they are in the container.
    Several processes may publish the same container at a time: each stores other chunks, and only one calls `grow`,
    `set_space` and `finish`. One process alone fills a container with shards.
    """

    def __init__(
        self,
        layout: ChunkLayout,
        store: WritableStore,
        beside: WritableStore | None,
        container_name: str,
        lists: WritableStore | None = None,
    ) -> None:
        self._layout = layout
        self._store = store
        self._beside = beside
        self._container_name = container_name
        self._lock = threading.Lock()  # for all that follows
        self._members: set[Position] = set()  # those whose documents were put
        self._written: dict[str, bytes] = {}  # documents of members, by key
        self._announced: Mapping[str, bytes] = {}  # documents of the container, by key
        self._is_unsure = False  # documents may be older than the layout: their writer failed, or was killed
        self._listed: ArraySpec | None = None  # the full resolution in the listings
        self._shown: ChunkLayout | None = None  # whose members other software sees
        self._is_settled = False  # the container was complete, and nothing was stored since
        self._shards: OpenShards | None = None
        self._sums = ChecksumWriter(store, lists)

    def begin(self) -> None:
        """Create the container, or resume the existing one.

        Raises DatasetExists if the store holds something else, CorruptDataset, ConfigError if it lacks what the layout
        needs.
        """
        require(self._store, self._layout.needs, self._container_name)
        found = resume_layout(self._layout, self._store)
        if found is not None:
            self._layout, self._is_settled = found
            self._members = set(existing_members(self._layout, self._store))
        if self._layout.needs == "append":
            self._shards = OpenShards(self._store, self._layout.shard_index, OPEN_SHARDS_BYTES)
            self._shards.resume()
        plan = self._layout.plan
        self._is_unsure = bool(self._members)
        if self._is_settled:
            return  # it stays so until something is stored
        if found is None:
            self._put_documents(self._layout.documents(complete=False))
        self._ensure_member((0,) * len(plan.member_axes))  # so that readers can open it
        with self._lock:
            self._layout = self._layout.with_members(self._members)
            documents = self._layout.documents(complete=False)
            if documents != self._announced:
                self._put_documents(documents)
            self._put_due_listings()
        self._sums.announce(self._layout, is_new=found is None)

    def encode(
        self, level: int, position: Position, chunk: NDArray[np.generic], present: NDArray[np.bool_] | None = None
    ) -> Encoded:
        """See ChunkLayout, also for `present`; from any thread."""
        if present is None:
            return self._layout.encode(level, position, chunk)
        return self._layout.encode_present(level, position, chunk, present)

    @property
    def joins_chunks(self) -> bool:
        """True if chunks share an object: `store` of several costs less than of each."""
        return self._layout.needs != "whole"

    def stored_with(self, level: int, position: Position) -> Hashable:
        """Equal for chunks that one `store` should get, as their bytes alternate in a file."""
        return self._layout.key(level, position) if self._layout.joined_layers > 1 else position

    def store(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        """Put chunks: readers see all of each or nothing; from any thread. Neighbours in a file become one write.

        They may lie beyond the shape: readers look for them after `grow`, and they are forced before the shape is
        announced. Readers may see a part of one that is written in place inside the shape.
        """
        self._is_settled = False
        layout = self._layout
        for position, _ in chunks:
            self._ensure_member(layout.plan.member(position))
        self._sums.begin(layout)
        for key, group in itertools.groupby(chunks, lambda chunk: layout.key(level, chunk[0])):
            self._store_in(key, level, list(group))

    def _store_in(self, key: str, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        """Store chunks in one object, and note their checksums."""
        layout = self._layout
        stored: list[tuple[Position, int, Encoded]] = []  # chunk, offset in the object, bytes
        if self._shards is not None:
            offset = self._shards.store(key, [(layout.slot(level, position), encoded) for position, encoded in chunks])
            for position, encoded in chunks:
                stored.append((position, offset, encoded))
                offset += sum(map(len, encoded))
        elif layout.needs == "in_place":
            parts = [(position, layout.in_place(level, position, encoded)) for position, encoded in chunks]
            self._sums.write(level, key, parts)
        else:
            for position, encoded in chunks:
                self._store.put_new(key, encoded)
                stored.append((position, 0, encoded))
        for position, offset, content in stored:
            self._sums.add(level, position, (key, offset), content)

    def grow(self, level: int, shape: Sequence[int]) -> None:
        """Announce the shape of a level; its chunks are stored. A level never shrinks here.

        Raises ConfigError for an axis that cannot grow.
        """
        self._sums.flush()
        if self._shards is not None:
            self._shards.sync()
        else:
            self._store.sync()  # a shape must not survive a power cut that its chunks do not; other threads may store
        with self._lock:
            levels = list(self._layout.plan.levels)
            before = levels[level].shape
            after = tuple(map(max, before, shape))
            self._layout.check_growth(after)
            if after != before or self._is_unsure:
                levels[level] = replace(levels[level], shape=after)
                self._announce(levels, complete=False)

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """Announce scale, units, translation, places, stage_axes, shown axes and values of these levels."""
        with self._lock:
            before = self._layout.plan.levels
            spaced = [own.with_space(other) for own, other in zip(before, levels, strict=True)]
            if self._is_settled:
                self._layout = self._layout.with_levels(spaced)  # announced with whatever comes next
            elif tuple(spaced) != before:
                self._announce(spaced, complete=False)

    def sync(self) -> None:
        """When this returns, everything that was stored before survives a power cut; listings are up to date."""
        self._sums.sync()
        if self._shards is not None:
            self._shards.sync()
        self._store.sync()
        with self._lock:
            if self._put_listings(max_behind=0):
                self._store.sync()
            if self._beside is not None:
                self._beside.sync()

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """Announce that it is complete, and its final shapes (maybe smaller), space, labels and attributes."""
        with self._lock:
            final = [
                replace(
                    own.with_space(last),
                    shape=last.shape,
                    absent=last.absent,
                    labels=last.labels,
                    attributes=last.attributes,
                )
                for own, last in zip(self._layout.plan.levels, levels, strict=True)
            ]
            was_settled = self._is_settled
            self._announce(final, complete=was_settled)
        for member in self._layout.plan.members():
            self._ensure_member(member)
        if self._shards is not None:
            self._shards.finish_all()
        self._store.sync()
        with self._lock:
            self._announce(final, complete=True)
            if not was_settled:
                self._sums.begin(self._layout)
                self._sums.add_documents({**self._written, **self._announced})
        self._sums.flush(is_closed=not was_settled)
        self.sync()

    def _ensure_member(self, member: Position) -> None:
        """When this returns, the documents of a member exist."""
        with self._lock:
            if member in self._members:
                return
            full = self._layout.plan.full
            shape = list(full.shape)
            for name, at in zip(self._layout.plan.member_axes, member, strict=True):
                axis = full.axes.index(name)
                shape[axis] = max(shape[axis], at + 1)
            self._layout.check_growth(shape)
            self._put_member(member)
            self._members.add(member)

    def _announce(self, levels: Sequence[ArraySpec], *, complete: bool) -> None:
        before, self._layout = self._layout, self._layout.with_levels(levels).with_members(self._members)
        is_unsure, self._is_unsure = self._is_unsure, True
        if is_unsure or before.member_version != self._layout.member_version:
            self._put_members_again()
        self._show_members(None if is_unsure else self._shown)
        documents = self._layout.documents(complete=complete)
        if is_unsure or documents != self._announced:
            self._put_documents(documents)
            self._put_due_listings()
        self._is_unsure = False

    def _put_members_again(self) -> None:
        """Put what has changed in the documents of members, forced in groups."""
        changed: dict[str, bytes] = {}
        for member in self._members:
            documents = self._layout.member_documents(member).items()
            changed |= {key: content for key, content in documents if self._written.get(key) != content}
            if len(changed) >= _MAX_TOGETHER:
                self._put_together(changed)
                changed = {}
        self._put_together(changed)

    def _show_members(self, before: ChunkLayout | None) -> None:
        """Put what other software needs of members inside the shape, where it differs from that of a layout before."""
        shown: dict[str, bytes] = {}
        new: dict[Position, Mapping[str, bytes]] = {}  # none of their frames came, or another process stored them
        for member, documents in self._layout.shown_documents(before, self._container_name):
            if member not in self._members:
                new[member] = self._layout.member_documents(member)
            shown |= documents
            if len(shown) >= _MAX_TOGETHER:
                self._put_shown(new, shown)
                shown, new = {}, {}
        self._put_shown(new, shown)
        self._shown = self._layout

    def _put_shown(self, new: Mapping[Position, Mapping[str, bytes]], shown: Mapping[str, bytes]) -> None:
        own = {key: content for documents in new.values() for key, content in documents.items()}
        self._store.ensure_all({**own, **shown})
        self._written.update(own)  # not before: what failed is put again
        self._members.update(new)

    def _put_together(self, documents: Mapping[str, bytes]) -> None:
        self._store.ensure_all(documents)
        self._written.update(documents)

    def _put_member(self, member: Position) -> None:
        for key, content in self._layout.member_documents(member).items():
            if key in self._written:
                self._put_once(key, content)
            else:
                self._store.put_new(key, [content])  # forced with the chunks that it describes
                self._written[key] = content

    def _put_once(self, key: str, content: bytes) -> None:
        if self._written.get(key) != content:
            self._store.ensure(key, content)
            self._written[key] = content

    def _put_documents(self, documents: Mapping[str, bytes]) -> None:
        self._store.ensure_all(documents)
        self._announced = documents

    def _put_due_listings(self) -> None:
        self._put_listings(max_behind=self._layout.plan.full.shape[0] // _LISTING_DELAY)

    def _put_listings(self, max_behind: int) -> bool:
        """Put the listings, unless they lack no more than so many positions of the first axis."""
        full = replace(self._layout.plan.full, shown_axes=(), axis_values={})  # they are in our note alone
        listed = self._listed
        if listed is not None:
            is_same = replace(listed, shape=(full.shape[0], *listed.shape[1:])) == full
            if is_same and 0 <= full.shape[0] - listed.shape[0] <= max_behind:
                return False
        listings = self._layout.listings(self._container_name)
        outside = {key.removeprefix(BESIDE): content for key, content in listings.items() if key.startswith(BESIDE)}
        beside = self._beside
        if self._is_settled and beside is not None and any(beside.size(name) is not None for name in outside):
            return False  # programs note in it how the views are registered
        for key, content in listings.items():
            if not key.startswith(BESIDE):
                self._put_once(key, content)
        for name, content in outside.items():
            if beside is not None:
                beside.ensure(name, content)
        self._listed = full
        return bool(listings)
