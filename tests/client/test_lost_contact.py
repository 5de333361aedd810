"""Silence, lost frames, other connections: what a run does about them."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from acqstream.client import connection
from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed, ConfigError, DaemonUnavailable, ProtocolError
from acqstream.model.receipt import Receipt
from acqstream.protocol.replies import Closed, Error
from acqstream.protocol.requests import Hello
from tests.client.fake_daemon import FakeDaemon, needs_ipc
from tests.waiting import WAIT_S

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)


def start(daemon, **arguments):
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 20.0, **arguments})


@pytest.fixture
def soon_silent(monkeypatch):
    """A daemon that says nothing is contacted anew after so many seconds, long before the patience ends."""
    monkeypatch.setattr("acqstream.client.arguments.SILENCE_S", 0.2)
    return 0.2


def test_a_quiet_daemon_is_asked_for_a_sign_of_life(daemon, soon_silent, monkeypatch):
    with start(daemon) as run:
        clock = SimpleNamespace(now=time.monotonic())  # time passes between two signs of life only
        monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: clock.now, time=time.time))
        for _ in range(4):
            clock.now += 0.6 * soon_silent
            with run._state.condition:
                assert run._state.condition.wait_for(lambda: run._state.contact.heard_at == clock.now, WAIT_S)
    assert [type(request).__name__ for request in daemon.requests].count("Ping") >= 4
    assert len(daemon.opens) == 1  # contact was never lost


def test_frames_lost_with_the_connection_are_sent_again(daemon, soon_silent):
    with start(daemon) as run:
        for number in range(3):
            run.put(GRAY, time=number)
        daemon.wait_for(lambda: daemon.next == 3)
        daemon.behavior.silent = True
        for number in range(3, 8):
            run.put(GRAY + number, time=number)
        daemon.wait_for(lambda: type(daemon.requests[-1]).__name__ == "Hello")  # given up for lost
        daemon.behavior.silent = False
        daemon.wait_for(lambda: daemon.next == 8)
    assert sorted(daemon.frames) == list(range(8))
    assert daemon.frames[7][0].header.axes == {"time": 7}
    assert daemon.opens[0] == (daemon.dataset_id, False)
    assert set(daemon.opens[1:]) == {(daemon.dataset_id, True)}


def test_a_daemon_that_does_not_know_the_connection_is_joined_again(daemon):
    with start(daemon) as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        daemon.peer, former = b"somebody else", daemon.peer
        run.patch(display={"lut": 1})
        run.put(GRAY, time=1)
        daemon.wait_for(lambda: daemon.next == 2)
        assert daemon.peer != former
    assert [patch.display for patch in daemon.patches] == [{"lut": 1}]  # sent again too


def test_only_patience_makes_silence_an_error(daemon):
    reported = threading.Event()
    run = start(daemon, on_error=lambda _: reported.set(), patience_s=1.5)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.behavior.silent = True
    assert reported.wait(50)
    assert time.monotonic() - run._state.contact.heard_at >= 1.5
    with pytest.raises(DaemonUnavailable, match=r"no message from the daemon at tcp:.* for 1\.5 s"):
        run.put(GRAY, time=1)
    with pytest.raises(DaemonUnavailable):
        run.close()


def test_silence_wakes_a_put_that_waits(daemon):
    daemon.behavior.publish = False
    run = start(daemon, patience_s=1.5)
    image = np.zeros((600, 1000), "u1")
    run.put(image, time=0)
    daemon.behavior.silent = True
    with pytest.raises(DaemonUnavailable, match="frames from 0 on may not be stored"):
        run.put(image, time=1)
    with pytest.raises(DaemonUnavailable):
        run.close()


def test_a_daemon_that_was_restarted_refuses_to_go_on(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.behavior.resume_error = Error("unknown_ds", "no acquisition of that id")
    daemon.peer = b"nobody"
    run.put(GRAY, time=1)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    for action in (lambda: run.put(GRAY, time=2), run.close):
        with pytest.raises(AcquisitionFailed, match=r"no acquisition of that id \(unknown_ds\)"):
            action()


def test_opening_again_and_again_without_success_is_an_error(daemon, monkeypatch):
    run = start(daemon)
    monkeypatch.setattr(daemon, "_take_frame", lambda *_: daemon._reply(daemon.peer, Error("unknown_ds", "not mine")))
    run.put(GRAY, time=0)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(AcquisitionFailed, match="not mine"):
        run.close()


def test_what_the_daemon_lost_after_all_is_declared_and_told(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.cursors.published == 1, WAIT_S)
    daemon.frames.clear()
    daemon.next, daemon.peer = 0, b"nobody"
    run.put(GRAY, time=1)
    with pytest.raises(AcquisitionFailed, match=r"1 of 2 frames are missing: 0 \(lost by the daemon"):
        run.close()
    assert list(daemon.frames) == [1]
    assert [(skip.number, skip.count) for skip in daemon.skips] == [(0, 1)]


def test_a_daemon_that_wants_what_never_was_is_an_error(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.next, daemon.peer = 5, b"nobody"
    run.put(GRAY, time=1)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(ProtocolError, match="asks for frame 5"):
        run.close()


def test_every_connection_has_a_later_epoch(daemon):
    with start(daemon) as run:
        for number in range(3):
            run.put(GRAY, time=number)
            daemon.wait_for(lambda wanted=number + 1: daemon.next == wanted)
            daemon.peer = b"nobody"
    assert len(daemon.epochs) > 3
    assert daemon.epochs == list(range(len(daemon.epochs)))


def test_a_daemon_that_ends_is_waited_for(daemon):
    with start(daemon) as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        daemon.behavior.resume_error = Error("shutting_down", "the daemon is shutting down")
        daemon.say(Error("shutting_down", "the daemon was stopped", daemon.dataset_id), interrupted(daemon))
        daemon.wait_for(lambda: len(daemon.opens) >= 3)
        daemon.behavior.resume_error = None
        run.put(GRAY, time=1)
    assert sorted(daemon.frames) == [0, 1]
    assert [warning.code for warning in run.warnings] == ["shutting_down"]


def test_a_daemon_that_ends_and_stays_away_is_an_error_that_says_so(daemon):
    reported = threading.Event()
    run = start(daemon, on_error=lambda _: reported.set(), patience_s=1.5)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.behavior.resume_error = interrupted(daemon)
    daemon.say(Error("shutting_down", "the daemon was stopped", daemon.dataset_id), interrupted(daemon))
    assert reported.wait(50)
    with pytest.raises(DaemonUnavailable, match=r"for 1\.5 s.*its last message: the daemon was stopped"):
        run.close()


def interrupted(daemon: FakeDaemon) -> Closed:
    return Closed(Receipt(dataset_id=daemon.dataset_id, path="/data/cells", status="interrupted", stored=1))


def test_time_in_which_the_program_was_stopped_is_not_silence(daemon, monkeypatch):
    with start(daemon) as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        clock = time.monotonic
        monkeypatch.setattr("acqstream.client.connection.time.monotonic", lambda: clock() + 3600)
        run.put(GRAY, time=1)
        daemon.wait_for(lambda: daemon.next == 2)
    assert run.receipt is not None


def test_an_earlier_run_is_gone_on_with(daemon):
    daemon.next, daemon.stored_before, daemon.payload_bytes = 5, 5, 500
    daemon.stored_id = "stored-dataset"
    with start(daemon, resume=True) as run:
        assert run.next == 5
        run.put(GRAY, time=5)
        run.skip(2, reason="no light")
        run.put(GRAY, time=8)
        daemon.wait_for(lambda: daemon.next == 9)
        daemon.peer = b"nobody"
        run.put(GRAY, time=9)
    assert {frame.dataset_id for frame, _ in daemon.frames.values()} == {"stored-dataset"}
    assert daemon.opens[1] == ("stored-dataset", True)
    assert sorted(daemon.frames) == [5, 8, 9]


def test_a_producer_started_again_waits_until_the_last_run_is_closed(daemon):
    daemon.behavior.resume_error = Error("shutting_down", "cells is being closed; try again")

    def close() -> None:
        daemon.wait_for(lambda: len(daemon.opens) > 1)
        daemon.behavior.resume_error = None

    closing = threading.Thread(target=close)
    closing.start()
    with start(daemon, resume=True) as run:
        run.put(GRAY, time=0)
    closing.join()
    assert len(daemon.opens) > 1


def test_contact_lost_while_closing(daemon, soon_silent):
    daemon.behavior.answer_close = False
    run = start(daemon)
    run.put(GRAY, time=0)
    closing = threading.Thread(target=run.close)
    closing.start()
    daemon.wait_for(lambda: any(type(request).__name__ == "Close" for request in daemon.requests))
    daemon.behavior.answer_close = True
    daemon.behavior.silent = True
    daemon.wait_for(lambda: type(daemon.requests[-1]).__name__ == "Hello")
    daemon.behavior.silent = False
    closing.join(WAIT_S)
    assert run.receipt is not None
    assert run.receipt.stored == 1


def test_a_daemon_that_comes_late_is_found():
    probe = FakeDaemon()
    endpoint = probe.endpoint
    probe.stop()
    fakes = []
    threading.Timer(0.05, lambda: fakes.append(FakeDaemon(endpoint))).start()
    with create("x", endpoint=endpoint, buffer_mb=1) as run:
        run.put(GRAY)
    fakes[0].stop()


@needs_ipc
def test_a_local_daemon_is_reached_over_ipc(daemon, tmp_path):
    daemon.behavior.ipc = f"ipc://{tmp_path}/d.sock"
    daemon.bind_also(daemon.behavior.ipc)
    with start(daemon) as run:
        run.put(GRAY)
        assert run._connection.opener.endpoint == daemon.behavior.ipc
    assert len(daemon.frames) == 1


@pytest.mark.parametrize("why", ["absent", "too long", "other boot", "not wanted", "nobody listens"])
def test_tcp_is_kept_where_ipc_is_not_possible(daemon, tmp_path, why):
    path = tmp_path / ("x" * 100 if why == "too long" else "d.sock")
    daemon.behavior.ipc = f"ipc://{path}"
    if why != "absent":
        path.touch()
    if why == "other boot":
        daemon.behavior.boot = "another"
    with start(daemon, transport="tcp" if why == "not wanted" else "auto") as run:
        run.put(GRAY)
        assert run._connection.opener.endpoint == daemon.endpoint


def test_insisting_on_ipc(daemon):
    with pytest.raises(ConfigError, match="transport='ipc'"):
        start(daemon, transport="ipc")


@needs_ipc
def test_insisting_on_ipc_waits_for_a_daemon_that_is_just_beginning(daemon, tmp_path):
    first, second = (f"ipc://{tmp_path}/{name}.sock" for name in ("first", "second"))
    daemon.behavior.ipc = first
    daemon.bind_also(first)
    with start(daemon, transport="ipc") as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        hellos = sum(isinstance(request, Hello) for request in daemon.requests)
        daemon.behavior.ipc = second  # not there yet
        daemon.peer = b"nobody"
        run.put(GRAY, time=1)
        daemon.wait_for(lambda: sum(isinstance(request, Hello) for request in daemon.requests) > hellos + 1)
        daemon.bind_also(second)
        daemon.wait_for(lambda: daemon.next == 2)
        assert run.transport == "ipc"


def test_an_acquisition_that_ended_meanwhile_answers_with_its_receipt(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    receipt = Receipt(dataset_id=daemon.dataset_id, path="/data/cells", status="canceled", reason="enough", stored=1)
    daemon.behavior.resume_error = Closed(receipt)
    daemon.peer = b"nobody"
    run.put(GRAY, time=1)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(AcquisitionFailed, match="ended the acquisition as canceled: enough"):
        run.close()
    assert run.receipt == receipt
