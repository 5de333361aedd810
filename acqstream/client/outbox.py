"""Numbered messages that the producer keeps until they are safe, sent and unsent, and the places of their pixels.

Small frames of one kind share a message from the start, so that little is done for each of them.

The daemon's views read frames where their producer has put them. A published frame stays there until the ring comes
round to its place. Before a place is used again, its frames are taken back (`FrameClaims`): two integers in the shared
memory. Readers look, and drop what they have read of such a frame.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from acqstream.errors import ProtocolError
from acqstream.model.state import Limit
from acqstream.protocol.frame_batch import MAX_BATCH_FRAMES, FrameFields, FrameKind

MAX_KEPT_HEADER_BYTES = 64 * 2**20
BATCHED_FRAME_BYTES = 128 * 2**10  # larger frames gain nothing from sharing a message
BATCH_BYTES = 2 * 2**20
_OVERHEAD_BYTES = 512  # of the Python objects around one frame or skip
ALIGNMENT = 64  # a cache line
PAGE_BYTES = 4096
LARGE_FRAME_BYTES = 256 * 2**10
"""Frames of this size start on a page: a daemon that shares this memory writes them to the disk from where they are."""


@dataclass(slots=True, eq=False)
class OutboxMessage:
    """One skip of `numbers` frame numbers, or as many frames of one kind, their pixels back to back.

    header is that of a skip; kind and frames are the fields from which the header of frames is made. start and end are
    offsets in the local buffer, in bytes; frame_bytes are the pixel bytes of each frame. bytes_before are the payload
    bytes from frame 0 to this message. overhead_bytes estimates the memory besides pixels; free_bytes is how many more
    bytes the message may take.
    """

    number: int
    numbers: int
    bytes_before: int
    header: bytes = b""
    kind: FrameKind | None = None
    frames: list[FrameFields] = field(default_factory=list)
    start: int = 0
    end: int = 0
    frame_bytes: int = 0
    overhead_bytes: int = 0
    free_bytes: int = 0

    @property
    def number_end(self) -> int:
        return self.number + self.numbers

    @property
    def payload_bytes(self) -> int:
        return self.numbers * self.frame_bytes

    def takes(self, kind: FrameKind, start: int, size: int, count: int) -> bool:
        """True if the message can take frames of this kind with `size` bytes in all, whose pixels are at `start`."""
        has_room = size <= self.free_bytes and self.numbers + count <= MAX_BATCH_FRAMES
        return start == self.end and has_room and self.kind == kind

    def part(self, first: int, end: int) -> OutboxMessage:
        """Frames first .. end - 1 of this message as a new one; this message itself for all of them, or for a skip."""
        if self.kind is None or (first == 0 and end == self.numbers):
            return self
        return OutboxMessage(
            self.number + first,
            end - first,
            self.bytes_before + first * self.frame_bytes,
            kind=self.kind,
            frames=self.frames[first:end],
            start=self.start + first * self.frame_bytes,
            end=self.start + end * self.frame_bytes,
            frame_bytes=self.frame_bytes,
        )

    def drop(self, count: int) -> None:
        """Forget the first frames."""
        del self.frames[:count]
        self.overhead_bytes -= self.overhead_bytes * count // self.numbers
        self.number += count
        self.numbers -= count
        self.start += count * self.frame_bytes
        self.bytes_before += count * self.frame_bytes


class Outbox:
    """Messages from the first that is not safe yet, in order of their numbers; the last ones are unsent.

    message_bytes limits the payload of frames that share a message. claims: told of frames that are forgotten.
    """

    def __init__(self, capacity: int, claims: FrameClaims | None = None) -> None:
        self.ring = FrameRing(capacity)
        self.claims = claims or FrameClaims()
        self.declared = DeclaredGaps()
        self.next = 0
        self.payload_bytes = 0
        self.unsafe_payload_bytes = 0
        self.message_bytes = BATCH_BYTES
        self._messages: deque[OutboxMessage] = deque()
        self._unsent: deque[OutboxMessage] = deque()  # the last of `_messages`; a part of the first may be sent
        self._sent_end = 0  # the number after the last one sent
        self._overhead_bytes = 0
        self._shift_bytes = 0  # the daemon's count of payload bytes minus ours, after frames were lost

    @property
    def all_sent(self) -> bool:
        return not self._unsent

    @property
    def can_wait(self) -> bool:
        """True if the unsent frames do not fill one message, and the next frame may share it."""
        return len(self._unsent) == 1 and 0 < self._unsent[0].frame_bytes <= self._unsent[0].free_bytes

    @property
    def first_number(self) -> int:
        """The lowest frame number that could still be sent again."""
        return self._messages[0].number if self._messages else self.next

    def place(self, payload_bytes: int, header_bytes: int, count: int = 1) -> int | None:
        """Offset in the buffer for the pixels of frames of one size in a row; None while the buffer is full."""
        if self._messages and self._overhead_bytes + header_bytes * count > MAX_KEPT_HEADER_BYTES:
            return None
        return self.ring.place(payload_bytes, count)

    def frames_at_once(self, frame_bytes: int, metadata_bytes: int) -> int:
        """How many frames of this size, with at most this much metadata each, `add_frames` takes."""
        if frame_bytes > BATCHED_FRAME_BYTES:
            return 1
        return max(1, min(MAX_BATCH_FRAMES, self.message_bytes // (frame_bytes + metadata_bytes)))

    def claim(self, start: int, size: int) -> None:
        """Tell readers of the memory, before pixels are written to the place that `place` returned."""
        if self.claims.released:
            self.claims.claim(start, start + size, self.ring.head)

    def add_frames(self, kind: FrameKind, frames: Sequence[FrameFields], start: int, metadata_bytes: int = 0) -> int:
        """Append frames from number `next` on, which is returned; their pixels lie at `start`, as `place` returned it.

        At most `frames_at_once`. metadata_bytes are those of all of them.
        """
        count = len(frames)
        size = kind.frame_bytes * count
        overhead_bytes = metadata_bytes + _OVERHEAD_BYTES * count
        message = self._unsent[-1] if self._unsent else None
        if message is None or not message.takes(kind, start, size + metadata_bytes, count):
            message = OutboxMessage(
                self.next, 0, self.payload_bytes, kind=kind, start=start, frame_bytes=kind.frame_bytes
            )
            if kind.frame_bytes <= BATCHED_FRAME_BYTES:
                message.free_bytes = self.message_bytes
            self._messages.append(message)
            self._unsent.append(message)
        message.frames += frames
        message.numbers += count
        message.end = start + size
        message.free_bytes -= size + metadata_bytes
        message.overhead_bytes += overhead_bytes
        self._overhead_bytes += overhead_bytes
        self.ring.take(start, kind.frame_bytes, count)
        self.payload_bytes += size
        self.unsafe_payload_bytes += size
        number, self.next = self.next, self.next + count
        return number

    def add_skip(self, header: bytes, count: int) -> int:
        """Append a message that consumes `count` numbers from `next` on, which is returned."""
        message = self._skip(header, self.next, count, self.payload_bytes)
        self.declared.add(self.next, count)
        number, self.next = self.next, self.next + count
        self._messages.append(message)
        self._unsent.append(message)
        return number

    def _skip(self, header: bytes, number: int, count: int, bytes_before: int) -> OutboxMessage:
        overhead_bytes = len(header) + _OVERHEAD_BYTES
        self._overhead_bytes += overhead_bytes
        return OutboxMessage(number, count, bytes_before, header, overhead_bytes=overhead_bytes)

    def has_due(self, limit: Limit) -> bool:
        """True while the next unsent frame or skip lies inside the window."""
        return bool(self._unsent) and self._due_end(self._unsent[0], limit) > self._sent_end

    def take_due(self, limit: Limit, max_messages: int) -> list[OutboxMessage]:
        """The next unsent messages inside the window, at most max_messages; they count as sent."""
        due: list[OutboxMessage] = []
        while self._unsent and len(due) < max_messages:
            message = self._unsent[0]
            end = self._due_end(message, limit)
            if end <= self._sent_end:
                break
            if message.kind is not None:
                end = min(end, self._sent_end + max(1, self.message_bytes // message.frame_bytes))
            due.append(message.part(self._sent_end - message.number, end - message.number))
            self._sent_end = end
            if end == message.number_end:
                self._unsent.popleft()
        return due

    def put_back(self, number: int) -> None:
        """Undo `take_due` from this frame number on."""
        self._sent_end = number
        self._unsent = deque(message for message in self._messages if message.number_end > number)

    def release(self, count: int) -> bool:
        """Forget the messages below frame number `count`; True if that freed anything."""
        is_freed = False
        while self._messages and self._messages[0].number < count:
            message = self._messages[0]
            end = min(count, message.number_end)
            if end > self._sent_end:
                raise ProtocolError(f"the daemon acknowledges {count} frames; {self._sent_end} were sent")
            if end < message.number_end and message.kind is None:
                break  # a skip is forgotten only when all its numbers are safe
            self._forget(message, end - message.number)
            is_freed = True
        return is_freed

    def _forget(self, message: OutboxMessage, count: int) -> None:
        """Release the first `count` frames of the oldest message, or the complete message."""
        freed_bytes = count * message.frame_bytes
        self.unsafe_payload_bytes -= freed_bytes
        self._overhead_bytes -= message.overhead_bytes * count // message.numbers
        if message.kind is not None:
            self.claims.release(message.number + count, message.start, message.frame_bytes, count)
            self.ring.free(message.start + freed_bytes)
        if count == message.numbers:
            self._messages.popleft()
        else:
            message.drop(count)

    def begin(self, number: int, received_bytes: int) -> None:
        """Start at frame `number`; the frames before it, of an earlier producer, have received_bytes of payload."""
        self.declared.add(0, number)  # in the receipt of an earlier run
        self.next = self._sent_end = number
        self.payload_bytes = received_bytes

    def rewind(self, number: int, received_bytes: int, gap: bytes) -> None:
        """Mark everything from frame `number` on as unsent, as the daemon asks after a lost connection.

        received_bytes are the payload bytes that it has. gap is the message that declares the numbers from `number` to
        `first_number` lost, empty if none are. Raises ProtocolError if the daemon asks for frames that were never put.
        """
        if number > self.next:
            raise ProtocolError(
                f"the daemon asks for frame {number}; the producer has frames {self.first_number} to {self.next - 1}"
            )
        before = self._bytes_before(number)
        self._shift_bytes = received_bytes - before
        if gap and number < self.first_number:
            self._messages.appendleft(self._skip(gap, number, self.first_number - number, before))
        self.put_back(number)

    def _bytes_before(self, number: int) -> int:
        """Payload bytes of the frames before this one; for a released number those before the first message."""
        for message in self._messages:
            if message.number_end > number:
                return message.bytes_before + max(0, number - message.number) * message.frame_bytes
        return self.payload_bytes

    def _due_end(self, message: OutboxMessage, limit: Limit) -> int:
        """The number after the last frame inside the window. A skip needs no window, as it takes no memory there."""
        if message.kind is None:
            return message.number_end
        window_bytes = limit.payload_bytes - self._shift_bytes - message.bytes_before
        return min(message.number_end, limit.number, message.number + window_bytes // message.frame_bytes)


class DeclaredGaps:
    """Frame numbers that the producer declared with `skip`."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # (first, end), ascending

    def add(self, first: int, count: int) -> None:
        """Declare numbers first .. first + count - 1, all above those declared before."""
        if not count:
            return
        if self._ranges and self._ranges[-1][1] == first:
            self._ranges[-1] = (self._ranges[-1][0], first + count)
        else:
            self._ranges.append((first, first + count))

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self._ranges)

    def without(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first .. end - 1 that were not declared, as (first, end)."""
        parts = []
        # A run may have hundreds of thousands, so skip the ranges on either side.
        for position in range(bisect_right(self._ranges, first, key=itemgetter(1)), len(self._ranges)):
            declared_first, declared_end = self._ranges[position]
            if declared_first >= end:
                break
            if first < declared_first:
                parts.append((first, declared_first))
            first = declared_end
        return [*parts, (first, end)] if first < end else parts


class FrameRing:
    """Hands out byte ranges of a buffer of `capacity` bytes. None crosses the end of the buffer.

    Small frames lie back to back with those of the same size before them, so that they can share a message; others
    begin on a cache line. goes_round: large frames use all of the buffer in turn, so that what they leave lasts long;
    else an empty ring begins at its start, where the memory is in the processor's cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.goes_round = False
        self._head = 0  # the offset after the youngest frame
        self._tail: int | None = None  # offset of the oldest frame; None for an empty ring
        self._last_size = 0

    @property
    def head(self) -> int:
        """The offset after the youngest frame."""
        return self._head

    @property
    def used_bytes(self) -> int:
        """From the oldest frame to the youngest, gaps included."""
        if self._tail is None:
            return 0
        used = self._head - self._tail
        return used if used > 0 else used + self.capacity

    def place(self, size: int, count: int = 1) -> int | None:
        """Offset for `count` frames of `size` bytes, `distance` apart, or None while the ring is full.

        Takes no bytes; see `take`. May be called while another thread frees frames; the answer may then be out of date,
        which is safe.
        """
        tail = self._tail
        total = size if count == 1 else (count - 1) * distance(size) + size
        if tail is None:
            if self.goes_round and size >= LARGE_FRAME_BYTES:
                start = _round_up(self._head, PAGE_BYTES)
                if start + total <= self.capacity:
                    return start
            return 0 if total <= self.capacity else None
        start = self._head
        if size >= LARGE_FRAME_BYTES:
            start = _round_up(start, PAGE_BYTES)
        elif size != self._last_size:
            start = _round_up(start, ALIGNMENT)
        if self._head <= tail:  # the free range lies between the youngest and the oldest frame
            return start if start + total <= tail else None
        if start + total <= self.capacity:
            return start
        return 0 if total <= tail else None

    def take(self, start: int, size: int, count: int = 1) -> None:
        """Make the range that `place` returned the youngest frames; size is above 0."""
        if self._tail is None:
            self._tail = start
        self._head = start + size * count
        self._last_size = size

    def free(self, end: int) -> None:
        """Free the oldest frames up to the one that ends at `end`."""
        self._tail = None if end == self._head else end


def distance(size: int) -> int:
    """Bytes from the start of a frame of this size to that of the next one, where they are placed together."""
    return _round_up(size, PAGE_BYTES) if size >= LARGE_FRAME_BYTES else size


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


class _FrameSpan(NamedTuple):
    """A frame that still lies at start .. end - 1. number_end is one more than its number."""

    number_end: int
    start: int
    end: int


class FrameClaims:
    """The large frames that were released and not overwritten, oldest first.

    words: see `model.memory_claims`; None in memory that is not shared. `claim` is called by the thread that puts a
    frame, `release` by the one that receives the daemon's messages.
    """

    def __init__(self, words: memoryview | None = None) -> None:
        self._words = words
        self.released: deque[_FrameSpan] = deque()

    def close(self) -> None:
        """Let the memory go: the run has ended, and no frame is put after this."""
        self._words = None

    def release(self, number_end: int, start: int, frame_bytes: int, count: int) -> None:
        """Note frames up to number_end - 1, which lie back to back, before the ring may give out their place."""
        words = self._words
        if words is None:
            return
        if frame_bytes >= LARGE_FRAME_BYTES:
            self.released.append(_FrameSpan(number_end, start, start + count * frame_bytes))
        else:
            words[1] = number_end  # the daemon has copied these, and views read the copy

    def claim(self, start: int, end: int, head: int) -> None:
        """Take back what lies at start .. end - 1, before it is overwritten. head: the end of the youngest frame."""
        taken = 0
        is_round = start < head
        while self.released:
            oldest = self.released[0]
            is_passed = is_round and oldest.start >= head  # at the end of the buffer, where the new frame had no room
            if not is_passed and (oldest.start >= end or oldest.end <= start):
                break
            taken = self.released.popleft().number_end
        if taken and self._words is not None:
            self._words[0] = taken
