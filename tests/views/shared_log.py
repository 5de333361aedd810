"""A log whose memory is shared, and feeds of it as another process would have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acqstream.formats.ndtiff.layout import align_up
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.log.log import Log
from acqstream.log.recent_frames import Followers, GroupTable, RecentGroups, address_of
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.storage.handover import map_memory
from acqstream.storage.page_memory import PageMemory
from acqstream.views.frame_feed import DiskAllowance, FrameFeed
from tests.log.make_frames import MIB, Frame, spec_of


@dataclass
class Source:
    """A log with a table, and what a reader in another process would map."""

    folder: Path
    log: Log
    table: GroupTable
    recent: RecentGroups
    feeds: list[FrameFeed] = field(default_factory=list)
    lent: PageMemory | None = None
    _adopted_bytes: int = 0
    _held: list[tuple[int, memoryview]] | None = None  # memory that the reader does not have yet

    def adopt(self, frames: Sequence[Frame]) -> list[memoryview]:
        """Hand frames over in memory of a producer's; their places there, which are used once."""
        if self.lent is None:
            self.lent = PageMemory(64 * MIB, shared=True)
            assert self.lent.descriptor is not None
            lent = address_of(self.lent.view), map_memory(self.lent.descriptor)
            if self._held is None:
                self.recent.lend(*lent)
            else:
                self._held.append(lent)
        places = []
        for frame in frames:
            place = self.lent.view[self._adopted_bytes : self._adopted_bytes + frame.image.nbytes]
            self._adopted_bytes += align_up(frame.image.nbytes)
            place[:] = frame.image.data.cast("B")
            self.log.adopt(frame.header, place)
            places.append(place)
        return places

    def hold_lent(self) -> Callable[[], None]:
        """The reader gets the memory of `adopt` when the returned function is called, and not before."""
        held = self._held = []
        return lambda: self.recent.lend(*held.pop())

    def put(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.log.append(frame.header, frame.image)
        assert self.log.wait_for_published(frames[-1].header.number + 1)

    def feed(self, *, from_memory: bool = True, may_read: Callable[[], bool] = lambda: True) -> FrameFeed:
        reader = open_readers(self.folder)[0]
        allowance = DiskAllowance(lambda: not may_read(), burst_s=0.0)
        self.feeds.append(FrameFeed(reader, self.recent if from_memory else None, allowance=allowance))
        return self.feeds[-1]


@contextmanager
def source_of(
    folder: Path, memory_bytes: int = 16 * MIB, spec: AcquisitionSpec | None = None, **more: Any
) -> Iterator[Source]:
    memory, table = PageMemory(memory_bytes, shared=True), GroupTable()
    assert memory.descriptor is not None
    assert table.descriptor is not None
    recent = RecentGroups(map_memory(table.descriptor), map_memory(memory.descriptor))
    log = Log(folder, spec or spec_of(), memory=memory.view, followers=Followers(table), **more)
    log.wait_until_open()
    source = Source(folder, log, table, recent)
    try:
        yield source
    finally:
        log.begin_close()
        log.close()
        for feed in source.feeds:
            feed.close()
