"""Datasets that arrays opened again, in the process that they were sent to."""

from __future__ import annotations

import threading
from collections import OrderedDict

from acqstream.dataset.dataset import Dataset, open_frames
from acqstream.dataset.level import Level
from acqstream.storage.remote_path import as_path

MOST_OPEN = 8  # an index takes memory, its files descriptors

_open: OrderedDict[tuple[object, ...], Dataset] = OrderedDict()
_lock = threading.Lock()


def reopened(path: str, frame_count: int) -> Level:
    """The level in the folder `path`, with at least so many frames; the last few stay open.

    Raises as `open_frames` and `Dataset.refresh`.
    """
    status = as_path(path).stat()
    key = (path, status.st_ino)  # another dataset may have come to this place
    with _lock:
        dataset = _open.get(key)
        if dataset is None:
            dataset = _open[key] = open_frames(path)
            if len(_open) > MOST_OPEN:
                _open.popitem(last=False)  # whoever still reads from it keeps its files open
        _open.move_to_end(key)
        level = dataset.levels[0]  # of this folder
        if level.frame_count < frame_count:
            dataset.refresh()
        return level
