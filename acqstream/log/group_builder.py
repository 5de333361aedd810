"""The way of frames from their place in the stack files to the writer: the open group, and the queue of closed ones.

No I/O. The intake calls all of it under its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acqstream.errors import AcquisitionFailed, FrameRefused
from acqstream.formats.ndtiff.layout import (
    BLOCK_BYTES,
    DIRECTORY_STEP,
    PACKED_GROUP_BYTES,
    STACK_LIMIT_BYTES,
    NDTiffLayout,
    Placement,
    RollOver,
)
from acqstream.log.continuation import Continuation
from acqstream.log.group import Gap, Group, add_gap
from acqstream.log.memory import Ring
from acqstream.log.recent_frames import GroupTable
from acqstream.model.frame_header import FrameRun
from acqstream.model.metadata import summary_json


class Placing:
    """Decides where each frame lies. The intake calls it under its lock and is its only writer.

    layout follows the summary until frame 0 fixes both; then stack_header holds the first bytes of every stack file,
    before it is empty. stack is the number of the current stack file and end the offset where the next group starts.
    axis_order names the axes of the dataset, by default those of frame 0.
    """

    def __init__(
        self,
        name: str,
        summary: Mapping[str, Any],
        *,
        overlap: tuple[int, int] | None = None,
        axis_order: Sequence[str] = (),
        stack_limit_bytes: int = STACK_LIMIT_BYTES,
    ) -> None:
        self._name = name
        self._overlap = overlap
        self._axis_order = axis_order
        self.stack_limit_bytes = stack_limit_bytes
        self.stack_header = b""
        self.stack = 0
        self.end = 0
        self._set_summary(summary)

    def _set_summary(self, summary: Mapping[str, Any]) -> None:
        self.summary = dict(summary)
        self.layout = NDTiffLayout(
            self._name, self.summary, overlap=self._overlap, stack_limit_bytes=self.stack_limit_bytes
        )

    def patch_summary(self, summary: Mapping[str, Any], *, keeps: bool) -> Mapping[str, Any]:
        """Merge into the summary metadata; return the result.

        Raises AcquisitionFailed for too much, and once frame 0 has a place; if `keeps`, nothing changes then.
        """
        if self.stack_header and keeps:
            return self.summary
        if self.stack_header:
            raise AcquisitionFailed("the summary is fixed: frame 0 has come", code="too_late")
        merged = {**self.summary, **summary}
        try:
            summary_json(merged)
        except ValueError as error:
            raise AcquisitionFailed(str(error), code="bad_header") from error
        self._set_summary(merged)
        return self.summary

    def resume(self, continuation: Continuation) -> None:
        """Before the first frame: continue in a new stack file after those of an earlier run."""
        if continuation.summary:
            self._set_summary(continuation.summary)
        self.stack_header = continuation.stack_header
        self.stack = continuation.next_stack
        self.end = len(self.stack_header)

    def header_without_frames(self) -> bytes:
        """The first bytes of the stack file of a dataset without frames; empty if there was a frame."""
        return b"" if self.stack_header else self.layout.stack_header(self._axis_order)

    def place(self, frames: FrameRun, previous: Placement | None) -> Placement | RollOver:
        """The place of a frame after `previous` in its group, or of a new group; RollOver if the file is full."""
        if not self.stack_header:
            self._axis_order = self._axis_order or tuple(frames.axes)
            self.stack_header = self.layout.stack_header(self._axis_order)
            self.end = len(self.stack_header)
        return self.layout.place(frames, self.end, previous)

    def place_run(self, frames: FrameRun, previous: Placement | None) -> Placement | None:
        """As `place`, for frames side by side in one group; None where they cannot lie so."""
        return self.layout.place_run(frames, self.end, previous)

    def place_in_next_stack(self, frames: FrameRun) -> Placement:
        """The place of a frame at the start of the next stack file. Raises FrameRefused if it fits in no file."""
        self.stack += 1
        self.end = len(self.stack_header)
        placement = self.layout.place(frames, self.end, None)
        if isinstance(placement, RollOver):
            raise FrameRefused("the frame fits no stack file", code="payload_size", number=frames.number)
        return placement


class GroupBuilder:
    """Finds the place of each frame, in a group that grows or in a new one; keeps closed groups for the writer.

    group is None after a close. slot is the place that was reserved last and is neither committed nor abandoned.
    is_awaited: the writer waits for this group. on_closed gets every closed group, and table, for followers, too.
    Closed groups and gaps wait in order of frame numbers, and keep their memory until they are published.
    """

    def __init__(
        self, placing: Placing, ring: Ring, on_closed: Callable[[Group], None], table: GroupTable | None
    ) -> None:
        self._placing = placing
        self._ring = ring
        self._on_closed = on_closed
        self._table = table
        self._closed: deque[Group | Gap] = deque()
        self._outside: deque[Group] = deque()  # with pixels in memory of the producer's, not published yet
        self.group: Group | None = None
        self.slot: Placement | None = None
        self.is_awaited = False

    # The group that grows.

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
        self.place(frames.part(0, 1))  # in the next stack file, where this one is full
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

    def count_fitting(self, frames: FrameRun) -> int:
        """How many of these frames, not all of them, certainly fit at the ring's head in a group of their own."""
        frame_bytes = frames.frame_bytes + DIRECTORY_STEP + max(map(len, frames.metadata)) + 1
        space = min(self._ring.free_at_head(), PACKED_GROUP_BYTES) - 2 * BLOCK_BYTES
        return max(0, min(len(frames) - 1, space // frame_bytes))

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
        """Queue the group for the writer; False if a slot in it is not filled yet."""
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
        if self._table is not None:
            self._table.add(group.stack, group)
        self._closed.append(group)
        return True

    # Closed groups and gaps.

    def add_gap(self, gap: Gap) -> None:
        """Close the group; skipped numbers follow it."""
        self.close()
        add_gap(self._closed, gap)

    def keep_outside(self, group: Group) -> None:
        """Note that the pixels of a group lie in memory of the producer's until it is published."""
        self._outside.append(group)

    def is_ready(self, *, gaps_wait: bool) -> bool:
        """Return True if entries wait to be written; with gaps_wait gaps alone do not count."""
        if gaps_wait:
            return any(isinstance(entry, Group) for entry in self._closed)
        return bool(self._closed)

    def pop(self, max_bytes: int, *, gaps_wait: bool) -> list[Group | Gap]:
        """Remove entries until they reach max_bytes."""
        entries: list[Group | Gap] = []
        size = 0
        while size < max_bytes and self.is_ready(gaps_wait=gaps_wait):
            entry = self._closed.popleft()
            entries.append(entry)
            size += entry.end - entry.start if isinstance(entry, Group) else 0
        return entries

    def release(self, entries: Sequence[Group | Gap], next_number: int) -> None:
        """Give back the memory of entries that were published."""
        if self._table is not None:
            self._table.release(next_number)
        for entry in entries:
            if isinstance(entry, Group):
                self._ring.release(entry.span)
                entry.release_outside()
        while self._outside and not self._outside[0].outside:
            self._outside.popleft()

    def release_outside(self) -> None:
        """Give back all memory of the producer's: the log has ended."""
        while self._outside:
            self._outside.popleft().release_outside()
