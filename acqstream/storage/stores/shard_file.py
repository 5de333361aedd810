"""Many chunks in one object of a store, appended in the order in which they arrive, or copied to another object.

docs/decisions/030-shards.md explains the state that readers see at each step. Methods of the store raise StorageError.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from acqstream.errors import StorageError
from acqstream.storage.files.direct_file import consists_of_blocks
from acqstream.storage.files.disk import Content
from acqstream.storage.files.read_file import BLOCK_BYTES
from acqstream.storage.stores.shard_index import (
    MISSING,
    Extents,
    ShardIndex,
    ShardNote,
    find_published,
    note_key,
    object_key,
)
from acqstream.storage.stores.store import Store, require

_COPIED_BYTES = 2**23  # at a time


def copy_whole(store: Store, source: str, target: str, head_bytes: int) -> None:
    """Make `target` of a head of zeros and everything behind the head of `source`: each chunk keeps its offset."""
    store.put(target, [bytes(head_bytes)])
    end = store.size(source) or 0
    for start in range(head_bytes, end, _COPIED_BYTES):
        wanted = min(_COPIED_BYTES, end - start)
        piece = store.get(source, start, wanted) or b""
        if len(piece) != wanted:
            error = OSError(f"{wanted} bytes at byte {start}, found {len(piece)}")
            raise StorageError.wrap(error, f"{store.url}/{source}", "cannot copy")
        store.append(target, [piece])


def copy_live(store: Store, source: str, target: str, extents: Extents, head_bytes: int) -> Extents:
    """Make `target` of a head of zeros and the chunks at `extents` of `source`, one at a time; their new places."""
    store.put(target, [bytes(head_bytes)])
    found = extents.copy()
    # In the order in which they lie, those that are missing last: the source is read from its start to its end.
    for slot in np.argsort(extents[:, 0], kind="stable").tolist():
        offset, length = extents[slot].tolist()
        if offset == MISSING:
            break
        content = store.get(source, offset, length)
        if content is None or len(content) != length:
            error = OSError(f"chunk {slot} at byte {offset} is missing")
            raise StorageError.wrap(error, f"{store.url}/{source}", "cannot copy")
        found[slot, 0] = store.append(target, [content])
    return found


class ShardFile:
    """Fills one shard; from any thread. A chunk that is stored again supersedes the one before.

    Opening continues with what was published last. Chunks go to an object with a temporary key, which `finish` renames:
    foreign readers see a complete shard or none. visible: chunks go to the object itself, and each `sync` writes the
    format's index there for foreign readers. An index at the end is then invalid from the first chunk that is stored
    after a `sync` to the next `sync`; one at the start is rewritten in place.

    Memory: 16 bytes a slot, and 8 MiB while a finished shard gets another chunk. Needs a store that can append, and one
    that can write in place for an index at the start. Raises StorageError; CorruptDataset where what is published
    cannot be read. After a failed `sync` of the store, of this shard or another one, chunks that were not published
    must be stored again through a new ShardFile.
    """

    def __init__(self, store: Store, key: str, index: ShardIndex, *, visible: bool = False) -> None:
        require(store, "append", f"a shard ({key})")
        if index.head_bytes:
            require(store, "in_place", f"a shard with its index at the start ({key})")
        self._store = store
        self._key = key
        self._index = index
        self._visible = visible
        # Locks, in this order: `_publishing` for sync, compact and finish, one at a time; `_lock` for all that follows,
        # and for the end of the object.
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._error: StorageError | None = None
        self._extents: Extents = np.full((index.slots, 2), MISSING, np.uint64)
        self._generation = 0
        self._is_begun = False  # the object that is appended to exists
        self._has_note = False
        self._is_changed = False
        self._reopen()

    def store(self, slot: int, content: Content) -> None:
        """Append a chunk; readers see it after the next `sync`."""
        self.store_together([(slot, content)])

    def store_together(self, chunks: Sequence[tuple[int, Content]]) -> int:
        """As `store` of each, in one write; the offset of the first one, where the others follow."""
        with self._lock:
            self._check()
            self._begin()
            run = [part for _, content in chunks for part in content]
            if consists_of_blocks(run) and (size := self._store.size(self._object) or 0) % BLOCK_BYTES:
                self._store.append(self._object, [bytes(-size % BLOCK_BYTES)])  # then it goes past the system's cache
            first = offset = self._store.append(self._object, run)
            for slot, content in chunks:
                length = sum(map(len, content))
                self._extents[slot] = offset, length
                offset += length
            self._is_changed = True
            return first

    def read(self, slot: int) -> bytes | None:
        """The chunk as stored last, published or not; None if there is none."""
        with self._lock:  # else a compaction could move the chunk between the two
            offset, length = self._extents[slot].tolist()
            return None if offset == MISSING else self._store.get(self._object, offset, length)

    def stored(self) -> Iterator[int]:
        """The slots that have a chunk, in order."""
        with self._lock:
            slots = np.flatnonzero(self._extents[:, 0] != MISSING)
        yield from slots.tolist()

    def dead_bytes(self) -> int:
        """Bytes of the object that belong to no chunk: superseded ones, indices, remains of a killed process."""
        with self._lock:
            live = self._extents[self._extents[:, 0] != MISSING, 1].sum()
            return (self._store.size(self._object) or 0) - int(live)

    def sync(self) -> None:
        """Publish the chunks stored before. They survive a power cut when this returns."""
        with self._publishing:
            self._publish()

    def sync_steps(self) -> Generator[None]:
        """`sync` for several shards at a time: the caller syncs the store after each step, the last one too.

        If that fails, the caller calls `fail` of every shard.
        """
        with self._publishing:
            yield from self._publish_steps()

    def fail(self, error: StorageError) -> None:
        """Refuse everything from now on: a sync of the store failed. A second one could succeed without the data."""
        self._error = error

    def compact(self) -> None:
        """Publish the shard as an object that has live chunks only. Readers of the old object may have to reopen it."""
        with self._publishing:
            with self._lock:
                self._check()
                if not self._has_chunks():
                    return
                old = self._object
                self._copy()
            self._publish()
            if old not in (self._key, self._object):
                self._store.delete(old)

    def finish(self) -> None:
        """Give the complete shard its key, with the format's index. A shard without chunks gets no object."""
        with self._publishing:
            self._publish()
            with self._lock:
                last = self._object
                if self._has_chunks() and self._generation:
                    self._write_index(self._extents)
                    self._force()
                    self._store.rename(last, self._key)
                    self._force()  # the note goes only when the object surely has its key
                self._store.delete(note_key(self._key))
                if not self._has_chunks():
                    self._force()
                    self._store.delete(last)
                self._generation, self._has_note, self._is_begun = 0, False, False
            self._force()

    @property
    def _object(self) -> str:
        return object_key(self._key, self._generation)

    def _check(self) -> None:
        if self._error is not None:
            cause = OSError(self._error.errno, "an earlier sync failed; chunks stored since the last one may be lost")
            # Of the kind of that error: who waits for space does so in every thread.
            raise type(self._error)(cause, f"{self._store.url}/{self._key}", "cannot continue")

    def _reopen(self) -> None:
        note = find_published(self._store, self._key, self._index)
        if note is not None:
            self._extents, self._generation = note.extents.copy(), note.generation
            self._has_note = self._store.size(note_key(self._key)) is not None
            self._is_begun = bool(note.generation) or (self._visible and self._has_note)
        for generation in {self._generation - 1, self._generation + 1}:
            if generation > 0:  # left by a process that was killed in `compact`
                self._store.delete(object_key(self._key, generation))
        if self._has_note and self._visible:  # a kill may have left the object without a valid index
            self._is_changed = True
            self._publish()
        elif self._has_note and not self._generation:  # killed in `finish`, after the rename
            self._store.delete(note_key(self._key))
            self._has_note = False

    def _begin(self) -> None:
        """Make the object that is appended to."""
        if self._is_begun:
            return
        is_finished = self._store.size(self._key) is not None
        if self._visible and is_finished:
            # From the first chunk on the index at the end is none: the note is what a kill leaves to go by.
            self._put_note(0, self._extents)
            self._force()
        elif is_finished:
            self._extend()
        else:
            self._copy()
            if self._visible:
                self._show()
        self._is_begun = True

    def _extend(self) -> None:
        """Copy a finished shard to an object that takes more chunks. Each chunk keeps its offset.

        A reader that knows the finished shard's index finds the chunks of before by it, also after the next `finish`.
        """
        copy_whole(self._store, self._key, object_key(self._key, self._generation + 1), self._index.head_bytes)
        self._generation += 1

    def _copy(self) -> None:
        """Copy the live chunks to an object of the next generation."""
        target = object_key(self._key, self._generation + 1)
        extents = copy_live(self._store, self._object, target, self._extents, self._index.head_bytes)
        self._extents, self._generation, self._is_changed, self._is_begun = extents, self._generation + 1, True, True

    def _show(self) -> None:
        """Give a new object of a visible shard, which has a complete index, its key."""
        self._force()
        self._put_note(self._generation, self._extents)
        self._write_index(self._extents)
        self._force()
        self._store.rename(self._object, self._key)
        self._generation = 0
        self._force()  # the next note must not arrive before the object that it speaks of
        self._put_note(0, self._extents)
        self._force()

    def _publish(self) -> None:
        for _ in self._publish_steps():
            self._force()

    def _publish_steps(self) -> Iterator[None]:
        with self._lock:
            self._check()
            if not self._is_changed or not self._is_begun:
                return
            if self._visible and self._generation:  # after `compact`
                self._show()
                self._is_changed = False
                return
            extents, generation = self._extents.copy(), self._generation
            self._is_changed = False
        try:
            # Chunks first, without the lock: more may be stored meanwhile. Only then may anything speak of them.
            yield
            self._put_note(generation, extents)
            if self._visible:
                with self._lock:
                    head = self._append_tail(extents)
                yield
                self._write_head(head)
            yield
        except BaseException:
            self._is_changed = True
            raise

    def _write_index(self, extents: Extents) -> None:
        """Write the format's index."""
        head = self._append_tail(extents)
        if head:
            self._force()
            self._write_head(head)

    def _append_tail(self, extents: Extents) -> bytes:
        """Append the format's index. The head is written when the tail, which it may point to, is forced."""
        head, tail = self._index.encode(extents, self._store.size(self._object) or 0)
        if tail:
            self._store.append(self._object, [tail])
        return head

    def _write_head(self, head: bytes) -> None:
        if head:
            self._store.write(self._object, [(0, [head])], head=[], length=len(head))

    def _put_note(self, generation: int, extents: Extents) -> None:
        self._store.put(note_key(self._key), [ShardNote(generation, extents).encode()])
        self._has_note = True

    def _force(self) -> None:
        try:
            self._store.sync()
        except StorageError as error:
            self.fail(error)
            raise

    def _has_chunks(self) -> bool:
        return bool((self._extents[:, 0] != MISSING).any())
