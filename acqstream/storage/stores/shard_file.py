"""Many chunks in one object of a store, appended in the order in which they arrive.

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
from acqstream.storage.stores.store import WritableStore, require

_COPIED_BYTES = 2**23  # at a time


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

    def __init__(self, store: WritableStore, key: str, index: ShardIndex, *, visible: bool = False) -> None:
        require(store, "append", f"a shard ({key})")
        if index.head_bytes:
            require(store, "in_place", f"a shard with its index at the start ({key})")
        self._store = store
        self._key = key
        self._index = index
        self._visible = visible
        # Locks, in this order: `_publishing` for sync and finish, one at a time; `_lock` for all that follows,
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

    def store(self, chunks: Sequence[tuple[int, Content]]) -> int:
        """Append chunks, by slot, in one write; readers see them after the next `sync`.

        The result is the offset of the first one; the others follow.
        """
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
        self._store.delete(object_key(self._key, self._generation + 1))  # of a process that was killed in `_begin`
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
            self._make_next()
            self._generation += 1
            self._is_begun = self._is_changed = True  # if `_show` fails, the next `sync` goes on with this object
            if self._visible:
                self._show()
        self._is_begun = True

    def _extend(self) -> None:
        """Copy a finished shard to an object that takes more chunks. Each chunk keeps its offset.

        A reader that knows the finished shard's index finds the chunks of before by it, also after the next `finish`.
        """
        target, begin, end = self._make_next(), self._index.head_bytes, self._store.size(self._key) or 0
        for start in range(begin, end, _COPIED_BYTES):
            wanted = min(_COPIED_BYTES, end - start)
            piece = self._store.get(self._key, start, wanted) or b""
            if len(piece) != wanted:
                error = OSError(f"{wanted} bytes at byte {start}, found {len(piece)}")
                raise StorageError.wrap(error, f"{self._store.url}/{self._key}", "cannot copy")
            self._store.append(target, [piece])
        self._generation += 1

    def _make_next(self) -> str:
        """Make the object of the next generation, of a head of zeros; its key."""
        target = object_key(self._key, self._generation + 1)
        self._store.put(target, [bytes(self._index.head_bytes)])
        return target

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
            if self._visible and self._generation:  # a process ended in `_show`, or the disk was full
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
