"""Opens the container of a mirror in a folder of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_format import ChunkFormat, ChunkWriter
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.watermark_layout import WatermarkLayout
from acqstream.mirrors.publisher import Publisher
from acqstream.mirrors.watermark_publisher import WatermarkPublisher
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.free_space import SpaceBound
from acqstream.storage.stores.local_store import LocalStore
from acqstream.views.checkpoint import view_folder


def open_publisher(
    found: ChunkFormat[Any],
    container: Path,
    plan: Plan,
    options: Any,
    disk: Disk,
    *,
    announced: Sequence[ArraySpec] = (),
    announces: bool = True,
    name: str = "",
    bound: SpaceBound | None = None,
) -> ChunkWriter:
    """Create or resume a container. plan is that of the format; announces is False for one of several processes.

    announced are the levels that a new container states; empty: those of the plan. name: the dataset's; "": as in the
    container's name.
    Writing the first file raises ConfigError on a disk without holes that has no space for all planned ones.
    Raises DatasetExists if the folder holds something else, CorruptDataset if its documents are damaged, StorageError.
    """
    plan = replace(plan, name=name or container.name.removesuffix(found.suffix))
    layout = found.layout(plan, options)
    known = bound or SpaceBound(disk, str(container.parent), f"mirror {container.name}", 0)
    on_full = partial(known.require_full, *plan.sizes())
    store = LocalStore(container, disk, temporary_folder=layout.temporary_folder, on_full=on_full)
    layout = layout.with_levels(announced) if announced else layout
    lists = LocalStore(view_folder(container, "view"), disk)
    publisher: Publisher | WatermarkPublisher
    if isinstance(layout, WatermarkLayout):
        publisher = WatermarkPublisher(layout, store, container.name, announces=announces, lists=lists)
    else:
        beside = LocalStore(container.parent, disk, makes_root=False)
        publisher = Publisher(layout, store, beside, container.name, lists)
    publisher.begin()
    return publisher
