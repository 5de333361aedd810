"""The front of the log: gives every frame its place in memory and in the file, in order, within the window.

No I/O. One lock guards all of it; the writer waits on its condition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from acqstream.errors import FrameRefused
from acqstream.formats.base import BLOCK_BYTES, FrameLayout, Placement, RollOver
from acqstream.log.axis_kinds import AxisKinds
from acqstream.log.continuation import Continuation
from acqstream.log.frame_keys import KeySet
from acqstream.log.group import Gap, Group, add_gap
from acqstream.log.recent_groups import GroupTable, address_of
from acqstream.log.ring import Ring
from acqstream.log.slot import Slot
from acqstream.model.cursors import Limit
from acqstream.model.frame_header import MAX_NUMBER, FrameHeader
from acqstream.model.frame_run import FrameRun

MAX_FRAMES_IN_FLIGHT = 16384  # bounds what small frames cost in Python objects: about 1 KiB each
_UNKNOWN_FRAME_SHARE = 0.5  # of the ring, granted before the first frame tells its real cost
_BLIND_FRAME_BYTES = 4 * 2**20  # of the ring for each frame granted before: its metadata may be large
_LEAST_BLIND_FRAMES = 8
_COST_DECAY = 0.98  # how fast an expensive frame is forgotten, per frame
_STOP_BESIDE = 1 / 4  # of the ring: with more beside it the window stays closed
_MOST_BESIDE = 2  # rings: more than that is taken from nobody


class Intake:
    """Places frames. Thread-safe; one slot at a time.

    layout: of the dataset; ring: the acquisition's memory; keys: the axes in use (None: axes may repeat, the later
    frame wins); on_closed: takes every group when its last frame is there, still warm in the processor's cache; but for
    those with pixels outside, which are checked when they were written; table, for views, takes all of them.
    """

    def __init__(
        self,
        layout: FrameLayout,
        ring: Ring,
        *,
        keys: KeySet | None,
        on_closed: Callable[[Group], None] = lambda _group: None,
        table: GroupTable | None = None,
    ) -> None:
        self.condition = threading.Condition()
        self.layout = layout
        self.closed: deque[Group | Gap] = deque()
        self.received = 0
        self.received_payload_bytes = 0
        self.received_frames = 0  # without the numbers that were skipped
        self.closing = False
        self._has_ended = False
        self.is_held = False  # the window stays where it is: there is no space on the disk
        self.axis_order: Sequence[str] = ()
        self.stack_header = b""
        self._ring = ring
        self._keys = keys
        self._on_closed = on_closed
        self._table = table
        self._open: Group | None = None
        self._end = 0
        self._stack = 0
        self._slot: Placement | None = None
        self._outside: deque[Group] = deque()  # with pixels in memory of the producer's, not published yet
        self._is_wanted = False  # the writer waits for the open group
        self._released = 0
        self._kinds = AxisKinds()
        self._cost_ratio = 0.0  # ring bytes per payload byte, from the last frames
        self._frame_cost = 0.0  # ring bytes per frame, from the last frames
        self._is_stopped = False
        self.window_stops = 0  # times that the window was closed because too much memory lay beside the ring
        self._last_span_bytes = 0
        self._limit = Limit(0, 0)

    def go_on_from(self, continuation: Continuation) -> None:
        """Before the first frame: go on behind the frames of an earlier run."""
        with self.condition:
            self.received = self._released = continuation.next_number
            self._kinds = continuation.axis_kinds
            self.received_payload_bytes = continuation.payload_bytes
            self.received_frames = continuation.tally.stored
            self.stack_header = continuation.stack_header
            self._end = len(self.stack_header)
            self._stack = continuation.next_stack

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
                self._outside.append(group)
            group.placements.append(placement)
            self.received += len(placement.frames)
            self.received_frames += len(placement.frames)
            self.received_payload_bytes += placement.frames.payload_bytes
            self._note_cost(group, placement)
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
            if self._ring.beside_bytes > self._ring.size_bytes * _MOST_BESIDE:
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
            self._ring.release(group.span)
        self.condition.notify_all()
        self._withdraw(frames)

    def skip(self, number: int, count: int, reason: str) -> None:
        """Frame numbers that will never come. Raises FrameRefused: gap if `number` is not the next, bad_header."""
        with self.condition:
            self._check_turn(number)
            if number + count > MAX_NUMBER:
                text = f"skip of {count} numbers from {number} on: frame numbers end at {MAX_NUMBER}"
                raise FrameRefused(text, code="bad_header", number=number)
            self.close_group()
            add_gap(self.closed, Gap(number, count, reason))
            self.received += count
            self.condition.notify_all()

    @property
    def has_frames(self) -> bool:
        """Frames wait in the open group or in closed ones. Under the lock."""
        return self.has_closed or (self._open is not None and bool(self._open.placements))

    @property
    def has_closed(self) -> bool:
        """Groups or gaps are to be written. Gaps alone wait while there is no space. Under the lock."""
        if self.is_held and not self.closing:
            return any(isinstance(entry, Group) for entry in self.closed)
        return bool(self.closed)

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
        if self._table is not None:
            self._table.add(self._stack, group)
        self._end = group.end
        self._open = None
        if group.outside is None:
            self._on_closed(group)
        self.closed.append(group)
        self.condition.notify_all()
        return True

    def release(self, groups: Sequence[Group | Gap], next_number: int) -> None:
        """Published: their memory may be used again."""
        with self.condition:
            if self._table is not None:
                self._table.release(next_number)
            for group in groups:
                if isinstance(group, Group):
                    self._ring.release(group.span)
                    group.release_outside()
            while self._outside and self._outside[0].let_go is None:
                self._outside.popleft()
            self._released = next_number
            self.condition.notify_all()

    def release_outside(self) -> None:
        """The log has ended: what was not published is given up."""
        with self.condition:
            self._has_ended = True
            while self._outside:
                self._outside.popleft().release_outside()

    def limit(self) -> Limit:
        """The window's right edge now; it never moves back."""
        with self.condition:
            frames, granted = self._grant()
            number = min(self.received + frames, self._released + MAX_FRAMES_IN_FLIGHT)
            payload = max(self._limit.payload_bytes, self.received_payload_bytes + granted)
            self._limit = Limit(max(self._limit.number, number), payload)
            return self._limit

    def _grant(self) -> tuple[int, int]:
        """Frames and payload bytes that may come besides those received."""
        if self.is_held:
            return 0, 0
        ring = self._ring
        was_stopped, self._is_stopped = self._is_stopped, ring.beside_bytes > ring.size_bytes * _STOP_BESIDE
        if self._is_stopped:
            self.window_stops += not was_stopped
            return 0, 0
        free = max(ring.size_bytes - ring.used_bytes - self._last_span_bytes, 0)
        frames = int(free / self._frame_cost) if self._frame_cost else 0
        payload = int(free / self._cost_ratio) if self._cost_ratio else 0
        if self.received == self._released:  # all is free: whatever may come must find a way in
            frames = max(frames, ring.size_bytes // _BLIND_FRAME_BYTES, _LEAST_BLIND_FRAMES)
            payload = max(payload, int(ring.size_bytes * _UNKNOWN_FRAME_SHARE))
        return frames, payload

    def _check(self, header: FrameHeader) -> None:
        self._check_turn(header.number)
        self._admit(header)

    def _admit(self, header: FrameHeader) -> None:
        """Whether this frame may be stored at all; notes its axes as taken. Raises FrameRefused."""
        if self._ring.beside_bytes > self._ring.size_bytes * _MOST_BESIDE:
            raise _too_much(header, self._ring)
        self.layout.check(header)
        self._kinds.check(header.axes, header.number)
        if self._keys is not None and not self._keys.add(header.axes):
            text = f"frame {header.number}: a frame with axes {header.axes} is stored already"
            raise FrameRefused(text, code="duplicate_axes", number=header.number)

    def _withdraw(self, frames: FrameRun) -> None:
        """These were admitted, and are not stored."""
        if self._keys is not None:
            self._keys.discard_run(frames)

    def _check_turn(self, number: int) -> None:
        if self._slot is not None:
            raise RuntimeError("the last slot was neither committed nor abandoned")
        if self.closing:
            raise FrameRefused("the acquisition is closing", code="closing", number=number)
        if number != self.received:
            raise _gap(number, self.received)

    def _place(self, frames: FrameRun) -> Placement:
        if not self.stack_header:
            self.axis_order = self.axis_order or tuple(frames.axes)
            self.stack_header = self.layout.stack_header(self.axis_order)
            self._end = len(self.stack_header)
        placement = self.layout.place(frames, self._end, self._previous())
        if isinstance(placement, RollOver):
            self.close_group()
            self._stack += 1
            self._end = len(self.stack_header)
            placement = self.layout.place(frames, self._end, None)
            if isinstance(placement, RollOver):
                raise FrameRefused("the frame fits no stack file", code="payload_size", number=frames.number)
        return placement

    def _place_run(self, frames: FrameRun) -> Slot | None:
        """All frames in one group, back to back; None, with the open group closed, if that does not go."""
        self._place(frames.first(1))  # in the next stack file, where this one is full
        placement = self.layout.place_run(frames, self._end, self._previous())
        if placement is not None and placement.position == 0:
            self._begin_group(placement)
        elif placement is None or not self._extend_group(placement):
            self.close_group()
            return None
        assert self._open is not None
        self._slot = placement
        return Slot(self, self._open, placement)

    def _previous(self) -> Placement | None:
        return self._open.placements[-1] if self._open is not None else None

    def _extend_group(self, placement: Placement) -> bool:
        group = self._open
        return group is not None and self._ring.extend(group.span, placement.group_end - placement.group_start)

    def _begin_group(self, placement: Placement) -> Group:
        self.close_group()
        return self._new_group(placement.group_end - placement.group_start)

    def _new_group(self, length: int) -> Group:
        span = self._ring.allocate(length)
        try:
            self._open = Group(self._stack, span)
        except BaseException:
            self._ring.release(span)
            raise
        return self._open

    def _note_cost(self, group: Group, placement: Placement) -> None:
        payload = placement.frames.frame_bytes
        if placement.packed:
            cost = payload + 256 + max(map(len, placement.frames.metadata))
        else:  # also outside: small frames, which are copied, may come next into the window that is granted now
            cost = placement.group_end - placement.group_start
        self._last_span_bytes = max(group.span.length, self._last_span_bytes // 2)
        self._cost_ratio = max(cost / payload, self._cost_ratio * _COST_DECAY)
        self._frame_cost = max(float(cost), self._frame_cost * _COST_DECAY)


def _too_much(header: FrameHeader, ring: Ring) -> FrameRefused:
    text = (
        f"frame {header.number}: frames with far more metadata than those before take {ring.beside_bytes} bytes beside "
        f"{ring.size_bytes} of memory; send more slowly, or less metadata"
    )
    return FrameRefused(text, code="limit_exceeded", number=header.number)


def _gap(number: int, expected: int) -> FrameRefused:
    text = f"frame {number} came where {expected} was expected; declare missing frames with skip"
    return FrameRefused(text, code="gap", number=number)
