"""Sources that arrays opened again, in the process that they were sent to."""

from __future__ import annotations

import threading
from collections import OrderedDict

from acqstream.dataset.opening import open_source
from acqstream.dataset.source import LevelAddress, LevelSource, Source
from acqstream.errors import DatasetError
from acqstream.storage.files.url_path import as_path

MAX_OPEN = 8  # an index takes memory, its files descriptors

_open: OrderedDict[tuple[object, ...], Source] = OrderedDict()
_lock = threading.Lock()


def reopened(address: LevelAddress, item_count: int) -> LevelSource:
    """The level at an address, with at least `item_count` items; the last few datasets stay open.

    Raises as `acqstream.open` and `Dataset.refresh`.
    """
    path = as_path(address.path)
    # with the inode: another dataset may have come to this place
    key = (address.path, address.follows_links, address.is_stitched, path.stat().st_ino)
    with _lock:
        source = _open.get(key)
        if source is None:
            source = _open[key] = open_source(path, follow_links=address.follows_links, is_stitched=address.is_stitched)
            if len(_open) > MAX_OPEN:
                _open.popitem(last=False)  # arrays that still read from it keep its files open
        _open.move_to_end(key)
        if len(source.levels) <= address.number or source.levels[address.number].item_count < item_count:
            source.refresh()
        if len(source.levels) <= address.number:
            raise DatasetError(f"{address.path}: level {address.number} is missing, although it existed")
        return source.levels[address.number]
