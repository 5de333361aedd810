"""What a run knows of its acquisition, without any socket."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from acqstream.client.arguments import RunSettings
from acqstream.client.outbox import Outbox
from acqstream.client.run_state import RequestedEnd, RunState, is_interrupted
from acqstream.errors import AcquisitionFailed, DiskFull
from acqstream.model.frame_header import PixelType
from acqstream.model.receipt import Receipt
from acqstream.model.state import Cursors, Limit
from acqstream.model.status import AcquisitionStatus, DaemonStatus
from acqstream.protocol.frame_batch import FrameKind
from acqstream.protocol.replies import Ack, Closed, Error, Opened, StatusReply, Warn, Welcome

WIDE = Limit(1000, 10**9)
GRAY = PixelType("|u1", 1, 8)
# A payload of no byte: each frame goes in a message of its own.
WELCOME = Welcome(1, "fake", ("ndtiff",), ("|u1",), 2**20, 0, "", "", "")
SETTINGS = RunSettings(
    endpoint="", transport="auto", name="cells", dataset_id="stored", request={}, patience_s=10.0, on_error=None
)


def opened(number: int = 0, *, received_bytes: int = 0, epoch: int = 0) -> Opened:
    return Opened("stored", "cells", "/data/cells", number, WIDE, 2**20, number > 0, "direct", received_bytes, epoch)


def closed(status: str) -> Closed:
    return Closed(Receipt(dataset_id="stored", path="/data/cells", status=status))  # type: ignore[arg-type]


def put(session: RunState, size: int, start: int) -> None:
    kind = FrameKind(GRAY, (1, size), ("time",), size)
    session.outbox.add_frames(kind, [((session.outbox.next,), 0, b"", None)], start)


def session_of(*sizes: int, published: int = 0) -> RunState:
    """An open session that has sent frames of these sizes, so many of them published."""
    session = RunState(SETTINGS, Outbox(4096), 0.0)
    session.open(opened(), WELCOME, same_machine=True, now=0.0)
    for size in sizes:
        start = session.outbox.place(size, 5)
        assert start is not None
        put(session, size, start)
    session.take_due(100)
    session.receive(Ack("stored", Cursors(len(sizes), published, 0), WIDE), 1.0, 1.0)
    return session


def due(session: RunState) -> list[int]:
    return [message.number for message in session.take_due(100)]


def test_a_session_that_goes_on_sends_what_the_daemon_lacks():
    session = session_of(100, 100, 100, published=1)
    session.open(opened(2, received_bytes=200, epoch=3), WELCOME, same_machine=True, now=5.0)
    assert due(session) == [2]
    assert (session.contact.epoch, session.contact.heard_at, session.contact.is_lost) == (3, 5.0, False)


def test_frames_that_are_not_held_any_more_are_declared_lost():
    session = session_of(100, 100, 100, published=2)
    session.open(opened(1, received_bytes=100, epoch=1), WELCOME, same_machine=True, now=5.0)
    gap, frame = session.take_due(100)
    fields = msgpack.unpackb(gap.header)
    assert (fields["t"], fields["ds"], fields["n"], fields["count"]) == ("skip", "stored", 1, 1)
    assert "lost by the daemon" in fields["reason"]
    assert frame.number == 2


def test_an_epoch_never_goes_down():
    session = session_of()
    session.open(opened(epoch=1_000_000), WELCOME, same_machine=True, now=1.0)
    session.open(opened(epoch=3), WELCOME, same_machine=True, now=2.0)
    assert session.contact.epoch == 1_000_000


def test_the_end_of_the_daemon_is_not_the_end_of_the_run():
    session = session_of(100)
    warning = session.receive(Error("shutting_down", "the daemon was stopped", "stored"), 2.0, 2.0)
    assert warning is not None
    assert warning.code == "shutting_down"
    assert not session.contact.is_lost  # what is under way may still be acknowledged
    session.receive(closed("interrupted"), 3.0, 3.0)
    assert session.contact.is_lost
    assert (session.ended, session.failure, session.receipt) == (False, None, None)
    assert "the daemon was stopped" in session.contact.loss_reason


def test_a_warning_that_is_told_again_is_kept_once():
    session = session_of()
    early, late = "2026-11-21T04:12:02.000+00:00", "2026-11-21T04:12:03.500+00:00"
    told = [("disk_low", early), ("disk_low", late), ("disk_low", early), ("disk_full", early)]
    kept = [session.receive(Warn("stored", code, "2 GB", at), 2.0, 5.0) is not None for code, at in told]
    assert kept == [True, True, False, True]
    assert [one.time - session.report.warnings[0].time for one in session.report.warnings] == [0.0, 1.5, 0.0]


def test_a_warning_without_its_time_has_that_of_its_arrival():
    session = session_of()
    for wall_time, at in ((5.0, ""), (6.0, "yesterday"), (7.0, "9999-12-31T23:59:59+00:00")):
        session.receive(Warn("stored", "disk_low", "2 GB", at), 2.0, wall_time)
    assert [one.time for one in session.report.warnings][:2] == [5.0, 6.0]
    assert len(session.report.warnings) == 3


def test_a_close_is_sent_again_after_the_daemon_was_interrupted():
    session = session_of(100)
    session.ending = RequestedEnd("completed", "", is_sent=True)
    session.receive(closed("interrupted"), 3.0, 3.0)
    assert not session.ended
    session.open(opened(1, received_bytes=100, epoch=1), WELCOME, same_machine=True, now=4.0)
    assert session.close_is_due
    session.receive(closed("completed"), 5.0, 5.0)
    assert session.ended
    assert session.failure is None


def test_an_interrupted_end_after_an_error_is_the_end():
    session = session_of(100)
    session.receive(Error("stopped", "by the operator", "stored", fatal=True), 2.0, 2.0)
    session.receive(closed("interrupted"), 3.0, 3.0)
    assert session.ended
    assert isinstance(session.failure, AcquisitionFailed)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (closed("interrupted"), True),
        (closed("completed"), False),
        (closed("failed"), False),
        (Error("shutting_down", ""), True),
        (Error("unknown_ds", ""), False),
        (opened(), False),
        (StatusReply(DaemonStatus()), False),
    ],
)
def test_what_says_that_the_daemon_ends(reply, expected):
    assert is_interrupted(reply) is expected


def test_time_that_is_forgiven_does_not_count_as_silence():
    session = session_of(100)
    session.contact.forgive(14.0, 24.0)
    assert (session.contact.heard_at, session.contact.released_at) == (15.0, 14.0)


def test_display_settings_are_repeated_and_the_summary_before_frame_0_only():
    session = session_of()
    session.patches.add("summary", b"s")
    session.patches.add("display", b"d")
    assert [kind for kind, *_ in session.patches.take()] == ["summary", "display"]
    session.open(opened(epoch=1), WELCOME, same_machine=True, now=2.0)
    assert [kind for kind, *_ in session.patches.take()] == ["summary", "display"]
    put(session, 100, 0)
    session.open(opened(1, received_bytes=100, epoch=2), WELCOME, same_machine=True, now=3.0)
    assert [kind for kind, *_ in session.patches.take()] == ["display"]


def test_what_is_due_after_going_on_keeps_its_order():
    session = session_of(100, 100, 100, 100, published=1)
    for number in (3, 1, 2, 1):
        session.open(opened(number, received_bytes=100 * number, epoch=1), WELCOME, same_machine=True, now=2.0)
        assert due(session) == list(range(number, 4))


def paused(session: RunState, why: str, now: float) -> None:
    state = "PAUSED" if why else "RUNNING"
    status = AcquisitionStatus(dataset_id="stored", state=state, paused=why, free_bytes=7)
    session.receive(StatusReply(status), now, now)


def test_a_full_disk_ends_the_run_after_the_patience_and_closes_it():
    session = session_of(100, 100, published=1)
    paused(session, "no space", 2.0)
    session.check_space(10.0, 11.9)
    assert session.failure is None
    session.check_space(10.0, 12.0)
    assert isinstance(session.failure, DiskFull)
    assert (session.failure.errno, session.failure.number) == (28, 1)
    assert "no space" in str(session.failure)
    assert session.close_is_due  # the daemon is told, though the run has failed
    assert session.has_due()
    assert due(session) == []
    assert session.ending is not None
    assert session.ending.status == "error"
    session.ending = replace(session.ending, is_sent=True)
    session.check_space(10.0, 99.0)
    assert not session.close_is_due  # once


@pytest.mark.parametrize(("status", "is_due"), [("completed", False), ("canceled", True), ("error", True)])
def test_only_a_completed_end_waits_for_frames_while_the_daemon_has_no_space(status: str, is_due: bool) -> None:
    session = session_of(100, 100, published=1)
    paused(session, "no space", 2.0)
    put(session, 100, 200)
    session.request_close(status, "as the test asks")
    assert session.close_is_due is is_due
    session.request_close("completed", "too late")
    assert session.ending is not None
    assert (session.ending.status, session.ending.reason) == (status, "as the test asks")


def test_space_that_comes_back_or_progress_starts_the_patience_anew():
    session = session_of(100, 100, 100, published=1)
    paused(session, "no space", 2.0)
    paused(session, "", 5.0)
    session.check_space(10.0, 50.0)
    paused(session, "no space", 60.0)
    session.receive(Ack("stored", Cursors(3, 2, 0), WIDE), 65.0, 65.0)  # written before it became full
    session.check_space(10.0, 74.9)
    assert session.failure is None
    session.check_space(10.0, 75.0)
    assert isinstance(session.failure, DiskFull)


def test_a_full_disk_is_no_matter_to_a_run_whose_frames_are_all_safe():
    session = session_of(100, published=1)
    paused(session, "no space", 2.0)
    session.check_space(10.0, 1000.0)
    assert session.failure is None


def test_a_close_that_waits_for_space_becomes_an_error():
    session = session_of(100, published=0)
    session.ending = RequestedEnd("completed", "")
    session.ending = replace(session.ending, is_sent=True)
    paused(session, "no space", 2.0)
    session.check_space(10.0, 20.0)
    assert session.close_is_due
    assert session.ending.status == "error"


def test_a_close_whose_frames_are_all_safe_takes_the_space_kept_for_the_end():
    session = session_of(100, 100, published=2)
    session.ending = RequestedEnd("completed", "", is_sent=True)
    paused(session, "no space", 2.0)
    session.check_space(10.0, 11.9)
    assert not session.close_is_due
    session.check_space(10.0, 12.0)
    assert session.close_is_due
    assert session.failure is None  # nothing is lost: the receipt tells
    assert (session.ending.status, session.ending.wire_status) == ("completed", "error")
    session.ending = replace(session.ending, is_sent=True)
    session.check_space(10.0, 99.0)
    assert not session.close_is_due


def test_an_end_asked_for_before_the_pause_was_known_does_not_wait_for_the_window():
    session = session_of(100)
    session.limit = Limit(1, 100)
    start = session.outbox.place(100, 5)
    assert start is not None
    put(session, 100, start)
    session.ending = RequestedEnd("error", "an exception")
    paused(session, "no space", 2.0)
    session.check_space(10.0, 2.1)
    assert session.close_is_due


def test_frames_that_wait_for_the_window_are_dropped_when_the_run_is_given_up():
    session = session_of(100)
    session.limit = Limit(1, 100)
    start = session.outbox.place(100, 5)
    assert start is not None
    put(session, 100, start)
    session.ending = RequestedEnd("error", "an exception")
    assert not session.close_is_due  # they may still be sent
    session.ending = RequestedEnd("error", "an exception", drops_unsent=True)
    assert session.close_is_due
    session.limit = WIDE
    assert due(session) == []
