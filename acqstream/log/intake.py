"""The intake of the log: takes every frame in order, into its place in memory, within the window.

No I/O. One lock guards all of it; the writer waits on its condition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.layout import BLOCK_BYTES, LARGE_FRAME_BYTES, Placement
from acqstream.log.continuation import Continuation
from acqstream.log.frame_keys import AxisKinds, FrameKeys
from acqstream.log.group import Gap, Group
from acqstream.log.group_builder import GroupBuilder, Placing
from acqstream.log.memory import Ring, Span
from acqstream.log.recent_frames import GroupTable, address_of
from acqstream.model.frame_header import MAX_NUMBER, FrameHeader, FrameRun
from acqstream.model.state import Limit

MAX_FRAMES_IN_FLIGHT = 16384  # bounds what small frames cost in Python objects: about 1 KiB each
_UNKNOWN_FRAME_SHARE = 0.5  # of the ring, granted before the first frame shows its real cost
_BLIND_FRAME_BYTES = 4 * 2**20  # of the ring for each frame granted before: its metadata may be large
_MIN_BLIND_FRAMES = 8
_COST_DECAY = 0.98  # how fast an expensive frame is forgotten, per frame
_STOP_BESIDE = 1 / 4  # of the ring: with more memory beside it the window stays closed
_MAX_BESIDE = 2  # rings: with more memory beside them no frame is taken


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
        self.received = 0
        self.received_payload_bytes = 0
        self.received_frames = 0
        self.is_closing = False
        self._has_ended = False
        self._keys = keys
        self._kinds = AxisKinds()
        self._on_closed = on_closed
        self._groups = GroupBuilder(placing, ring, self._note_closed, table)

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
                return Slot(self, *self._groups.reserve(self._groups.place(self._kinds.in_order(frames))))
            except BaseException:
                self._give_back(frames)
                raise

    def adopt(self, header: FrameHeader, pixels: memoryview) -> None:
        """Take the next frame as it lies in memory of the producer's; see `Log.adopt`.

        Packed frames, those without a checksum, and pixels that do not start on a block of memory, are copied. Raises
        as `reserve`.
        """
        with self.condition:
            frames = FrameRun.of([header])
            self._check(header)
            try:
                placement = self._groups.place(self._kinds.in_order(frames))
                # Only the producer's checksum shows a change of the pixels before or after the write.
                if not (placement.packed or header.checksum is None or address_of(pixels) % BLOCK_BYTES):
                    self._adopt(placement, pixels)
                    return
                slot = Slot(self, *self._groups.reserve(placement))
            except BaseException:
                self._give_back(frames)
                raise
        slot.fill(pixels)

    def _adopt(self, placement: Placement, pixels: memoryview) -> None:
        self._groups.close()
        tail = BLOCK_BYTES if len(pixels) % BLOCK_BYTES else 0
        group = self._groups.begin(placement.pixels - placement.group_start + tail)
        group.outside = pixels
        self.commit(group, placement)

    def commit(self, group: Group, placement: Placement) -> None:
        """Take a filled slot into its group."""
        with self.condition:
            self._groups.slot = None
            if self._has_ended:
                return  # filled too late: the receipt counts it as not received
            first = not self.has_frames or self._groups.is_awaited
            if group.outside is not None:
                self._groups.keep_outside(group)
            group.placements.append(placement)
            count = len(placement.frames)
            self.received += count
            self.received_frames += count
            self.received_payload_bytes += placement.frames.payload_bytes
            self.window.note_cost(group.span, placement)
            if not placement.packed:
                self._groups.close()
            elif first:
                self.condition.notify_all()  # the writer sets its deadline

    def reserve_run(self, frames: FrameRun) -> Slot | None:
        """One slot for frames whose pixels come back to back, or for the first of them, up to the ring's end.

        None if they cannot be stored so: then nothing has changed, and `reserve` raises the reason frame by frame.
        """
        with self.condition:
            self._check_turn(frames.number)
            if self.window.is_overfull or frames.frame_bytes >= LARGE_FRAME_BYTES:
                return None
            admitted = self._admit(frames)
            if admitted is None:
                return None
            slot = None
            try:
                slot = Slot(self, *(self._place_run(admitted) or self._place_first(admitted)))
            except FrameRefused:
                pass
            finally:
                if slot is None:
                    self._give_back(admitted)
            return slot

    def _admit(self, frames: FrameRun) -> FrameRun | None:
        """These frames with their axes in order, now in use; None, with nothing changed, where one cannot be stored."""
        try:
            self._kinds.check_run(frames)
        except FrameRefused:
            return None
        if self._keys is not None and not self._keys.add_run(frames):
            return None
        return self._kinds.in_order(frames)

    def _place_run(self, frames: FrameRun) -> tuple[Group, Placement] | None:
        return self._groups.reserve_run(frames) or self._groups.reserve_run(frames)  # in a group of its own

    def _place_first(self, frames: FrameRun) -> tuple[Group, Placement]:
        """A place for the first of these frames, up to the end of the ring or the stack file; others may come again."""
        count, place = self._groups.count_fitting(frames), None
        while count > 1 and (place := self._groups.reserve_run(frames.part(0, count))) is None:
            count //= 2  # the stack file ends before the ring
        place = place or self._groups.reserve(self._groups.place(frames.part(0, 1)))
        if self._keys is not None:
            self._keys.discard_run(frames.part(len(place[1].frames), len(frames)))
        return place

    def abandon(self, placement: Placement) -> None:
        """Forget a slot as if it had never been asked for."""
        with self.condition:
            self._give_back(placement.frames)

    def _give_back(self, frames: FrameRun) -> None:
        """Forget frames that were admitted and whose place will not be filled."""
        if frames.number < self.received:
            return  # they were received before something else failed: the writer has them
        self._groups.give_back()
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
            self._groups.add_gap(Gap(number, count, reason, refused_bytes))
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
        if self._groups.slot is not None:
            raise RuntimeError("the last slot was neither committed nor abandoned")
        if self.is_closing:
            raise FrameRefused("the acquisition is closing", code="closing", number=number)
        if number != self.received:
            raise _gap(number, self.received)

    # The writer's side.

    @property
    def has_frames(self) -> bool:
        """Frames wait in the open group or in closed ones. Under the lock."""
        return self._groups.has_frames or self.has_closed

    @property
    def has_closed(self) -> bool:
        """Groups or gaps are to be written. Gaps alone wait while the disk is full. Under the lock."""
        return self._groups.is_ready(gaps_wait=self.window.is_held and not self.is_closing)

    def pop_closed(self, max_bytes: int) -> list[Group | Gap]:
        """Remove what is to be written, until it reaches max_bytes. Under the lock."""
        return self._groups.pop(max_bytes, gaps_wait=self.window.is_held and not self.is_closing)

    def close_group(self) -> bool:
        """Hand the open group to the writer; False if a slot in it is not filled yet. Under the lock."""
        return self._groups.close()

    def _note_closed(self, group: Group) -> None:
        if group.outside is None:
            self._on_closed(group)
        self.condition.notify_all()

    def release(self, groups: Sequence[Group | Gap], next_number: int) -> None:
        """Published: their memory may be used again."""
        with self.condition:
            self._groups.release(groups, next_number)
            self.window.released = next_number
            self.condition.notify_all()

    def release_outside(self) -> None:
        """The log has ended: frames that were not published are abandoned."""
        with self.condition:
            self._has_ended = True
            self._groups.release_outside()
            self.ring.close()


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

    @property
    def count(self) -> int:
        """How many frames it is for."""
        return len(self._placement.frames)

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


class Window:
    """The limit that a producer is granted. The intake calls it under its lock and is its only writer.

    is_held: the limit stays where it is, because the disk is full. released is the frame number below which memory was
    given back. stops counts the times that the window was closed
    because too much memory lay beside the ring.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.is_held = False
        self.released = 0
        self.stops = 0
        self._is_stopped = False
        self._cost_ratio = 0.0  # ring bytes per payload byte, from the last frames
        self._frame_cost = 0.0  # ring bytes per frame, from the last frames
        self._last_span_bytes = 0
        self._limit = Limit(0, 0)

    @property
    def is_overfull(self) -> bool:
        """So much memory lies beside the ring that no frame is taken."""
        return self._ring.beside_bytes > self._ring.size_bytes * _MAX_BESIDE

    def note_cost(self, span: Span, placement: Placement) -> None:
        """Learn from frames that were received."""
        payload = placement.frames.frame_bytes
        if placement.packed:
            cost = payload + 256 + max(map(len, placement.frames.metadata))
        else:  # also outside: small frames, which are copied, may come next into the window that is granted now
            cost = placement.group_end - placement.group_start
        self._last_span_bytes = max(span.length, self._last_span_bytes // 2)
        self._cost_ratio = max(cost / payload, self._cost_ratio * _COST_DECAY)
        self._frame_cost = max(float(cost), self._frame_cost * _COST_DECAY)

    def limit(self, received: int, received_payload_bytes: int) -> Limit:
        """The right edge now; it never moves back."""
        frames, granted = self._grant(is_empty=received == self.released)
        number = min(received + frames, self.released + MAX_FRAMES_IN_FLIGHT)
        payload = max(self._limit.payload_bytes, received_payload_bytes + granted)
        self._limit = Limit(max(self._limit.number, number), payload)
        return self._limit

    def _grant(self, *, is_empty: bool) -> tuple[int, int]:
        """Frames and payload bytes that may come besides those received."""
        if self.is_held:
            return 0, 0
        ring = self._ring
        was_stopped, self._is_stopped = self._is_stopped, ring.beside_bytes > ring.size_bytes * _STOP_BESIDE
        if self._is_stopped:
            self.stops += not was_stopped
            return 0, 0
        free = max(ring.size_bytes - ring.used_bytes - self._last_span_bytes, 0)
        frames = int(free / self._frame_cost) if self._frame_cost else 0
        payload = int(free / self._cost_ratio) if self._cost_ratio else 0
        if is_empty:  # all is free: whatever may come must find a way in
            frames = max(frames, ring.size_bytes // _BLIND_FRAME_BYTES, _MIN_BLIND_FRAMES)
            payload = max(payload, int(ring.size_bytes * _UNKNOWN_FRAME_SHARE))
        return frames, payload

    def refusal(self, number: int) -> FrameRefused:
        """The error for a frame that comes while the window is overfull."""
        text = (
            f"frame {number}: frames with far more metadata than those before take {self._ring.beside_bytes} bytes "
            f"beside {self._ring.size_bytes} of memory; send more slowly, or less metadata"
        )
        return FrameRefused(text, code="limit_exceeded", number=number)
