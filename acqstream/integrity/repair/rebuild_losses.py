"""What a rebuilt index leaves out: lost frames, and old entries that are not used again."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.formats.ndtiff.entry_walk import EntryFacts
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.page_walk import Loss
from acqstream.integrity.repair.rebuilt_frame import RebuiltFrame, key_of, show_axes
from acqstream.integrity.repair.repair_report import LevelReport

_SAME_PLACE_BYTES = 8192  # from where a page was lost to the pixels that an entry places there


class RebuildLosses:
    """Losses of one rebuild. `report` puts each lost frame into the level's report once, however often it was met.

    torn are the losses that the walks through the pages met, by stack file: places, not yet frames. placed_by_entry
    are stack file and pixel offset of frames that only their old entry places: what is torn there is not lost.
    """

    def __init__(self, index: EntryFacts, report: LevelReport) -> None:
        self._index = index
        self._report = report
        self.torn: dict[str, list[Loss]] = {}
        self.placed_by_entry: list[tuple[str, int]] = []
        self._frames: dict[str, list[Loss]] = {}  # by stack file
        self._dropped: list[int] = []  # rows of old entries

    def drop(self, rows: list[int], why: str) -> None:
        """Leave out old entries; row -1 stands for a frame without one."""
        for row in rows:
            if row >= 0:
                self._dropped.append(row)
                self._report.dropped.add(INDEX_NAME, self._index.starts[row], why)

    def add(self, name: str, offset: int, why: str, row: int = -1) -> bool:
        """Count a frame as lost, and drop its old entry. Always False: the frame is not taken."""
        self._forget_torn(name, offset)
        self._frames.setdefault(name, []).append(Loss(offset, why))
        self.drop([row], "its frame is lost")
        return False

    def report(self, frames: Sequence[RebuiltFrame]) -> None:
        """Report frames that are lost by the pages or the journal, and those known from a dropped entry only.

        frames are those of the new index.
        """
        for name, offset in self.placed_by_entry:
            self._forget_torn(name, offset)
        self._add_dropped(frames)
        for name in dict.fromkeys([*self.torn, *self._frames]):
            losses = [*self.torn.get(name, []), *self._frames.get(name, [])]
            for loss in sorted(losses, key=lambda loss: loss.offset):
                self._report.lost.add(name, loss.offset, loss.reason)

    def _add_dropped(self, frames: Sequence[RebuiltFrame]) -> None:
        """Dropped entries whose frame is neither in the new index under its axes nor counted as lost already."""
        if not self._dropped:
            return  # a clean rebuild need not compare the axes of all frames
        keys = {key_of(frame.axes()) for frame in frames}
        places = {(frame.stack, frame.offset) for frame in frames}
        places |= {(name, loss.offset) for name, losses in self._frames.items() for loss in losses}
        for row in self._dropped:
            name, offset = self._index.names[row], int(self._index.numbers["pixel_offset"][row])
            axes = self._index.axes(row)
            if key_of(axes) not in keys and (name, offset) not in places:
                places.add((name, offset))
                reason = self._forget_torn(name, offset) or "it is not in the file"
                text = f"the frame at {show_axes(axes)} of the old index: {reason}"
                self._frames.setdefault(name, []).append(Loss(offset, text))

    def _forget_torn(self, name: str, offset: int) -> str:
        """Replace the loss of a page at the place of a frame by the frame itself. The page's reason, or ""."""
        torn = self.torn.get(name, [])
        near = [loss for loss in torn if 0 <= offset - loss.offset <= _SAME_PLACE_BYTES]
        if not near:
            return ""
        last = max(near, key=lambda loss: loss.offset)  # the page nearest before the pixels
        torn.remove(last)
        return last.reason
