"""Numbered messages that the producer keeps until they are safe, sent and unsent, and the places of their pixels. Pure.

Small frames of one kind share a message from the start, so that little is done for each of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from acqstream.client.frame_claims import FrameClaims
from acqstream.client.frame_ring import FrameRing
from acqstream.errors import ProtocolError
from acqstream.model.state import Limit
from acqstream.protocol.frame_batch import MAX_BATCH_FRAMES, FrameFields, FrameKind

MAX_KEPT_HEADER_BYTES = 64 * 2**20
BATCHED_FRAME_BYTES = 128 * 2**10  # larger frames gain nothing from sharing a message
BATCH_BYTES = 2 * 2**20
_OVERHEAD_BYTES = 512  # of the Python objects around one frame or skip


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

    def takes(self, kind: FrameKind, start: int, size: int) -> bool:
        """True if the message can take a frame of this kind with `size` bytes, whose pixels are at `start`."""
        return start == self.end and size <= self.free_bytes and self.numbers < MAX_BATCH_FRAMES and self.kind == kind

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

    def place(self, payload_bytes: int, header_bytes: int) -> int | None:
        """Offset in the buffer for a frame's pixels; None while the buffer is full."""
        if self._messages and self._overhead_bytes + header_bytes > MAX_KEPT_HEADER_BYTES:
            return None
        return self.ring.place(payload_bytes)

    def claim(self, start: int, size: int) -> None:
        """Tell readers of the memory, before pixels are written to the place that `place` returned."""
        if self.claims.released:
            self.claims.claim(start, start + size, self.ring.head)

    def add_frame(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int = 0) -> int:
        """Append frame number `next`, which is returned; its pixels lie at `start`, as `place` returned it."""
        size = kind.frame_bytes
        message = self._unsent[-1] if self._unsent else None
        if message is None or not message.takes(kind, start, size + metadata_bytes):
            message = OutboxMessage(self.next, 0, self.payload_bytes, kind=kind, start=start, frame_bytes=size)
            if size <= BATCHED_FRAME_BYTES:
                message.free_bytes = self.message_bytes
            self._messages.append(message)
            self._unsent.append(message)
        message.frames.append(frame)
        message.numbers += 1
        message.end = start + size
        message.free_bytes -= size + metadata_bytes
        message.overhead_bytes += metadata_bytes + _OVERHEAD_BYTES
        self._overhead_bytes += metadata_bytes + _OVERHEAD_BYTES
        self.ring.take(start, size)
        self.payload_bytes += size
        self.unsafe_payload_bytes += size
        number, self.next = self.next, self.next + 1
        return number

    def add_skip(self, header: bytes, count: int) -> None:
        """Append a message that consumes `count` numbers from `next` on."""
        message = self._skip(header, self.next, count, self.payload_bytes)
        self.next += count
        self._messages.append(message)
        self._unsent.append(message)

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
