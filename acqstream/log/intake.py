"""The intake of the log: takes every frame in order, into its place in memory, within the window.

No I/O. One lock guards all of it; the writer waits on its condition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.placement import BLOCK_BYTES, Placement, RollOver
from acqstream.log.axis_kinds import AxisKinds
from acqstream.log.continuation import Continuation
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.group import Gap, Group
from acqstream.log.placing import Placing
from acqstream.log.recent_groups import GroupTable, address_of
from acqstream.log.ring import Ring
from acqstream.log.window import Window
from acqstream.log.write_queue import WriteQueue
from acqstream.model.cursors import Limit
from acqstream.model.frame_header import MAX_NUMBER, FrameHeader
from acqstream.model.frame_run import FrameRun


class Intake:
    """Takes frames. Thread-safe; one slot at a time.

    keys are the axes in use (None: axes may repeat, the later frame wins). on_closed gets every group when its last
    frame was taken, still warm in the processor's cache, except those with pixels outside, which are checked after they
    were written. table, for followers, gets all groups. received is the next frame number to come; received_frames
    does not count skipped numbers.
    """

    def __init__(
        self,
        placing: Placing,
        ring: Ring,
        *,
        keys: FrameKeys | None,
        on_closed: Callable[[Group], None] = lambda _group: None,
        table: GroupTable | None = None,
    ) -> None:
        self.condition = threading.Condition()
        self.placing = placing
        self.ring = ring
        self.window = Window(ring)
        self.queue = WriteQueue(ring, table)
        self.received = 0
        self.received_payload_bytes = 0
        self.received_frames = 0
        self.is_closing = False
        self._has_ended = False
        self._keys = keys
        self._kinds = AxisKinds()
        self._on_closed = on_closed
        self._open: Group | None = None
        self._slot: Placement | None = None
        self._is_wanted = False  # the writer waits for the open group

    # The life of the run.

    def resume(self, continuation: Continuation) -> None:
        """Before the first frame: continue after the frames of an earlier run."""
        with self.condition:
            self.received = self.window.released = continuation.next_number
            self._kinds = continuation.axis_kinds
            self.received_payload_bytes = continuation.payload_bytes
            self.received_frames = continuation.counts.stored
            self.placing.resume(continuation)

    def patch_summary(self, summary: Mapping[str, Any]) -> None:
        """Merge into the summary metadata. Raises AcquisitionFailed once frame 0 has come."""
        with self.condition:
            self.placing.patch_summary(summary)

    def hold(self, read_reason: Callable[[], str]) -> tuple[str, bool]:
        """Keep the window where it is while there is a reason; the reason, and whether it was kept before.

        The reason is read under the lock: of two threads the later one must leave the later state.
        """
        with self.condition:
            reason = read_reason()
            was_held, self.window.is_held = self.window.is_held, bool(reason)
            self.condition.notify_all()  # gaps waited
            return reason, was_held

    def begin_close(self) -> None:
        """Take no more frames."""
        with self.condition:
            self.is_closing = True
            self.condition.notify_all()

    def wake(self) -> None:
        """Wake the writer: a commit has ended."""
        with self.condition:
            self.condition.notify_all()

    # The producer's side.

    def reserve(self, header: FrameHeader) -> Slot:
        """The place for the next frame. Never blocks; the memory is there for frames within `limit`.

        Raises FrameRefused: gap (not the next number), axis_kind, duplicate_axes, payload_size, limit_exceeded.
        """
        with self.condition:
            frames = FrameRun.of([header])
            self._check(header)
            try:
                return self._slot_at(self._place(frames))
            except BaseException:
                self._give_back(frames)
                raise

    def adopt(self, header: FrameHeader, pixels: memoryview, release: Callable[[], None]) -> None:
        """Take the next frame as it lies in memory of the producer's; see `Log.adopt`.

        Packed frames, those without a checksum, and pixels that do not start on a block of memory, are copied. Raises
        as `reserve`.
        """
        with self.condition:
            frames = FrameRun.of([header])
            self._check(header)
            try:
                placement = self._place(frames)
                # Without the producer's checksum nothing could tell that pixels were changed before or after the write.
                if placement.packed or header.checksum is None or address_of(pixels) % BLOCK_BYTES:
                    slot = self._slot_at(placement)
                else:
                    self._adopt(placement, pixels, release)
                    return
            except BaseException:
                self._give_back(frames)
                raise
        slot.fill(pixels)
        release()

    def _adopt(self, placement: Placement, pixels: memoryview, release: Callable[[], None]) -> None:
        self.close_group()
        tail = BLOCK_BYTES if len(pixels) % BLOCK_BYTES else 0
        group = self._new_group(placement.pixels - placement.group_start + tail)
        group.outside, group.let_go = pixels, release
        self.commit(group, placement)

    def _slot_at(self, placement: Placement) -> Slot:
        if placement.position > 0 and not self._extend_group(placement):
            self.close_group()  # no room behind it in the ring: the frame starts a new group
            placement = self._place(placement.frames)
        group = self._open
        if placement.position == 0 or group is None:
            group = self._begin_group(placement)
        self._slot = placement
        return Slot(self, group, placement)

    def commit(self, group: Group, placement: Placement) -> None:
        """Take a filled slot into its group."""
        with self.condition:
            self._slot = None
            if self._has_ended:
                return  # filled too late: it counts as not received, as the receipt says
            first = not self.has_frames or self._is_wanted
            if group.let_go is not None:
                self.queue.keep_outside(group)
            group.placements.append(placement)
            self.received += len(placement.frames)
            self.received_frames += len(placement.frames)
            self.received_payload_bytes += placement.frames.payload_bytes
            self.window.note_cost(group.span, placement)
            if not placement.packed:
                self.close_group()
            elif first:
                self.condition.notify_all()  # the writer sets its deadline

    def reserve_run(self, frames: FrameRun) -> Slot | None:
        """One slot for frames whose pixels come back to back; None if they cannot all be stored so.

        Then nothing has changed, and `reserve` tells frame by frame what stands in the way.
        """
        with self.condition:
            self._check_turn(frames.number)
            if self.window.is_overfull:
                return None
            try:
                self._kinds.check_run(frames)
            except FrameRefused:
                return None
            if self._keys is not None and not self._keys.add_run(frames):
                return None
            slot = None
            try:
                slot = self._place_run(frames) or self._place_run(frames)  # once more, in a group of its own
            except FrameRefused:
                pass
            finally:
                if slot is None:
                    self._give_back(frames)
            return slot

    def abandon(self, placement: Placement) -> None:
        """Forget a slot as if it had never been asked for."""
        with self.condition:
            self._give_back(placement.frames)

    def _give_back(self, frames: FrameRun) -> None:
        """These were admitted, and nobody will fill their place: a slot that stays would stop the writer for ever."""
        if frames.number < self.received:
            return  # they were received before something else failed: the writer has them
        self._slot = None
        group = self._open
        if group is not None and not group.placements:
            self._open = None
            self.ring.release(group.span)
        self.condition.notify_all()
        if self._keys is not None:
            self._keys.discard_run(frames)

    def skip(self, number: int, count: int, reason: str) -> None:
        """Frame numbers that will never come. Raises FrameRefused: gap if `number` is not the next, bad_header."""
        with self.condition:
            self._check_turn(number)
            if number + count > MAX_NUMBER:
                text = f"skip of {count} numbers from {number} on: frame numbers end at {MAX_NUMBER}"
                raise FrameRefused(text, code="bad_header", number=number)
            self.close_group()
            self.queue.add_gap(Gap(number, count, reason))
            self.received += count
            self.condition.notify_all()

    def limit(self) -> Limit:
        """The window's right edge now; it never moves back."""
        with self.condition:
            return self.window.limit(self.received, self.received_payload_bytes)

    # Places.

    def _check(self, header: FrameHeader) -> None:
        self._check_turn(header.number)
        self._admit(header)

    def _admit(self, header: FrameHeader) -> None:
        """Whether this frame may be stored at all; notes its axes as taken. Raises FrameRefused."""
        if self.window.is_overfull:
            raise self.window.refusal(header.number)
        self.placing.layout.check(header)
        self._kinds.check(header.axes, header.number)
        if self._keys is not None and not self._keys.add(header.axes):
            text = f"frame {header.number}: a frame with axes {header.axes} is stored already"
            raise FrameRefused(text, code="duplicate_axes", number=header.number)

    def _check_turn(self, number: int) -> None:
        if self._slot is not None:
            raise RuntimeError("the last slot was neither committed nor abandoned")
        if self.is_closing:
            raise FrameRefused("the acquisition is closing", code="closing", number=number)
        if number != self.received:
            raise _gap(number, self.received)

    def _place(self, frames: FrameRun) -> Placement:
        placement = self.placing.place(frames, self._open.placements[-1] if self._open is not None else None)
        if isinstance(placement, RollOver):
            self.close_group()
            placement = self.placing.place_in_next_stack(frames)
        return placement

    def _place_run(self, frames: FrameRun) -> Slot | None:
        """All frames in one group, back to back; None, with the open group closed, if that does not go."""
        self._place(frames.first(1))  # in the next stack file, where this one is full
        placement = self.placing.place_run(frames, self._open.placements[-1] if self._open is not None else None)
        if placement is not None and placement.position == 0:
            self._begin_group(placement)
        elif placement is None or not self._extend_group(placement):
            self.close_group()
            return None
        assert self._open is not None
        self._slot = placement
        return Slot(self, self._open, placement)

    def _extend_group(self, placement: Placement) -> bool:
        group = self._open
        return group is not None and self.ring.extend(group.span, placement.group_end - placement.group_start)

    def _begin_group(self, placement: Placement) -> Group:
        self.close_group()
        return self._new_group(placement.group_end - placement.group_start)

    def _new_group(self, length: int) -> Group:
        span = self.ring.allocate(length)
        try:
            self._open = Group(self.placing.stack, span)
        except BaseException:
            self.ring.release(span)
            raise
        return self._open

    # The writer's side.

    @property
    def has_frames(self) -> bool:
        """Frames wait in the open group or in closed ones. Under the lock."""
        return (self._open is not None and bool(self._open.placements)) or self.has_closed

    @property
    def has_closed(self) -> bool:
        """Groups or gaps are to be written. Gaps alone wait while the disk is full. Under the lock."""
        return self.queue.is_ready(gaps_wait=self.window.is_held and not self.is_closing)

    def pop_closed(self, max_bytes: int) -> list[Group | Gap]:
        """Remove what is to be written, until it reaches max_bytes. Under the lock."""
        return self.queue.pop(max_bytes, gaps_wait=self.window.is_held and not self.is_closing)

    def close_group(self) -> bool:
        """Hand the open group to the writer; False if a slot in it is not filled yet. Under the lock."""
        group = self._open
        if group is None:
            return True
        if self._slot is not None or not group.placements:
            self._is_wanted = True
            return False
        self._is_wanted = False
        group.close()
        self.placing.end = group.end
        self._open = None
        if group.outside is None:
            self._on_closed(group)
        self.queue.add(group)
        self.condition.notify_all()
        return True

    def release(self, groups: Sequence[Group | Gap], next_number: int) -> None:
        """Published: their memory may be used again."""
        with self.condition:
            self.queue.release(groups, next_number)
            self.window.released = next_number
            self.condition.notify_all()

    def release_outside(self) -> None:
        """The log has ended: frames that were not published are abandoned."""
        with self.condition:
            self._has_ended = True
            self.queue.release_outside()


class Slot:
    """The place of a frame, or of several small ones: fill `pixels` (payloads in C order, back to back), then `commit`
    or `abandon` it.

    Until then it holds back the publication of small frames before it, and no other slot is given.
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
        """The pixels are complete: the frames count as received and will be written."""
        self._intake.commit(self._group, self._placement)

    def abandon(self) -> None:
        """The pixels will not come; the frame numbers stay free."""
        self._intake.abandon(self._placement)


def _gap(number: int, expected: int) -> FrameRefused:
    text = f"frame {number} came where {expected} was expected; declare missing frames with skip"
    return FrameRefused(text, code="gap", number=number)
