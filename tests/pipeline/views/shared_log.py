"""A log whose memory is shared, and feeds of it as another process would have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acqstream.formats.ndtiff.reader import open_readers
from acqstream.pipeline.log import Log
from acqstream.pipeline.views.feed import FrameFeed
from acqstream.pipeline.views.log_views import LogViews
from acqstream.pipeline.views.recent_groups import GroupTable, RecentGroups
from acqstream.storage.memory import PageMemory, map_memory
from tests.pipeline.make_frames import MIB, Frame, spec_of


@dataclass
class Source:
    """A log with a table, and what a reader in another process would map."""

    folder: Path
    log: Log
    table: GroupTable
    recent: RecentGroups
    feeds: list[FrameFeed] = field(default_factory=list)

    def put(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.log.append(frame.header, frame.image)
        assert self.log.wait_for_published(frames[-1].header.number + 1)

    def feed(self, *, from_memory: bool = True, may_read: Callable[[], bool] = lambda: True) -> FrameFeed:
        reader = open_readers(self.folder)[0]
        self.feeds.append(FrameFeed(reader, self.recent if from_memory else None, may_read=may_read))
        return self.feeds[-1]


@contextmanager
def source_of(folder: Path, memory_bytes: int = 16 * MIB, **more: Any) -> Iterator[Source]:
    memory, table = PageMemory(memory_bytes, shared=True), GroupTable()
    assert memory.descriptor is not None
    assert table.descriptor is not None
    recent = RecentGroups(map_memory(table.descriptor), map_memory(memory.descriptor))
    log = Log(folder, spec_of(), memory=memory.view, views=LogViews(table), **more)
    log.wait_until_open()
    source = Source(folder, log, table, recent)
    try:
        yield source
    finally:
        log.begin_close()
        log.close()
        for feed in source.feeds:
            feed.reader.close()
