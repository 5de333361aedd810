"""The producer goes away, for good or for a moment."""

from __future__ import annotations

import functools
import json
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.model.status import AcquisitionStatus
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.forwarder import Forwarder
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import in_time, until

pytestmark = pytest.mark.slow

SHAPE = (128, 128)  # as in programs.PRODUCER
GRACE_S = 1.0
PATIENCE_S = 2.0  # a third of it without a word, and the connection is made anew
BY_TCP: dict[str, Any] = {"transport": "tcp", "buffer_mb": 16}  # not beside the forwarder, by ipc
NOTES_WHILE_LOST = """
from acqstream.daemon.announcer import Announcer

plain = Announcer.notify

def notify(self, acquisition, reply):
    was_there = acquisition.session.lost_at_s is None
    plain(self, acquisition, reply)
    if was_there and acquisition.session.lost_at_s is not None:
        for number in range(150):
            acquisition.log.notes.warn("test", f"noted {number}")
        self.notify_warnings(acquisition)  # at once: nobody hears it

Announcer.notify = notify
"""


def acquisition(daemon: DaemonProcess) -> AcquisitionStatus | None:
    found = fetch_status(daemon.endpoint).acquisitions
    return found[0] if found else None


def test_a_killed_producer_is_waited_for(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=600.0) as daemon:
        producer = programs.start(programs.PRODUCER, daemon.endpoint, "cells", "5", "wait")
        try:
            programs.line_of(producer)
            assert programs.line_of(producer) == "5"
        finally:
            programs.kill(producer)
        until(lambda: states_of(daemon) == ["ORPHANED"], "its acquisition waits for it")


def states_of(daemon: DaemonProcess) -> list[str]:
    return [one.state for one in fetch_status(daemon.endpoint).acquisitions]


def test_a_killed_producer_is_waited_for_and_then_its_dataset_is_finished(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=GRACE_S) as daemon:
        producer = programs.start(programs.PRODUCER, daemon.endpoint, "cells", "50", "wait")
        try:
            path = programs.line_of(producer)
            assert programs.line_of(producer) == "50"
        finally:
            killed_s = time.monotonic()
            programs.kill(producer)
        until(lambda: acquisition(daemon) is None, "the end of the acquisition")
        assert time.monotonic() - killed_s >= GRACE_S
        until(lambda: f"its producer is lost; waiting {GRACE_S:g} s for it" in daemon.output(), "the log")
        assert state_of(path)["state"] == "INTERRUPTED"
        assert "lost" in state_of(path)["reason"]
        assert check_frames(path, lambda _: SHAPE) == 50


def test_a_producer_killed_while_it_opens_is_not_waited_for_ever(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.2) as daemon:
        for number in range(5):
            producer = programs.start(programs.PRODUCER, daemon.endpoint, f"cells{number}", "1000", "wait")
            until((daemon.data / f"cells{number}").exists, "the dataset's folder")
            programs.kill(producer)
        until(lambda: acquisition(daemon) is None, "the end of all acquisitions")
        for number in range(5):
            assert state_of(daemon.data / f"cells{number}")["state"] == "INTERRUPTED"
            check_frames(daemon.data / f"cells{number}", lambda _: SHAPE)


def test_a_program_that_ends_without_close_leaves_a_dataset_that_says_so(daemon: DaemonProcess) -> None:
    producer = programs.start(programs.PRODUCER, daemon.endpoint, "cells", "30", "forget")
    try:
        path = programs.line_of(producer)
        assert programs.line_of(producer) == "30"
        began_s = time.monotonic()
        code, _ = programs.end(producer)
        assert code == 0
        assert time.monotonic() - began_s < in_time(6.0)
    finally:
        programs.kill(producer)
    receipt = json.loads((Path(path) / "receipt.json").read_bytes())
    assert (receipt["status"], receipt["sent"], receipt["stored"]) == ("error", 30, 30)
    assert "exit" in receipt["reason"]
    assert check_frames(path, lambda _: SHAPE) == 30


