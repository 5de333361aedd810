"""Opens the source of the dataset at a path."""

from __future__ import annotations

from pathlib import Path

from acqstream.dataset.chunk_source import ChunkSource
from acqstream.dataset.frame_source import NDTiffSource
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.registry import find_format
from acqstream.storage.boundary import following_links


def open_source(path: Path, *, follow_links: bool, is_stitched: bool = True) -> NDTiffSource | ChunkSource:
    """The source of the dataset that `path` is, or lies in. Raises as `acqstream.open`.

    is_stitched: tiles make up one picture; else each is an image, and lower levels, whose tiles differ, are left out.
    """
    with following_links(follow_links):
        data_format = find_format(path)
        if not isinstance(data_format, NDTiffFormat):
            return ChunkSource(path, data_format, follows_links=follow_links)
        readers = data_format.open(path)
    folder = readers[0].path if readers[0].level else readers[0].container
    return NDTiffSource(folder, data_format.name, readers, follows_links=follow_links, is_stitched=is_stitched)
