"""The place of a frame, or of several, that its pixels are to be filled into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acqstream.formats.base import Placement
from acqstream.log.group import Group

if TYPE_CHECKING:
    from acqstream.log.intake import Intake


class Slot:
    """The place of a frame, or of several small ones: fill `pixels` (payloads in C order, back to back), then `commit`,
    or `abandon` it.

    Until then it holds back the publication of small frames before it, and no other slot can be had.
    """

    __slots__ = ("_group", "_intake", "_placement", "pixels")

    def __init__(self, intake: Intake, group: Group, placement: Placement) -> None:
        self._intake = intake
        self._group = group
        self._placement = placement
        self.pixels = group.pixels_of(placement)

    def fill(self, pixels: memoryview) -> None:
        """Copy the pixels to their place and commit; where that fails the place is given back."""
        try:
            self.pixels[:] = pixels
        except BaseException:
            self.abandon()
            raise
        self.commit()

    def commit(self) -> None:
        """The pixels are there: the frames count as received and will be written."""
        self._intake.commit(self._group, self._placement)

    def abandon(self) -> None:
        """The pixels will not come; the frame numbers stay free."""
        self._intake.abandon(self._placement)