def test_a_connection_that_is_cut_again_and_again_costs_nothing(daemon: DaemonProcess) -> None:
    cuts, frames_a_cut = 3, 40
    with Forwarder(daemon.port) as forwarder:
        run = acqstream.create("cells", endpoint=forwarder.endpoint, patience_s=PATIENCE_S, **BY_TCP)
        with run:
            for number in range(cuts * frames_a_cut):
                run.put(image_of(number, (300, 400)), time=number, meta={"n": number})
                if number % frames_a_cut == frames_a_cut - 1:
                    until(functools.partial(has_connected, forwarder, number // frames_a_cut + 1), "a connection")
                    forwarder.cut()
        assert forwarder.connections > cuts
    assert run.receipt is not None
    assert run.receipt.complete
    assert run.receipt.stored == cuts * frames_a_cut
    assert run.receipt.without_checksum == 0
    assert check_frames(run.path, lambda _: (300, 400)) == cuts * frames_a_cut


def has_connected(forwarder: Forwarder, times: int) -> bool:
    return forwarder.connections >= times


def test_what_was_noted_while_contact_was_lost_is_told_when_it_is_back(tmp_path: Path) -> None:
    """The latest of it; what had been told before is not told twice."""
    with DaemonProcess(tmp_path / "data", prelude=NOTES_WHILE_LOST) as daemon, Forwarder(daemon.port) as forwarder:
        way = {**BY_TCP, "patience_s": 20.0}  # it asks for a sign of life later than the daemon gives one
        with acqstream.create("cells", endpoint=forwarder.endpoint, **way) as run:
            run.put(image_of(0, SHAPE), time=0)
            run.put(image_of(1, (64, 64)), time=1)
            until(lambda: run.warnings, "the first warning")
            forwarder.cut()
            until(lambda: "noted 149" in daemon.output(), "the daemon has noticed")
            run.put(image_of(2, SHAPE), time=2)
            until(lambda: "noted 149" in [one.text for one in run.warnings], "the producer was told")
            told = fetch_status(daemon.endpoint).acquisitions[0].warnings[-1]
        first, *others = run.warnings
    assert first.code == "shape_changed"
    assert [one.text for one in others] == [f"noted {number}" for number in range(50, 150)]
    assert others[-1].time == datetime.fromisoformat(told[2]).timestamp()


def test_a_connection_cut_at_the_close_costs_nothing(daemon: DaemonProcess) -> None:
    with Forwarder(daemon.port) as forwarder:
        for number in range(3):
            run = acqstream.create(f"cells{number}", endpoint=forwarder.endpoint, patience_s=PATIENCE_S, **BY_TCP)
            for time_point in range(20):
                run.put(image_of(time_point, (300, 400)), time=time_point)
            cutter = threading.Timer(0.002 * number, forwarder.cut)
            cutter.start()
            receipt = run.close()
            cutter.join()
            assert receipt.complete
            assert receipt.stored == 20
            assert check_frames(run.path, lambda _: (300, 400)) == 20


def test_skips_and_settings_outlive_a_cut(daemon: DaemonProcess) -> None:
    with Forwarder(daemon.port) as forwarder:
        run = acqstream.create("cells", endpoint=forwarder.endpoint, patience_s=PATIENCE_S, **BY_TCP)
        with run:
            run.put(image_of(0, SHAPE), time=0)
            forwarder.cut()
            run.skip(3, reason="shutter stuck")
            run.patch(display={"Gamma": 2})
            run.put(image_of(1, SHAPE), time=1)
            forwarder.cut()
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.skipped) == (2, 3)
    assert json.loads((Path(run.path) / "display_settings.txt").read_bytes()) == {"Gamma": 2}
    assert check_frames(run.path, lambda _: SHAPE) == 2
