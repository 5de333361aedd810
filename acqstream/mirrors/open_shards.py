"""The shards of a container that are being filled, as many open at a time as the memory allows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from acqstream.storage.shard_file import ShardFile
from acqstream.storage.shard_note import ShardIndex, note_key
from acqstream.storage.store import Content, Store

_NOTE_ENDING = note_key("")


@dataclass(slots=True)
class _OpenShard:
    file: ShardFile
    users: int = 0


class OpenShards:
    """Stores chunks in shards, from any thread of one process. Methods raise StorageError, CorruptDataset.

    index_of gives the index of the shard at a key. most_open bounds the shards that are open and not in use; a shard
    beyond it is published and closed, and goes on when it is opened again. One process at a time fills a shard.
    """

    def __init__(self, store: Store, index_of: Callable[[str], ShardIndex], most_open: int) -> None:
        self._store = store
        self._index_of = index_of
        self._most_open = most_open
        self._lock = threading.Lock()  # for opening and closing; never held while a chunk is stored
        self._open: OrderedDict[str, _OpenShard] = OrderedDict()  # the one used last at the end
        self._unfinished: set[str] = set()

    def resume(self) -> None:
        """Know the shards that a killed process left unfinished; `finish_all` finishes them, too."""
        with self._lock:
            for key in self._store.keys():  # noqa: SIM118 - a store is no dict
                if key.endswith(_NOTE_ENDING):
                    self._unfinished.add(key.removesuffix(_NOTE_ENDING))

    def store(self, key: str, slot: int, content: Content) -> None:
        """Append a chunk to its shard; readers see it after the next `sync`."""
        with self._used(key) as file:
            file.store(slot, content)

    def sync(self) -> None:
        """Publish the chunks stored before. They survive a power cut when this returns."""
        with self._lock:
            keys = list(self._open)
        for key in keys:  # one that was closed meanwhile is published already
            with self._used(key) as file:
                file.sync()

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
                shard = self._open[key] = _OpenShard(ShardFile(self._store, key, self._index_of(key)))
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
        idle = [key for key, shard in self._open.items() if not shard.users]
        for key in idle[: max(0, len(self._open) - self._most_open)]:
            self._open[key].file.sync()  # a shard that is opened again goes on with what was published
            del self._open[key]
