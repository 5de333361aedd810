"""The place of a frame, or of several, that its pixels are to be filled into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acqstream.formats.base import Placement
from acqstream.pipeline.group import Group

if TYPE_CHECKING:
    from acqstream.pipeline.intake import Intake


class Slot:
    """The place of one frame: fill `pixels` (its payload, C order), then `commit`, or `abandon` it.

    Until then it holds back the publication of small frames before it, and no other slot can be had.
    """

    __slots__ = ("_group", "_intake", "header", "pixels", "placement")

    def __init__(self, intake: Intake, group: Group, placement: Placement) -> None:
        self._intake = intake
        self._group = group
        self.placement = placement
        self.header = placement.header
        self.pixels = group.pixels_of(placement)

    def commit(self) -> None:
        """The pixels are there: the frame counts as received and will be written."""
        self._intake.commit(self._group, self.placement)

    def abandon(self) -> None:
        """The pixels will not come; the frame number stays free."""
        self._intake.abandon(self._group, self.placement)


class RunSlot:
    """The place of several small frames of one kind, whose pixels lie back to back in `pixels`.

    As `Slot`: fill it, then `commit` or `abandon` all of them.
    """

    __slots__ = ("_group", "_intake", "headers", "pixels", "placements")

    def __init__(self, intake: Intake, group: Group, placements: Sequence[Placement]) -> None:
        self._intake = intake
        self._group = group
        self.placements = placements
        self.headers = [placement.header for placement in placements]
        first, last = placements[0], placements[-1]
        start = first.pixels - first.group_start
        self.pixels = group.span.memory[start : start + last.pixels_end - first.pixels]

    def commit(self) -> None:
        """All pixels are there."""
        self._intake.commit_run(self._group, self.placements)

    def abandon(self) -> None:
        """The pixels will not come; the frame numbers stay free."""
        self._intake.abandon(self._group, *self.placements)
