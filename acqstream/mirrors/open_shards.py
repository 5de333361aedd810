"""The shards of a container that are being filled, as many open at a time as the memory allows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from acqstream.errors import StorageError
from acqstream.storage.files.disk import Content
from acqstream.storage.stores.shard_file import ShardFile
from acqstream.storage.stores.shard_index import ShardIndex, note_key
from acqstream.storage.stores.store import WritableStore

_NOTE_ENDING = note_key("")


OPEN_SHARDS_BYTES = 64 * 2**20
"""Memory of a mirror for the places of chunks in shards that are open."""

SLOT_BYTES = 48  # places of a chunk, and their copies while they are published


@dataclass(slots=True)
class _OpenShard:
    file: ShardFile
    bytes: int
    users: int = 0


class OpenShards:
    """Stores chunks in shards, from any thread of one process. Methods raise StorageError, CorruptDataset.

    index_of gives the index of the shard at a key. Shards that are open and not in use take at most max_bytes of
    memory; a shard beyond it is published and closed, and goes on when it is opened again. A shard with its index at
    the start shows its published chunks to foreign readers, any other one when it is finished. One process at a time
    fills a shard.
    """

    def __init__(self, store: WritableStore, index_of: Callable[[str], ShardIndex], max_bytes: int) -> None:
        self._store = store
        self._index_of = index_of
        self._max_bytes = max_bytes
        self._syncing = threading.Lock()  # one `sync` at a time: each takes the locks of all shards
        self._lock = threading.Lock()  # for opening and closing; never held while a chunk is stored
        self._open: OrderedDict[str, _OpenShard] = OrderedDict()  # the one used last at the end
        self._open_bytes = 0
        self._unfinished: set[str] = set()

    def resume(self) -> None:
        """Know the shards that a killed process left unfinished; `finish_all` finishes them, too."""
        with self._lock:
            for key in self._store.keys():  # noqa: SIM118 - a store is no dict
                if key.endswith(_NOTE_ENDING):
                    self._unfinished.add(key.removesuffix(_NOTE_ENDING))

    def store(self, key: str, chunks: Sequence[tuple[int, Content]]) -> int:
        """Append chunks, by slot, to their shard in one write; readers see them after the next `sync`.

        The result is the offset of the first one; the others follow.
        """
        with self._used(key) as file:
            return file.store(chunks)

    def sync(self) -> None:
        """Publish the chunks stored before. They survive a power cut when this returns."""
        with self._syncing, ExitStack() as used:
            with self._lock:
                keys = list(self._open)
            # One that was closed meanwhile is published already.
            files = [used.enter_context(self._used(key)) for key in keys]
            steps = [file.sync_steps() for file in files]
            for step in steps:
                used.callback(step.close)  # after an error they hold their locks
            while steps := [step for step in steps if _is_going_on(step)]:
                try:
                    self._store.sync()  # once for all shards
                except StorageError as error:
                    for file in files:
                        file.fail(error)
                    raise

    def finish(self, key: str) -> None:
        """Show foreign readers a shard to which no chunk comes any more; a late one is still taken."""
        with self._used(key) as file:
            with self._lock:
                if self._open[key].users == 1:  # else another thread stores in it; one that comes later adds it again
                    self._unfinished.discard(key)
            file.finish()

    def finish_all(self) -> None:
        """Finish every shard that is not, in the order of keys. No other thread may store meanwhile."""
        with self._lock:
            keys = sorted(self._unfinished)
        for key in keys:
            self.finish(key)

    @contextmanager
    def _used(self, key: str) -> Iterator[ShardFile]:
        with self._lock:
            shard = self._open.get(key)
            if shard is None:
                index = self._index_of(key)
                file = ShardFile(self._store, key, index, visible=index.head_bytes > 0)
                shard = self._open[key] = _OpenShard(file, index.slots * SLOT_BYTES)
                self._open_bytes += shard.bytes
            self._unfinished.add(key)
            self._open.move_to_end(key)
            shard.users += 1
        try:
            yield shard.file
        finally:
            with self._lock:
                shard.users -= 1
                self._close_idle()

    def _close_idle(self) -> None:
        for key in [key for key, shard in self._open.items() if not shard.users]:
            if self._open_bytes <= self._max_bytes:
                return
            self._open[key].file.sync()  # a shard that is opened again goes on with what was published
            self._open_bytes -= self._open.pop(key).bytes


def _is_going_on(step: Iterator[None]) -> bool:
    return next(step, step) is None
