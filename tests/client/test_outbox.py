"""What is held, what may be sent, and what comes again after a lost connection."""

from __future__ import annotations

import pytest

from acqstream.client import outbox as outbox_module
from acqstream.client.outbox import Outbox, batches
from acqstream.errors import ProtocolError
from acqstream.model.cursors import Limit
from acqstream.model.pixel_type import PixelType
from acqstream.protocol.request_fields import FrameFields

WIDE = Limit(1000, 10**9)
GRAY = PixelType("|u1", 1, 8)


def filled(*sizes: int) -> Outbox:
    """An outbox with frames of these sizes; 0 stands for a skip of 10 numbers."""
    box = Outbox(4096)
    for size in sizes:
        if size == 0:
            box.add_skip(b"skip", 10)
        else:
            start = box.place(size, 5)
            assert start is not None
            box.add_frame(FrameFields(GRAY, (1, size), {"time": box.next}, None, None, 0), start, size)
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
    box.put_back(due[1:])
    assert numbers(box.take_due(WIDE, 10)) == [1, 2]


def test_released_frames_give_their_place_back():
    box = filled(100, 0, 100)
    box.take_due(WIDE, 10)
    assert not box.release(0)
    assert box.release(10)  # frame 0; of the skip one number is not safe yet
    assert (box.first_held, len(box.ring), box.held_payload_bytes) == (1, 1, 100)
    assert box.release(12)
    assert (box.first_held, len(box.ring), box.held_payload_bytes) == (12, 0, 0)


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
    box.add_frame(b"frame", box.place(100, 5), 100)
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
    assert (box.next, box.first_held) == (7, 7)
    box.add_frame(b"frame", box.place(100, 5), 100)
    assert not box.has_due(Limit(100, 799))
    assert numbers(box.take_due(Limit(100, 800), 10)) == [7]


def test_headers_are_bounded_too(monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_HELD_HEADER_BYTES", 1000)
    box = filled(1)
    assert box.place(1, 100) is not None
    assert box.place(1, 1000) is None
    assert filled().place(1, 10**6) is not None  # an empty outbox takes any single one


def shares(*sizes: int) -> list[list[int]]:
    """Which numbers share a message."""
    box = Outbox(2**24)
    for size in sizes:
        start = box.place(size, 5)
        assert start is not None
        shape = (1, size)
        box.add_frame(FrameFields(GRAY, shape, {"time": box.next}, None, None, 0), start, size)
    return [numbers(list(batch)) for batch in batches(box.take_due(WIDE, 1000))]


def test_small_frames_that_lie_back_to_back_share_a_message():
    assert shares(64) == [[0]]
    assert shares(64, 64, 64) == [[0, 1, 2]]
    assert shares(64, 128, 128, 64) == [[0], [1, 2], [3]]
    assert shares(100, 100) == [[0], [1]]  # places are aligned: there is a gap between them
    large = outbox_module.BATCHED_FRAME_BYTES + 64
    assert shares(large, large) == [[0], [1]]


def test_a_shared_message_is_bounded():
    size = outbox_module.BATCHED_FRAME_BYTES
    most = outbox_module.BATCH_BYTES // size
    assert [len(batch) for batch in shares(*[size] * (2 * most + 1))] == [most, most, 1]


def test_a_skip_parts_the_messages():
    box = filled(64, 0, 64)
    assert [numbers(list(batch)) for batch in batches(box.take_due(WIDE, 10))] == [[0], [1], [11]]
