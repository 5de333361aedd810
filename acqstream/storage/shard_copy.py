"""Copies the chunks of a shard to another object of its store. Methods of the store raise StorageError."""

from __future__ import annotations

import numpy as np

from acqstream.errors import StorageError
from acqstream.storage.shard_note import MISSING, Extents
from acqstream.storage.store import Store

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
