"""What the producer holds until it is safe: numbered messages, sent and unsent, and their pixels. Pure.

Small frames of one kind are put together into messages as they come: little is done for each of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from acqstream.client.frame_ring import FrameRing
from acqstream.errors import ProtocolError
from acqstream.model.cursors import Limit
from acqstream.protocol.frame_batch import MAX_BATCH_FRAMES
from acqstream.protocol.request_fields import FrameFields, FrameKind

MAX_HELD_HEADER_BYTES = 64 * 2**20
BATCHED_FRAME_BYTES = 128 * 2**10  # larger frames gain nothing from sharing a message
BATCH_BYTES = 2 * 2**20
_OVERHEAD_BYTES = 512  # of the Python objects around one frame or skip


@dataclass(slots=True, eq=False)
class HeldMessage:
    """One skip of so many numbers, or frames of one kind, their pixels back to back.

    header is that of a skip; kind and frames are what a header says of frames. start and end are offsets in the local
    buffer, frame_bytes the pixels of each frame; bytes_before are the payload bytes since frame 0, this message not
    included; held_bytes is about what is held besides pixels; room is how many more bytes may come into it.
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
    held_bytes: int = 0
    room: int = 0

    @property
    def number_end(self) -> int:
        return self.number + self.numbers

    @property
    def payload_bytes(self) -> int:
        return self.numbers * self.frame_bytes

    def takes(self, kind: FrameKind, start: int, size: int) -> bool:
        """True if a frame of this kind, whose pixels are at `start`, may come into this message with so many bytes."""
        return start == self.end and size <= self.room and self.numbers < MAX_BATCH_FRAMES and self.kind == kind

    def part(self, first: int, end: int) -> HeldMessage:
        """The frames at these positions, as a message of their own; all of them, or a skip, as it is."""
        if self.kind is None or (first == 0 and end == self.numbers):
            return self
        return HeldMessage(
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
        self.held_bytes -= self.held_bytes * count // self.numbers
        self.number += count
        self.numbers -= count
        self.start += count * self.frame_bytes
        self.bytes_before += count * self.frame_bytes


class Outbox:
    """Messages from the first that is not safe yet, in order of their numbers; the last of them are unsent.

    message_bytes is the most that frames which share a message may have.
    """

    def __init__(self, capacity: int) -> None:
        self.ring = FrameRing(capacity)
        self.next = 0
        self.payload_bytes = 0
        self.held_payload_bytes = 0
        self.message_bytes = BATCH_BYTES
        self._held: deque[HeldMessage] = deque()
        self._unsent: deque[HeldMessage] = deque()  # the last of the held ones; of the first a part may be sent
        self._sent_end = 0  # the number behind what was sent
        self._held_header_bytes = 0
        self._shift_bytes = 0  # what the daemon counts more than this side, after frames were lost

    @property
    def all_sent(self) -> bool:
        return not self._unsent

    @property
    def can_wait(self) -> bool:
        """True if what is not sent yet fills no message, and the next frame may share one with the last."""
        return len(self._unsent) == 1 and 0 < self._unsent[0].frame_bytes <= self._unsent[0].room

    @property
    def first_held(self) -> int:
        """The lowest frame number that could still be sent again."""
        return self._held[0].number if self._held else self.next

    def place(self, payload_bytes: int, header_bytes: int) -> int | None:
        """Where in the buffer a frame's pixels may be put now; None while there is no room."""
        if self._held and self._held_header_bytes + header_bytes > MAX_HELD_HEADER_BYTES:
            return None
        return self.ring.place(payload_bytes)

    def add_frame(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int = 0) -> int:
        """Append frame number `next`, which is returned; its pixels lie at `start`, as `place` returned it."""
        size = kind.frame_bytes
        message = self._unsent[-1] if self._unsent else None
        if message is None or not message.takes(kind, start, size + metadata_bytes):
            message = HeldMessage(self.next, 0, self.payload_bytes, kind=kind, start=start, frame_bytes=size)
            if size <= BATCHED_FRAME_BYTES:
                message.room = self.message_bytes
            self._held.append(message)
            self._unsent.append(message)
        message.frames.append(frame)
        message.numbers += 1
        message.end = start + size
        message.room -= size + metadata_bytes
        message.held_bytes += metadata_bytes + _OVERHEAD_BYTES
        self._held_header_bytes += metadata_bytes + _OVERHEAD_BYTES
        self.ring.take(start, size)
        self.payload_bytes += size
        self.held_payload_bytes += size
        number, self.next = self.next, self.next + 1
        return number

    def add_skip(self, header: bytes, count: int) -> None:
        """Append a message that consumes `count` numbers from `next` on."""
        message = self._skip(header, self.next, count, self.payload_bytes)
        self.next += count
        self._held.append(message)
        self._unsent.append(message)

    def _skip(self, header: bytes, number: int, count: int, bytes_before: int) -> HeldMessage:
        held_bytes = len(header) + _OVERHEAD_BYTES
        self._held_header_bytes += held_bytes
        return HeldMessage(number, count, bytes_before, header, held_bytes=held_bytes)

    def has_due(self, limit: Limit) -> bool:
        """True while the next unsent frame or skip lies inside the window."""
        return bool(self._unsent) and self._due_end(self._unsent[0], limit) > self._sent_end

    def take_due(self, limit: Limit, most: int) -> list[HeldMessage]:
        """The next unsent messages inside the window, at most so many; they count as sent."""
        due: list[HeldMessage] = []
        while self._unsent and len(due) < most:
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
        self._unsent = deque(message for message in self._held if message.number_end > number)

    def release(self, count: int) -> bool:
        """Forget what lies below frame number `count`; True if that freed anything."""
        freed = False
        while self._held and self._held[0].number < count:
            message = self._held[0]
            end = min(count, message.number_end)
            if end > self._sent_end:
                raise ProtocolError(f"the daemon acknowledges {count} frames; {self._sent_end} were sent")
            if end < message.number_end and message.kind is None:
                break  # of a skip not all numbers are safe
            self._forget(message, end - message.number)
            freed = True
        return freed

    def _forget(self, message: HeldMessage, count: int) -> None:
        """Release the first frames of the oldest message, or all of it."""
        freed_bytes = count * message.frame_bytes
        self.held_payload_bytes -= freed_bytes
        self._held_header_bytes -= message.held_bytes * count // message.numbers
        if message.kind is not None:
            self.ring.give_back(message.start + freed_bytes)
        if count == message.numbers:
            self._held.popleft()
        else:
            message.drop(count)

    def begin(self, number: int, received_bytes: int) -> None:
        """Before the first message: the acquisition has frames below `number`, of so many payload bytes."""
        self.next = self._sent_end = number
        self.payload_bytes = received_bytes

    def rewind(self, number: int, received_bytes: int, gap: bytes) -> None:
        """Everything from frame `number` on counts as unsent again: the daemon asks for it after a lost connection.

        received_bytes are the payload bytes that it has. gap is the message that declares the numbers from `number` to
        `first_held` lost, where there are any. Raises ProtocolError if it asks for frames that were never put.
        """
        if number > self.next:
            raise ProtocolError(
                f"the daemon asks for frame {number}; frames {self.first_held} to {self.next - 1} are held here"
            )
        before = self._bytes_before(number)
        self._shift_bytes = received_bytes - before
        if gap and number < self.first_held:
            self._held.appendleft(self._skip(gap, number, self.first_held - number, before))
        self.put_back(number)

    def _bytes_before(self, number: int) -> int:
        """Payload bytes of the frames before this one; of those that are held no more where it is none of the held."""
        for message in self._held:
            if message.number_end > number:
                return message.bytes_before + max(0, number - message.number) * message.frame_bytes
        return self.payload_bytes

    def _due_end(self, message: HeldMessage, limit: Limit) -> int:
        """The number behind what of this message lies inside the window. Skips need none: they take no memory there."""
        if message.kind is None:
            return message.number_end
        room = limit.payload_bytes - self._shift_bytes - message.bytes_before
        return min(message.number_end, limit.number, message.number + room // message.frame_bytes)
