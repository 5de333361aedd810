"""Opens the source of the dataset at a path, also for arrays that were sent to this process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from acqstream.arrays.level_layout import LevelAddress, LevelSource
from acqstream.dataset.chunk_source import ChunkSource
from acqstream.dataset.frame_source import NDTiffSource
from acqstream.errors import CorruptDataset, DatasetError, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.ndtiff.completion import STATE_NAME
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX
from acqstream.formats.registry import find_format
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.boundary import following_links
from acqstream.storage.files.small_file import read_json_object
from acqstream.storage.files.url_path import as_path, is_remote

Source = NDTiffSource | ChunkSource
"""Reads a dataset. It shows the frames and chunks published at opening or at the last `refresh`."""


def open_source(path: Path, *, follow_links: bool, is_stitched: bool = True) -> Source:
    """The source of the dataset that `path` is, or lies in. Raises as `acqstream.open`.

    is_stitched: tiles make up one picture; else each is an image, and lower levels, whose tiles differ, are left out.
    """
    try:
        return _open(path, follow_links=follow_links, is_stitched=is_stitched)
    except DatasetError as error:
        if isinstance(error, UnsupportedFeature) or not _has_begun(path):
            raise
        raise UnknownFormat(f"{path} has no frame yet; acqstream.open(path, wait_s=60) waits for the first") from error


def _has_begun(path: Path) -> bool:
    """Whether our writer has noted that a run, or a mirror, began here and goes on. It may have no frame yet."""
    if is_remote(path):
        return False
    place = path.absolute()
    with suppress(CorruptDataset, StorageError):
        if read_json_object(place / STATE_NAME, is_ours=True).get("state") in [
            state for state in AcquisitionState if state.writing
        ]:
            return True
    with suppress(CorruptDataset, StorageError):
        view = read_json_object(place.parent / f"{place.name}{VIEW_SUFFIX}" / "view.json", is_ours=True)
        return not (view.get("cursor") or view.get("complete") or view.get("failed"))
    return False


def _open(path: Path, *, follow_links: bool, is_stitched: bool) -> Source:
    with following_links(follow_links):
        data_format = find_format(path)
        if not isinstance(data_format, NDTiffFormat):
            return ChunkSource(path, data_format, follows_links=follow_links)
        readers = data_format.open(path)
    folder = readers[0].path if readers[0].level else readers[0].container
    return NDTiffSource(folder, data_format.name, readers, follows_links=follow_links, is_stitched=is_stitched)


MAX_OPEN = 8  # an index takes memory, its files descriptors

_reopened: OrderedDict[tuple[object, ...], Source] = OrderedDict()
_lock = threading.Lock()


def reopened(address: LevelAddress, item_count: int) -> LevelSource:
    """The level at an address, with at least `item_count` items; the last few datasets stay open.

    Raises as `acqstream.open` and `Dataset.refresh`.
    """
    path = as_path(address.path)
    # with the inode: another dataset may have come to this place
    key = (address.path, address.follows_links, address.is_stitched, path.stat().st_ino)
    with _lock:
        source = _reopened.get(key)
        if source is None:
            source = _reopened[key] = open_source(
                path, follow_links=address.follows_links, is_stitched=address.is_stitched
            )
            if len(_reopened) > MAX_OPEN:
                _reopened.popitem(last=False)  # arrays that still read from it keep its files open
        _reopened.move_to_end(key)
        if len(source.levels) <= address.number or source.levels[address.number].item_count < item_count:
            source.refresh()
        if len(source.levels) <= address.number:
            raise DatasetError(f"{address.path}: level {address.number} is missing, although it existed")
        return source.levels[address.number]
