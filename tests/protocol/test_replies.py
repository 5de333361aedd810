"""The daemon's messages, both ways through both encodings."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import ProtocolError
from acqstream.model.receipt import MissingFrames, Receipt, Stall
from acqstream.model.state import Cursors, Limit
from acqstream.model.status import AcquisitionStatus, DaemonStatus, ViewStatus
from acqstream.protocol.encoding import Encoding, decode_header, encode_header
from acqstream.protocol.replies import (
    Ack,
    Closed,
    Error,
    Opened,
    StatusReply,
    StoredPage,
    UnknownReply,
    Warn,
    Welcome,
    parse_reply,
)

RECEIPT = Receipt(
    dataset_id="b0e1",
    path="/data/x",
    status="error",
    reason="r",
    sent=5,
    stored=3,
    skipped=1,
    missing=(MissingFrames(1, 2, "lost"),),
)
REPLIES = [
    Welcome(1, "acqstream 1", ("ndtiff",), ("|u1", "<u2"), 2**20, 2**28, "boot", "ipc:///x", ""),
    Welcome(1, "acqstream 1", ("ndtiff",), ("|u1", "<u2"), 2**20, 2**28, "boot", "ipc:///x", "", "/run/x.memory"),
    Opened("b0e1", "x", "/data/x", 7, Limit(10, 2**40), 2**20, True, "direct"),
    Opened("b0e1", "x", "/data/x", 7, Limit(10, 2**40), 2**20, True, "direct", memory=3),
    Opened("b0e1", "x", "/data/x", 7, Limit(10, 2**40), 2**20, True, "direct", memory_why="another machine"),
    Opened("b0e1", "x", "/data/x", 7, Limit(10, 2**40), 2**20, True, "direct", stored=6),
    StoredPage("b0e1", ({"time": 3, "channel": "µ"}, {"time": 4, "channel": "DAPI"}), 177),
    StoredPage("b0e1", (), 177),
    Ack("b0e1", Cursors(5, 4, 3), Limit(10, 2**40)),
    Warn("b0e1", "disk_low", "2 GB"),
    Warn("b0e1", "disk_low", "2 GB", "2026-11-21T04:12:02.000+00:00"),
    Error("disk_full", "no space", "b0e1", 4, 28, fatal=True),
    Error("bad_header", "what?"),
    Closed(RECEIPT),
    StatusReply(
        AcquisitionStatus(dataset_id="b0e1", state="RUNNING", free_bytes=5, mirrors={"n5": ViewStatus(cursor=3)})
    ),
    StatusReply(
        AcquisitionStatus(
            dataset_id="b0e1", safe=3, short_bytes=0, gaps=(MissingFrames(3, 2, "µ"), MissingFrames(7, 1, ""))
        )
    ),
    StatusReply(DaemonStatus(acquisitions=(AcquisitionStatus(dataset_id="b0e1", warnings=(("a", "b", "c"),)),))),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
@pytest.mark.parametrize("encoding", Encoding)
def test_both_ways(reply, encoding):
    assert parse_reply(decode_header(encode_header(reply.fields(), encoding))[0]) == reply


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_news_is_ignored(reply):
    known = parse_reply({**reply.fields(), "news": {"a": 1}})
    assert known == reply


@pytest.mark.parametrize("reason", ["the camera did not answer " * 30, "\N{MICROSCOPE}" * 500])
@pytest.mark.parametrize("encoding", Encoding)
def test_a_receipt_with_many_gaps_fits_into_a_message(reason, encoding):
    missing = (*(MissingFrames(2 * number, 1, reason) for number in range(10_000)), MissingFrames(20_000, 5, "lost"))
    stalls = (Stall("fdatasync", "x" * 120, "2026-11-21T04:12:02.000+00:00", 12.345),) * 1000
    receipt = dataclasses.replace(RECEIPT, missing=missing, stalls=stalls, skipped=10_000)
    told = parse_reply(decode_header(encode_header(Closed(receipt).fields(), encoding))[0])
    assert isinstance(told, Closed)
    kept = told.receipt.missing
    assert len(kept) > 100
    assert kept == (*missing[: len(kept) - 1], missing[-1])


def test_unknown_types_are_no_error():
    assert isinstance(parse_reply({"t": "weather"}), UnknownReply)
    assert isinstance(parse_reply({}), UnknownReply)


@pytest.mark.parametrize(
    "reply", [r for r in REPLIES if not isinstance(r, StatusReply)], ids=lambda r: type(r).__name__
)
def test_a_lacking_field_is_named(reply):
    with pytest.raises(ProtocolError, match=f"message '{reply.fields()['t']}' of the daemon: field '"):
        parse_reply({"t": reply.fields()["t"]})


JUNK: st.SearchStrategy = (
    st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({})
)


@given(st.sampled_from(REPLIES), st.data())
def test_no_reply_raises_anything_else(reply, data):
    fields = dict(reply.fields())
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JUNK)
    try:
        parse_reply(fields)
    except ProtocolError:
        return
