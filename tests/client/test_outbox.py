"""What is held, what may be sent, and what comes again after a lost connection."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.client import outbox as outbox_module
from acqstream.client.outbox import Outbox, OutboxMessage
from acqstream.errors import ProtocolError
from acqstream.model.frame_header import PixelType
from acqstream.model.state import Limit
from acqstream.protocol.frame_batch import FrameKind

WIDE = Limit(1000, 10**9)
GRAY = PixelType("|u1", 1, 8)


def kind_of(size: int) -> FrameKind:
    return FrameKind(GRAY, (1, size), ("time",), size)


def add(box: Outbox, size: int, *, metadata_bytes: int = 0) -> int:
    """Put the next frame in; where its pixels are."""
    start = box.place(size, metadata_bytes)
    assert start is not None
    number = box.next
    assert box.add_frames(kind_of(size), (((number,), number, b"", None),), start, metadata_bytes) == number
    return start


def filled(*sizes: int) -> Outbox:
    """An outbox with frames of these sizes, each in a message of its own; 0 stands for a skip of 10 numbers."""
    box = Outbox(4096)
    box.message_bytes = 0
    for size in sizes:
        if size == 0:
            box.add_skip(b"skip", 10)
        else:
            add(box, size)
    return box


def numbers(messages: list) -> list[int]:
    return [message.number for message in messages]


def test_messages_come_in_order_and_skips_consume_numbers():
    box = filled(100, 0, 100)
    assert box.next == 12
    assert numbers(box.take_due(WIDE, 10)) == [0, 1, 11]
    assert box.all_sent


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(Limit(0, 10**6), []), (Limit(2, 10**6), [0, 1]), (Limit(9, 250), [0, 1]), (Limit(9, 300), [0, 1, 2])],
)
def test_both_edges_of_the_window_hold(limit, expected):
    box = filled(100, 100, 100)
    assert box.has_due(limit) is bool(expected)
    assert numbers(box.take_due(limit, 10)) == expected


def test_a_skip_needs_no_window_but_waits_for_its_turn():
    assert numbers(filled(0).take_due(Limit(0, 0), 10)) == [0]
    assert filled(100, 0).take_due(Limit(0, 0), 10) == []


def test_what_the_socket_did_not_take_comes_first_again():
    box = filled(100, 100, 100)
    due = box.take_due(WIDE, 2)
    box.put_back(due[1].number)
    assert numbers(box.take_due(WIDE, 10)) == [1, 2]


def test_released_frames_give_their_place_back():
    box = filled(100, 0, 100)
    box.take_due(WIDE, 10)
    assert not box.release(0)
    assert box.release(10)  # frame 0; of the skip one number is not safe yet
    assert (box.first_number, box.ring.used_bytes, box.unsafe_payload_bytes) == (1, 100, 100)
    assert box.release(12)
    assert (box.first_number, box.ring.used_bytes, box.unsafe_payload_bytes) == (12, 0, 0)


def test_acknowledging_what_was_never_sent_is_refused():
    box = filled(100, 100)
    box.take_due(WIDE, 1)
    with pytest.raises(ProtocolError, match="1 were sent"):
        box.release(2)


def test_rewinding_sends_what_the_daemon_lacks():
    box = filled(100, 100, 0, 100)
    box.take_due(WIDE, 10)
    box.release(1)
    box.rewind(2, 200, b"")
    assert numbers(box.take_due(WIDE, 10)) == [2, 12]
    box.rewind(1, 100, b"")
    assert numbers(box.take_due(WIDE, 10)) == [1, 2, 12]


def test_a_skip_is_sent_again_as_a_whole():
    box = filled(0, 100)
    box.take_due(WIDE, 10)
    box.rewind(4, 0, b"")
    skip, frame = box.take_due(WIDE, 10)
    assert (skip.number, skip.number_end, skip.header, frame.number) == (0, 10, b"skip", 10)


def test_rewinding_to_what_was_never_put_is_refused():
    box = filled(100, 100, 100)
    box.take_due(WIDE, 10)
    with pytest.raises(ProtocolError, match="asks for frame 4"):
        box.rewind(4, 400, b"")


def test_what_is_not_held_any_more_is_declared_and_the_window_counts_without_it():
    box = filled(100, 100, 100, 100)
    box.take_due(WIDE, 10)
    box.release(2)
    box.rewind(1, 100, b"gap")  # the daemon has lost frame 1
    assert box.has_due(Limit(0, 0))  # a gap takes no memory there
    gap, third = box.take_due(Limit(10, 200), 10)
    assert (gap.number, gap.number_end, gap.header, gap.payload_bytes) == (1, 2, b"gap", 0)
    assert third.number == 2
    assert numbers(box.take_due(Limit(10, 300), 10)) == [3]
    box.release(4)
    add(box, 100)
    assert not box.has_due(Limit(10, 399))
    assert numbers(box.take_due(Limit(10, 400), 10)) == [4]


def test_a_gap_that_was_lost_on_the_way_is_asked_for_again():
    box = filled(100, 100)
    box.take_due(WIDE, 10)
    box.release(2)
    for _ in range(2):
        box.rewind(0, 0, b"gap")
        assert [(one.number, one.numbers) for one in box.take_due(WIDE, 10)] == [(0, 2)]
        assert box.all_sent
    box.rewind(2, 0, b"")
    assert box.all_sent


def test_numbers_and_bytes_go_on_where_an_earlier_producer_ended():
    box = Outbox(4096)
    box.begin(7, 700)
    assert (box.next, box.first_number) == (7, 7)
    add(box, 100)
    assert not box.has_due(Limit(100, 799))
    assert numbers(box.take_due(Limit(100, 800), 10)) == [7]


def test_headers_are_bounded_too(monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_KEPT_HEADER_BYTES", 1000)
    box = filled(1)
    assert box.place(1, 100) is not None
    assert box.place(1, 1000) is None
    assert filled().place(1, 10**6) is not None  # an empty outbox takes any single one


def shares(*sizes: int) -> list[list[int]]:
    """Which numbers share a message."""
    box = Outbox(2**24)
    for size in sizes:
        add(box, size)
    messages = box.take_due(WIDE, 1000)
    assert box.all_sent
    shared = [list(range(message.number, message.number_end)) for message in messages]
    for message, expected in zip(messages, shared, strict=True):
        assert message.frames == [((number,), number, b"", None) for number in expected]
        assert message.payload_bytes == sum(sizes[number] for number in expected)
    return shared


def test_small_frames_of_one_kind_share_a_message():
    assert shares(64) == [[0]]
    assert shares(64, 64, 64) == [[0, 1, 2]]
    assert shares(64, 128, 128, 64) == [[0], [1, 2], [3]]
    assert shares(99, 99) == [[0, 1]]
    large = outbox_module.BATCHED_FRAME_BYTES + 64
    assert shares(large, large) == [[0], [1]]


def test_a_shared_message_is_bounded():
    size = outbox_module.BATCHED_FRAME_BYTES
    most = outbox_module.BATCH_BYTES // size
    assert [len(numbers) for numbers in shares(*[size] * (2 * most + 1))] == [most, most, 1]
    box = Outbox(4096)
    for _ in range(5):
        add(box, 64, metadata_bytes=outbox_module.BATCH_BYTES // 2 - 100)
    assert [message.numbers for message in box.take_due(WIDE, 10)] == [2, 2, 1]


def test_a_skip_parts_the_messages():
    box = Outbox(4096)
    add(box, 64)
    box.add_skip(b"skip", 10)
    add(box, 64)
    assert numbers(box.take_due(WIDE, 10)) == [0, 1, 11]


def test_frames_wait_for_one_another_while_their_message_has_room():
    box = Outbox(2**24)
    assert not box.can_wait
    add(box, 64)
    assert box.can_wait
    add(box, 65)
    assert not box.can_wait  # no further frame can share the first one's message
    box.take_due(WIDE, 1)
    assert box.can_wait
    box.take_due(WIDE, 1)
    for _ in range(outbox_module.BATCH_BYTES // outbox_module.BATCHED_FRAME_BYTES):
        add(box, outbox_module.BATCHED_FRAME_BYTES)
    assert not box.can_wait
    box.take_due(WIDE, 1)
    add(box, outbox_module.BATCHED_FRAME_BYTES + 1)
    assert not box.can_wait


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_frame_is_sent_once_and_again_where_it_is_asked_for(data: st.DataObject) -> None:
    """A daemon that takes what comes, forgets some of it, and acknowledges here and there; and a socket that balks."""
    box, memory = Outbox(8192), bytearray(8192)
    stored: list[tuple[int, int]] = []  # number and size of what the daemon has, in order
    sizes: list[int] = []
    published = 0
    limit = Limit(0, 0)
    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["put", "put", "put", "send", "widen", "balk", "publish", "lose"]))
        if step == "put":
            size = data.draw(st.sampled_from([64, 64, 64, 99, 1000]))
            if box.place(size, 0) is not None:
                start = add(box, size)
                memory[start : start + size] = bytes([len(sizes)]) * size
                sizes.append(size)
        elif step == "widen":
            most = sum(sizes) + 1000
            limit = Limit(data.draw(st.integers(0, len(sizes) + 2)), data.draw(st.integers(0, most)))
        elif step in ("send", "balk"):
            due = box.take_due(limit, data.draw(st.integers(1, 3)))
            kept = data.draw(st.integers(0, len(due))) if step == "balk" else len(due)
            for message in due[:kept]:
                stored += sent(message, memory)
            if kept < len(due):
                box.put_back(due[kept].number)
            assert not due or len(stored) <= limit.number
            assert not due or sum(size for _, size in stored) <= limit.payload_bytes
        elif step == "publish":
            published = data.draw(st.integers(published, len(stored)))
            box.release(published)
            assert box.first_number == published
            assert box.unsafe_payload_bytes == sum(sizes[published:])
        else:
            del stored[data.draw(st.integers(published, len(stored))) :]
            box.rewind(len(stored), sum(size for _, size in stored), b"")
        assert stored == list(enumerate(sizes[: len(stored)]))
    for message in box.take_due(Limit(1000, 10**9), 1000):
        stored += sent(message, memory)
    assert stored == list(enumerate(sizes))
    box.release(len(sizes))
    assert (box.unsafe_payload_bytes, box.ring.used_bytes, box.first_number) == (0, 0, len(sizes))


def sent(message: OutboxMessage, memory: bytearray) -> list[tuple[int, int]]:
    """Number and size of each of its frames, whose checksums, axes and pixels are their numbers."""
    numbers = list(range(message.number, message.number_end))
    assert message.frames == [((number,), number, b"", None) for number in numbers]
    pixels = memory[message.start : message.start + message.payload_bytes]
    assert pixels == b"".join(bytes([number]) * message.frame_bytes for number in numbers)
    return [(number, message.frame_bytes) for number in numbers]
