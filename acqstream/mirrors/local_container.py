"""Opens the container of a mirror in a folder of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acqstream.formats.chunk_format import ChunkFormat, ChunkWriter
from acqstream.formats.chunk_layout import Plan
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.disk import Disk
from acqstream.storage.local_store import LocalStore


def open_publisher(found: ChunkFormat[Any], container: Path, plan: Plan, options: Any, disk: Disk) -> ChunkWriter:
    """Create or resume a container. plan is that of the format.

    Raises DatasetExists if the folder holds something else, CorruptDataset if its documents are damaged, StorageError.
    """
    if found.create is not None:
        return found.create(container, plan.levels, options, disk)
    assert found.layout is not None
    beside = LocalStore(container.parent, disk, makes_root=False)
    publisher = Publisher(found.layout(plan, options), LocalStore(container, disk), beside, container.name)
    publisher.begin()
    return publisher
