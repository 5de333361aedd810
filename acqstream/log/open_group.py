"""The open group: the frames that came last, laid out in memory and in the stack file until the group is closed."""

from __future__ import annotations

from collections.abc import Callable

from acqstream.formats.ndtiff.placement import Placement, RollOver
from acqstream.log.group import Group
from acqstream.log.placing import Placing
from acqstream.log.ring import Ring
from acqstream.model.frame_header import FrameRun


class OpenGroup:
    """Finds the place of each frame, in a group that grows or in a new one. Called under the lock of the intake.

    group is None after a close. slot is the place that was reserved last and is neither committed nor abandoned.
    is_awaited: the writer waits for this group. on_closed gets every closed group.
    """

    def __init__(self, placing: Placing, ring: Ring, on_closed: Callable[[Group], None]) -> None:
        self._placing = placing
        self._ring = ring
        self._on_closed = on_closed
        self.group: Group | None = None
        self.slot: Placement | None = None
        self.is_awaited = False

    @property
    def has_frames(self) -> bool:
        """Committed frames wait in the group."""
        return self.group is not None and bool(self.group.placements)

    def place(self, frames: FrameRun) -> Placement:
        """The place of one frame; where the stack file is full, in the next one. Raises FrameRefused."""
        placement = self._placing.place(frames, self.group.placements[-1] if self.group is not None else None)
        if isinstance(placement, RollOver):
            self.close()
            placement = self._placing.place_in_next_stack(frames)
        return placement

    def reserve(self, placement: Placement) -> tuple[Group, Placement]:
        """Memory for one frame: the group that it belongs to, and its place there."""
        if placement.position > 0 and not self._extend(placement):
            self.close()  # the ring has no space after it: the frame starts a new group
            placement = self.place(placement.frames)
        group = self.group
        if placement.position == 0 or group is None:
            self.close()
            group = self.begin(placement.group_end - placement.group_start)
        self.slot = placement
        return group, placement

    def reserve_run(self, frames: FrameRun) -> tuple[Group, Placement] | None:
        """Memory for frames back to back in one group; None, with the open group closed, if they do not fit so.

        A run never loses the end of the ring, which the window counts as free. Single frames use it.
        """
        self.place(frames.first(1))  # in the next stack file, where this one is full
        group = self.group
        placement = self._placing.place_run(frames, group.placements[-1] if group is not None else None)
        if placement is not None and placement.position == 0:
            self.close()
            length = placement.group_end - placement.group_start
            if not self._ring.fits_at_head(length):
                return None
            group = self.begin(length)
        elif placement is None or not self._extend(placement):
            self.close()
            return None
        assert group is not None
        self.slot = placement
        return group, placement

    def _extend(self, placement: Placement) -> bool:
        group = self.group
        return group is not None and self._ring.extend(group.span, placement.group_end - placement.group_start)

    def begin(self, length: int) -> Group:
        """A new group with a span of `length` bytes; the one before is closed."""
        span = self._ring.allocate(length)
        try:
            self.group = Group(self._placing.stack, span)
        except BaseException:
            self._ring.release(span)
            raise
        return self.group

    def give_back(self) -> None:
        """Forget the slot, and the group if it has no frame: a slot that stays would stop the writer for ever."""
        self.slot = None
        if self.group is not None and not self.group.placements:
            self._ring.release(self.group.span)
            self.group = None

    def close(self) -> bool:
        """Hand the group on; False if a slot in it is not filled yet."""
        group = self.group
        if group is None:
            return True
        if self.slot is not None or not group.placements:
            self.is_awaited = True
            return False
        self.is_awaited = False
        group.close()
        self._placing.end = group.end
        self.group = None
        self._on_closed(group)
        return True
