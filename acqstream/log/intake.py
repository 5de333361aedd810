"""The intake of the log: takes every frame in order, into its place in memory, within the window.

No I/O. One lock guards all of it; the writer waits on its condition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.placement import BLOCK_BYTES, Placement
from acqstream.log.axis_kinds import AxisKinds
from acqstream.log.continuation import Continuation
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.group import Gap, Group
from acqstream.log.open_group import OpenGroup
from acqstream.log.placing import Placing
from acqstream.log.recent_groups import GroupTable, address_of
from acqstream.log.ring import Ring
from acqstream.log.window import Window
from acqstream.log.write_queue import WriteQueue
from acqstream.model.frame_header import MAX_NUMBER, FrameHeader, FrameRun
from acqstream.model.state import Limit


class Intake:
    """Takes frames. Thread-safe; one slot at a time.

    keys are the axes in use (None: axes may repeat, the later frame wins). on_closed gets every group when its last
    frame was taken, still warm in the processor's cache, except those with pixels outside, which are checked after they
    were written. table, for followers, gets all groups. received is the next number to come; received_frames does not
    count gaps. received_payload_bytes counts refused frames, as their producer does.
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
        self._open = OpenGroup(placing, ring, self._add_closed)

    # The life of the run.

    def resume(self, continuation: Continuation) -> None:
        """Before the first frame: continue after the frames of an earlier run."""
        with self.condition:
            self.received = self.window.released = continuation.next_number
            self._kinds = continuation.axis_kinds
            self.received_payload_bytes = continuation.payload_bytes
            self.received_frames = continuation.counts.stored
            self.placing.resume(continuation)

    def patch_summary(self, summary: Mapping[str, Any], *, keeps: bool) -> Mapping[str, Any]:
        """As that of `placing`."""
        with self.condition:
            return self.placing.patch_summary(summary, keeps=keeps)

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
        """Refuse further frames."""
        with self.condition:
            self.is_closing = True
            self.condition.notify_all()

    def wake(self) -> None:
        """Wake the writer: a commit has ended."""
        with self.condition:
            self.condition.notify_all()

    # The producer's side.

    def reserve(self, header: FrameHeader) -> Slot:
        """The place for the next frame. Never blocks; frames within `limit` have memory. Raises FrameRefused."""
        with self.condition:
            frames = FrameRun.of([header])
            self._check(header)
            try:
                return Slot(self, *self._open.reserve(self._open.place(self._kinds.in_order(frames))))
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
                placement = self._open.place(self._kinds.in_order(frames))
                # Only the producer's checksum shows a change of the pixels before or after the write.
                if not (placement.packed or header.checksum is None or address_of(pixels) % BLOCK_BYTES):
                    self._adopt(placement, pixels, release)
                    return
                slot = Slot(self, *self._open.reserve(placement))
            except BaseException:
                self._give_back(frames)
                raise
        slot.fill(pixels)
        release()

    def _adopt(self, placement: Placement, pixels: memoryview, release: Callable[[], None]) -> None:
        self._open.close()
        tail = BLOCK_BYTES if len(pixels) % BLOCK_BYTES else 0
        group = self._open.begin(placement.pixels - placement.group_start + tail)
        group.outside, group.let_go = pixels, release
        self.commit(group, placement)

    def commit(self, group: Group, placement: Placement) -> None:
        """Take a filled slot into its group."""
        with self.condition:
            self._open.slot = None
            if self._has_ended:
                return  # filled too late: the receipt counts it as not received
            first = not self.has_frames or self._open.is_awaited
            if group.let_go is not None:
                self.queue.keep_outside(group)
            group.placements.append(placement)
            count = len(placement.frames)
            self.received += count
            self.received_frames += count
            self.received_payload_bytes += placement.frames.payload_bytes
            self.window.note_cost(group.span, placement)
            if not placement.packed:
                self._open.close()
            elif first:
                self.condition.notify_all()  # the writer sets its deadline

    def reserve_run(self, frames: FrameRun) -> Slot | None:
        """One slot for frames whose pixels come back to back; None if they cannot all be stored so.

        Then nothing has changed, and `reserve` raises the reason frame by frame.
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
                frames = self._kinds.in_order(frames)
                place = self._open.reserve_run(frames) or self._open.reserve_run(frames)  # in a group of its own
                slot = Slot(self, *place) if place is not None else None
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
        """Forget frames that were admitted and whose place will not be filled."""
        if frames.number < self.received:
            return  # they were received before something else failed: the writer has them
        self._open.give_back()
        self.condition.notify_all()
        self._kinds.forget(frames.number)
        if self._keys is not None:
            self._keys.discard_run(frames)

    def skip(self, number: int, count: int, reason: str, *, refused_bytes: int | None = None) -> None:
        """Numbers that will never come, or a frame refused with its payload. Raises FrameRefused: gap, bad_header."""
        with self.condition:
            self._check_turn(number)
            if number + count > MAX_NUMBER:
                text = f"skip of {count} numbers from {number} on: frame numbers end at {MAX_NUMBER}"
                raise FrameRefused(text, code="bad_header", number=number)
            self._open.close()
            self.queue.add_gap(Gap(number, count, reason, refused_bytes))
            self.received += count
            self.received_payload_bytes += refused_bytes or 0
            self.condition.notify_all()

    def limit(self) -> Limit:
        """The window's right edge now; it never moves back."""
        with self.condition:
            return self.window.limit(self.received, self.received_payload_bytes)

    def _check(self, header: FrameHeader) -> None:
        """Check that the frame may be stored, and note its axes as used. Raises FrameRefused."""
        self._check_turn(header.number)
        if self.window.is_overfull:
            raise self.window.refusal(header.number)
        self.placing.layout.check(header)
        self._kinds.check(header.axes, header.number)
        if self._keys is not None and not self._keys.add(header.axes):
            raise FrameRefused(_duplicate(header), code="duplicate_axes", number=header.number)

    def _check_turn(self, number: int) -> None:
        if self._open.slot is not None:
            raise RuntimeError("the last slot was neither committed nor abandoned")
        if self.is_closing:
            raise FrameRefused("the acquisition is closing", code="closing", number=number)
        if number != self.received:
            raise _gap(number, self.received)

    # The writer's side.

    @property
    def has_frames(self) -> bool:
        """Frames wait in the open group or in closed ones. Under the lock."""
        return self._open.has_frames or self.has_closed

    @property
    def has_closed(self) -> bool:
        """Groups or gaps are to be written. Gaps alone wait while the disk is full. Under the lock."""
        return self.queue.is_ready(gaps_wait=self.window.is_held and not self.is_closing)

    def pop_closed(self, max_bytes: int) -> list[Group | Gap]:
        """Remove what is to be written, until it reaches max_bytes. Under the lock."""
        return self.queue.pop(max_bytes, gaps_wait=self.window.is_held and not self.is_closing)

    def close_group(self) -> bool:
        """Hand the open group to the writer; False if a slot in it is not filled yet. Under the lock."""
        return self._open.close()

    def _add_closed(self, group: Group) -> None:
        if group.outside is None:
            self._on_closed(group)
        self.queue.add(group)
        self.condition.notify_all()

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


def _duplicate(header: FrameHeader) -> str:
    """What is wrong, and what to do."""
    text = f"frame {header.number}: a frame with axes {dict(header.axes)} is stored already"
    if not header.axes:
        return f"{text}; give each frame a place of its own, as put(image, time=i)"
    return f"{text}; give each frame axes of its own, or create the run with duplicates='replace'"
