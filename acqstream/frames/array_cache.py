"""Keeps arrays that were read or computed, up to a number of bytes; each is made once at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.generic], ...]


class LevelCache:
    """Least recently used entries go first. An entry that does not fit at all is not kept. Thread safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Arrays] = OrderedDict()
        self._in_progress: dict[Hashable, threading.Lock] = {}
        self.used_bytes = self.peak_bytes = 0

    def get(self, key: Hashable, make: Callable[[], Arrays]) -> Arrays:
        """The entry, which `make` makes if it is missing; other threads that ask for it wait meanwhile."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
            own = self._in_progress.setdefault(key, threading.Lock())
        with own:
            with self._lock:
                found = self._entries.get(key)
            if found is None:
                found = make()
                self._keep(key, found)
        with self._lock:
            self._in_progress.pop(key, None)
        return found

    def _keep(self, key: Hashable, arrays: Arrays) -> None:
        count = _size(arrays)
        with self._lock:
            if count > self._max_bytes:
                return
            self._entries[key] = arrays
            self.used_bytes += count
            while self.used_bytes > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self.used_bytes -= _size(oldest)
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays)
