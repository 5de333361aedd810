"""What a producer says beside the pixels is read back: metadata to the byte of their JSON, and capture times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import acqstream
from acqstream.client.run import Run
from acqstream.integrity.verify import verify
from acqstream.log.journal import FRAME, JOURNAL_NAME
from acqstream.log.journal_file import read_journal
from tests.live.daemon_process import DaemonProcess
from tests.waiting import HANG_S, until

SIDES = (16, 600)  # packed frames, and one that lies alone
TRANSPORTS = ("tcp", "ipc", "shm")
FIRST_NS = 1_790_000_000_000_000_001


def said_of(number: int) -> tuple[dict[str, Any], int | None]:
    """Metadata and capture time of a frame; some have neither."""
    meta = {"frame": number, "stage": {"x_um": number / 7, "list": [number, "µm"]}, "values": [number] * 3}
    return meta if number % 5 else {}, FIRST_NS + 12_345_678 * number if number % 3 else None


class Reused:
    """One mapping, list, array and dictionary of axes for all frames, each changed again once `put` has returned."""

    def __init__(self, side: int) -> None:
        self.image = np.zeros((side, side), "u2")
        self.axes: dict[str, Any] = {}
        self.meta: dict[str, Any] = {"frame": -1, "stage": {"x_um": -1.0, "list": [0, ""]}, "values": np.zeros(3, "i8")}

    def put(self, run: Run, number: int) -> None:
        meta, time_ns = said_of(number)
        self.image[:] = number
        self.axes["time"] = number
        if meta:
            self.meta["frame"] = number
            self.meta["stage"]["x_um"] = meta["stage"]["x_um"]
            self.meta["stage"]["list"][:] = meta["stage"]["list"]
            self.meta["values"][:] = number
        run.put(self.image, self.axes, meta=self.meta if meta else None, time_ns=time_ns)
        self.spoil()

    def spoil(self) -> None:
        self.image[:] = 65535
        self.axes["time"] = -5
        self.meta["frame"] = "later"
        self.meta["stage"]["list"].clear()
        self.meta["values"][:] = -9


def stored_text(number: int) -> str:
    meta, time_ns = said_of(number)
    time = {} if time_ns is None else {"time_ns": time_ns}
    return json.dumps({**meta, **time, "Axes": {"time": number}}, separators=(",", ":"))


def check_said(path: Path | str, count: int) -> None:
    """Metadata and times in the files, in the journal and for a reader; the checksums are the producer's."""
    with acqstream.open(path) as dataset:
        reader = dataset._source._full  # type: ignore[union-attr] # the stored bytes
        for number in range(count):
            assert reader.metadata_bytes(reader.row({"time": number})).decode() == stored_text(number)
            assert dataset.read_metadata(time=number) == json.loads(stored_text(number))
            assert (dataset.read_frame(time=number) == number).all()
        times = [said_of(number)[1] for number in range(count)]
        read = dataset.frame_times()
        assert read.dtype == "datetime64[ns]"
        assert [None if np.isnat(time) else time.astype(int) for time in read] == times
    records = read_journal(Path(path) / JOURNAL_NAME).sound_frames
    assert [int(record["time_ns"]) if record["timed"] else None for record in records] == times
    assert (records["flags"] == FRAME).all()
    assert records["metadata_sent"].all()
    assert [int(record["metadata_checksum"]) for record in records] == [
        xxhash.xxh3_64_intdigest(stored_text(number).encode()) for number in range(count)
    ]
    assert verify(Path(path)).problems == []


@pytest.mark.promise("metadata")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("side", SIDES)
def test_what_was_given_may_be_reused(shared_daemon: DaemonProcess, transport: Any, side: int) -> None:
    name = f"said {transport} {side}"
    reused = Reused(side)
    with acqstream.create(name, endpoint=shared_daemon.endpoint, transport=transport) as run:
        for number in range(120):
            reused.put(run, number)
        assert run.transport == transport
    check_said(run.path, 120)


def test_a_reserved_frame_keeps_what_was_said_when_it_was_reserved(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("said reserved", endpoint=shared_daemon.endpoint) as run:
        for number in range(6):
            meta, time_ns = said_of(number)
            with run.reserve((16, 16), "u2", time=number, meta=meta, time_ns=time_ns) as image:
                image[:] = number
                meta["frame"] = "later"
    check_said(run.path, 6)


def test_it_survives_a_killed_daemon_and_a_resumed_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    reused = Reused(SIDES[0])
    with DaemonProcess(data) as daemon, acqstream.create("cells", endpoint=daemon.endpoint, patience_s=HANG_S) as run:
        for number in range(60):
            reused.put(run, number)
        until(lambda: run.progress.published >= 20, "20 published")
        daemon.kill()
        for number in range(60, 90):
            reused.put(run, number)
        daemon.start()
        until(lambda: run.progress.published == 90, "90 published")
        run.close("error", "to be resumed")
        with acqstream.create("cells", endpoint=daemon.endpoint, resume=True) as other:
            for number in range(other.next, 120):
                reused.put(other, number)
    check_said(data / "cells", 120)


def test_the_summary_and_late_metadata_may_be_reused(shared_daemon: DaemonProcess) -> None:
    summary: dict[str, Any] = {"PixelSizeUm": 0.5, "nested": {"list": [1, 2]}}
    display: dict[str, Any] = {"DAPI": {"Color": 1}}
    with acqstream.create("said summary", endpoint=shared_daemon.endpoint, summary=summary) as run:
        summary["nested"]["list"].append("later")
        late = {"late": {"n": [1]}}
        run.patch(summary=late, display=display)
        late["late"]["n"][0] = 2
        display["DAPI"]["Color"] = 2
        run.put(np.zeros((8, 8), "u1"), time=0)
    with acqstream.open(run.path) as dataset:
        stored = dataset.summary_metadata
        assert (stored["nested"], stored["late"]) == ({"list": [1, 2]}, {"n": [1]})
        assert dataset.display_settings == {"DAPI": {"Color": 1}}


@pytest.mark.parametrize(
    ("meta", "time_ns", "stored", "named"),
    [
        ({"time_ns": 17}, None, {"time_ns": 17}, ""),
        ({"time_ns": 17}, 18, {"time_ns": 18}, "time_ns"),
        ({"time_ns": "noon"}, None, {"time_ns": "noon"}, ""),
        ({"time_ns": "noon"}, 18, {"time_ns": 18}, "time_ns"),
        ({"Axes": {"time": 7}, "a": 1}, None, {"a": 1}, "Axes"),
        ({"Axes": {"time": 3}, "time_ns": 5}, 5, {"time_ns": 5}, ""),
        ({}, 0, {"time_ns": 0}, ""),
    ],
)
def test_keys_that_the_daemon_adds(
    shared_daemon: DaemonProcess, meta: dict[str, Any], time_ns: int | None, stored: dict[str, Any], named: str
) -> None:
    with acqstream.create("said keys", endpoint=shared_daemon.endpoint, on_exists="number") as run:
        run.put(np.zeros((8, 8), "u1"), time=3, meta=meta, time_ns=time_ns)
    said = [warning.text.split(" in ")[0] for warning in run.warnings if warning.code == "metadata_replaced"]
    assert said == [named] * bool(named)
    with acqstream.open(run.path) as dataset:
        assert dataset.read_metadata(time=3) == {**stored, "Axes": {"time": 3}}
        time = stored.get("time_ns")
        expected = np.datetime64(time, "ns") if isinstance(time, int) else np.datetime64("NaT")
        assert np.array_equal(dataset.frame_times(), [expected], equal_nan=True)
    assert verify(Path(run.path)).ok
