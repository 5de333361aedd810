"""What the producer holds until it is safe: numbered messages, sent and unsent, and their pixels. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from acqstream.client.frame_ring import FrameRing
from acqstream.errors import ProtocolError
from acqstream.model.cursors import Limit
from acqstream.protocol.request_fields import FrameFields

MAX_HELD_HEADER_BYTES = 64 * 2**20
BATCHED_FRAME_BYTES = 128 * 2**10  # larger frames gain nothing from sharing a message
BATCH_BYTES = 2 * 2**20
_MESSAGE_OVERHEAD_BYTES = 512  # of the Python objects around one frame


class HeldMessage(NamedTuple):
    """One frame, or one skip (payload_bytes 0) of so many numbers.

    header is that of a skip, frame what a frame's header will say. start is the offset of the pixels in the local
    buffer; bytes_end the payload bytes since frame 0, this one included; held_bytes is about what is held besides them.
    """

    number: int
    numbers: int
    header: bytes
    start: int
    payload_bytes: int
    bytes_end: int
    frame: FrameFields | None = None
    metadata_bytes: int = 0
    held_bytes: int = _MESSAGE_OVERHEAD_BYTES

    @property
    def number_end(self) -> int:
        return self.number + self.numbers

    def is_followed_by(self, other: HeldMessage) -> bool:
        """True if both frames may go in one message: of one kind, their pixels back to back."""
        if self.frame is None or other.frame is None or other.start != self.start + self.payload_bytes:
            return False
        return self.frame.is_like(other.frame)


def batches(messages: Sequence[HeldMessage], most_bytes: int = BATCH_BYTES) -> Iterator[Sequence[HeldMessage]]:
    """`messages` in order, small frames that may go in one message, of at most so many bytes, together."""
    start = 0
    size = 0
    for end, message in enumerate(messages):
        size += message.payload_bytes + message.metadata_bytes
        if end > start and (
            message.payload_bytes > BATCHED_FRAME_BYTES
            or size > most_bytes
            or not messages[end - 1].is_followed_by(message)
        ):
            yield messages[start:end]
            start, size = end, message.payload_bytes + message.metadata_bytes
    if start < len(messages):
        yield messages[start:]


class Outbox:
    """Messages from the first that is not safe yet, in order of their numbers; the last of them are unsent."""

    def __init__(self, capacity: int) -> None:
        self.ring = FrameRing(capacity)
        self.next = 0
        self.payload_bytes = 0
        self.held_payload_bytes = 0
        self._held: deque[HeldMessage] = deque()
        self._unsent: deque[HeldMessage] = deque()
        self._held_header_bytes = 0
        self._shift_bytes = 0  # what the daemon counts more than this side, after frames were lost

    @property
    def all_sent(self) -> bool:
        return not self._unsent

    @property
    def can_wait(self) -> bool:
        """True if what is not sent yet fills no message, and the next frame may share one with the last."""
        if not self._unsent:
            return False
        first, last = self._unsent[0], self._unsent[-1]
        size = last.bytes_end - first.bytes_end + first.payload_bytes
        return 0 < last.payload_bytes <= BATCHED_FRAME_BYTES and size < BATCH_BYTES

    @property
    def first_held(self) -> int:
        """The lowest frame number that could still be sent again."""
        return self._held[0].number if self._held else self.next

    def place(self, payload_bytes: int, header_bytes: int) -> int | None:
        """Where in the buffer a frame's pixels may be put now; None while there is no room."""
        if self._held and self._held_header_bytes + header_bytes > MAX_HELD_HEADER_BYTES:
            return None
        return self.ring.place(payload_bytes)

    def add_frame(self, frame: FrameFields, start: int, payload_bytes: int, metadata_bytes: int = 0) -> None:
        """Append frame number `next`, whose pixels lie at `start`, as `place` returned it."""
        self.ring.take(start, payload_bytes)
        self.payload_bytes += payload_bytes
        self.held_payload_bytes += payload_bytes
        held_bytes = metadata_bytes + _MESSAGE_OVERHEAD_BYTES
        end = self.payload_bytes
        self._add(HeldMessage(self.next, 1, b"", start, payload_bytes, end, frame, metadata_bytes, held_bytes))

    def add_skip(self, header: bytes, count: int) -> None:
        """Append a message that consumes `count` numbers from `next` on."""
        held_bytes = len(header) + _MESSAGE_OVERHEAD_BYTES
        self._add(HeldMessage(self.next, count, header, 0, 0, self.payload_bytes, held_bytes=held_bytes))

    def _add(self, message: HeldMessage) -> None:
        self.next += message.numbers
        self._held_header_bytes += message.held_bytes
        self._held.append(message)
        self._unsent.append(message)

    def has_due(self, limit: Limit) -> bool:
        """True while the next unsent message lies inside the window."""
        return bool(self._unsent) and self._is_inside(self._unsent[0], limit)

    def take_due(self, limit: Limit, most: int) -> list[HeldMessage]:
        """The next unsent messages inside the window, at most so many; they count as sent."""
        due: list[HeldMessage] = []
        while self._unsent and len(due) < most and self._is_inside(self._unsent[0], limit):
            due.append(self._unsent.popleft())
        return due

    def put_back(self, messages: list[HeldMessage]) -> None:
        """Undo `take_due` for its last messages."""
        self._unsent.extendleft(reversed(messages))

    def release(self, count: int) -> bool:
        """Forget what lies below frame number `count`; True if that freed anything."""
        freed = False
        while self._held and self._held[0].number_end <= count:
            if self._unsent and self._unsent[0].number <= self._held[0].number:
                raise ProtocolError(f"the daemon acknowledges {count} frames; {self._unsent[0].number} were sent")
            message = self._held.popleft()
            if message.payload_bytes:
                self.ring.give_back()
            self.held_payload_bytes -= message.payload_bytes
            self._held_header_bytes -= message.held_bytes
            freed = True
        return freed

    def begin(self, number: int, received_bytes: int) -> None:
        """Before the first message: the acquisition has frames below `number`, of so many payload bytes."""
        self.next = number
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
        self._unsent = deque(message for message in self._held if message.number_end > number)
        before = self._unsent[0].bytes_end - self._unsent[0].payload_bytes if self._unsent else self.payload_bytes
        self._shift_bytes = received_bytes - before
        if gap:
            self._unsent.appendleft(HeldMessage(number, self.first_held - number, gap, 0, 0, before))

    def _is_inside(self, message: HeldMessage, limit: Limit) -> bool:
        """Skips need no window: they take no memory in the daemon."""
        if not message.payload_bytes:
            return True
        return message.number < limit.number and message.bytes_end + self._shift_bytes <= limit.payload_bytes
