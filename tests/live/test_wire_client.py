"""docs/protocol.md is enough to write a producer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

import pytest
import xxhash
import zmq

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of
from tests.live.wire_client import WireClient, new_dataset_id
from tests.log.read_back import open_ndstorage
from tests.waiting import until

SHAPE = (64, 64)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_whole_dialogue(shared_daemon: DaemonProcess, encoding: Literal["json", "msgpack"]) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint, encoding) as client:
        welcome = client.hello()
        assert (welcome["v"], welcome["formats"]) == (1, ["ndtiff"])
        assert set(welcome["dtypes"]) == {"|u1", "<u2"}
        assert welcome.get("ipc", "") == (shared_daemon.ipc if zmq.has("ipc") else "")
        if sys.platform == "linux":
            assert welcome["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

        opened = client.open(
            f"dialogue-{encoding}", ds, summary={"Interval_ms": 100}, frame={"dt": "<u2", "sh": list(SHAPE)}, expect=9
        )
        assert (opened["t"], opened["ds"], opened["next"]) == ("opened", ds, 0)
        assert (opened["resumed"], opened["recovering"]) == (False, False)
        assert opened["io"] in ("direct", "buffered")
        assert opened["window"] >= 2 * 64 * 64
        client.send("patch", ds=ds, summary={"Late": "yes"})
        for number in range(5):
            payload = image_of(number, SHAPE).tobytes()
            more = {"sum": {"xxh3": f"{xxhash.xxh3_64_intdigest(payload):016x}"}} if number != 3 else {}
            client.frame(ds, number, payload, SHAPE, {"time": number}, meta={"exposure_ms": 10.5}, **more)
        client.send("skip", ds=ds, n=5, count=3, reason="camera timeout")
        client.frame(ds, 8, image_of(5, SHAPE).tobytes(), SHAPE, {"time": 5}, tns=1790000000000000000, bits=12)
        client.send("patch", ds=ds, display={"DAPI": {"Gamma": 1.0}})
        client.send("ping", ds=ds)
        assert client.wait_for("status")["ds"] == ds
        client.send("close", ds=ds, n=9, status="completed", reason="")
        closed = client.wait_for("closed")
        assert client.cursors[ds] == (9, 9, 9)
        client.send("close", ds=ds, n=9)
        assert client.wait_for("closed") == closed

    receipt = closed["receipt"]
    assert (receipt["dataset_id"], receipt["status"]) == (ds, "completed")
    assert (receipt["sent"], receipt["stored"], receipt["skipped"], receipt["without_checksum"]) == (9, 6, 3, 2)
    assert receipt["missing"] == [{"first": 5, "count": 3, "reason": "camera timeout"}]
    assert receipt["payload_bytes"] == 6 * 64 * 64 * 2
    path = Path(receipt["path"])
    assert json.loads((path / "receipt.json").read_bytes())["missing"] == receipt["missing"]
    assert json.loads((path / "display_settings.txt").read_bytes()) == {"DAPI": {"Gamma": 1.0}}
    assert check_frames(path, lambda _: SHAPE) == 6
    with acqstream.open(path) as dataset:
        assert dataset.summary_metadata["Interval_ms"] == 100
        assert dataset.summary_metadata["Late"] == "yes"
        assert dataset.read_metadata(time=2)["exposure_ms"] == 10.5
    with open_ndstorage(path) as dataset:
        assert dataset.summary_metadata["Late"] == "yes"
        assert dataset.read_metadata(time=4)["exposure_ms"] == 10.5


def test_the_encoding_is_decided_by_every_message_anew(shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint, "msgpack") as client:
        client.open("mixed", ds)
        client.encoding = "json"
        client.send("ping")
        while "data" not in (status := client.wait_for("status")):
            assert client.heard == "msgpack"  # news of the acquisition
        assert (client.heard, status["data"]) == ("json", str(shared_daemon.data))
        client.send("frame", b"", ds="none", n=0, dt="<u2", sh=[1, 1], ax={})
        assert (client.wait_for("error")["code"], client.heard) == ("unknown_ds", "json")
        client.send("close", ds=ds, n=0)
        assert client.wait_for("closed")["receipt"]["stored"] == 0
        assert client.heard == "msgpack"


def test_a_frame_that_is_sent_again_is_stored_once(shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint) as client:
        path = client.open("again", ds)["path"]
        for number in (0, 1, 0, 1, 1, 2, 0):
            client.send(
                "frame", image_of(number, SHAPE).tobytes(), ds=ds, n=number, dt="<u2", sh=[64, 64], ax={"time": number}
            )
        client.send("skip", ds=ds, n=1, count=3)  # 1 and 2 are stored, 3 is skipped
        client.send("skip", ds=ds, n=0, count=4)
        client.frame(ds, 4, image_of(3, SHAPE).tobytes(), SHAPE, {"time": 3})
        client.send("close", ds=ds, n=5)
        receipt = client.wait_for("closed")["receipt"]
    assert (receipt["stored"], receipt["skipped"]) == (4, 1)
    assert receipt["missing"] == [{"first": 3, "count": 1, "reason": ""}]
    assert check_frames(path, lambda _: SHAPE) == 4


def test_a_producer_that_comes_back_is_told_where_to_go_on_and_fences_the_old_connection(
    shared_daemon: DaemonProcess,
) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint) as old, WireClient(shared_daemon.endpoint, "msgpack") as new:
        path = old.open("fenced", ds)["path"]
        for number in range(3):
            old.frame(ds, number, image_of(number, SHAPE).tobytes(), SHAPE, {"time": number})
        until(lambda: old.receive()["t"] == "ack" and old.cursors[ds][0] == 3, "three frames received")
        assert new.open("fenced", ds)["code"] == "name_taken"
        opened = new.open("fenced", ds, resume=True, epoch=1)
        assert (opened["next"], opened["resumed"], opened["path"]) == (3, True, path)
        assert (opened["bytes"], opened["epoch"]) == (3 * 8192, 1)
        assert new.wait_for("ack")["received"] == 3  # what the old connection may have lost
        old.send("frame", bytes(8192), ds=ds, n=3, dt="<u2", sh=[64, 64], ax={"time": 3})
        error = old.wait_for("error")
        assert (error["code"], error["fatal"]) == ("denied", False)
        new.frame(ds, 3, image_of(3, SHAPE).tobytes(), SHAPE, {"time": 3})
        new.send("close", ds=ds, n=4)
        assert new.wait_for("closed")["receipt"]["stored"] == 4
        assert old.open("fenced", ds, resume=True)["receipt"]["stored"] == 4
        assert old.open("fenced", new_dataset_id(), resume=True, epoch=1)["code"] == "unknown_ds"
        assert old.open("fenced", new_dataset_id(), resume=True)["code"] == "name_taken"  # it is complete
    assert check_frames(path, lambda _: SHAPE) == 4


def test_close_without_waiting_for_anything(shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint) as client:
        client.send("open", ds=ds, name="hasty")
        client.send("close", ds=ds, n=0, status="canceled", reason="changed my mind")
        receipt = client.wait_for("closed")["receipt"]
    assert (receipt["status"], receipt["reason"], receipt["stored"]) == ("canceled", "changed my mind", 0)
    assert state_of(receipt["path"])["state"] == "CANCELED"


def test_events_tell_what_becomes_of_a_dataset(shared_daemon: DaemonProcess) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with WireClient(shared_daemon.endpoint) as client:
            events = context.socket(zmq.SUB)
            events.connect(client.hello()["events"])
            events.subscribe(b"")
            _until_subscribed(client, events)
            ds = new_dataset_id()
            events.subscribe(ds.encode())
            events.unsubscribe(b"")
            path = client.open("seen", ds)["path"]
            for number in range(3):
                client.frame(ds, number, image_of(number, SHAPE).tobytes(), SHAPE, {"time": number})
            client.send("close", ds=ds, n=3)
            client.wait_for("closed")
            seen: list[dict] = []
            while not seen or seen[-1]["t"] != "closed":
                assert events.poll(10_000), f"no event after {seen}"
                topic, body = events.recv_multipart()
                message = json.loads(body)
                if message["ds"] == ds:
                    assert topic == ds.encode()
                    seen.append(message)
    finally:
        context.destroy(linger=0)
    assert seen[0] == {"t": "opened", "ds": ds, "name": "seen", "path": path}
    published = [message["published"] for message in seen[1:-1]]
    assert published == sorted(set(published))
    assert published[-1] == 3
    assert {message["t"] for message in seen[1:-1]} == {"published"}
    assert seen[-1] == {"t": "closed", "ds": ds, "status": "completed"}


def _until_subscribed(client: WireClient, events: zmq.Socket[bytes]) -> None:
    """A subscription takes effect some time after it was made."""
    for _ in range(100):
        ds = new_dataset_id()
        client.open("herald", ds, on_exists="number")
        client.send("close", ds=ds, n=0)
        client.wait_for("closed")
        if events.poll(100):
            return
    pytest.fail("no event reaches the subscriber")
