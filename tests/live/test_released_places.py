"""A frame that meets a fault in the daemon ends its acquisition, and nothing waits for its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of
from tests.live.wire_client import WireClient, new_dataset_id

SHAPE = (64, 64)
PRELUDE = """
import {module} as module
original = module.{owner}.{name}
calls = []

def fail_once(*arguments, **named):
    calls.append(1)
    if len(calls) == {nth}:
        raise RuntimeError("injected")
    return original(*arguments, **named)

module.{owner}.{name} = fail_once
"""


def put(client: WireClient, ds: str, number: int, shape: list[float] | None = None) -> None:
    payload = image_of(number, SHAPE).tobytes()
    if shape is None:
        client.frame(ds, number, payload, SHAPE, {"time": number})
    else:
        client.send("frame", payload, ds=ds, n=number, dt="<u2", sh=shape, ax={"time": number})


def check_end(daemon: DaemonProcess, client: WireClient, ds: str, path: str, code: str, stored: int = 1) -> None:
    """The producer is told, what came before is stored, the name is free, the memory is back, the daemon ends."""
    error = client.wait_for("error")
    assert (error["code"], error["ds"], error["fatal"]) == (code, ds, True)
    closed = client.wait_for("closed")
    assert (closed["receipt"]["status"], closed["receipt"]["stored"]) == ("interrupted", stored)
    assert state_of(path)["state"] == "INTERRUPTED"
    assert check_frames(path, lambda _: SHAPE, oracle=False) == stored
    assert not fetch_status(daemon.endpoint).acquisitions
    with acqstream.create("cells", endpoint=daemon.endpoint, on_exists="number") as run:
        run.put(image_of(0, SHAPE), time=0)
    assert run.receipt is not None
    assert run.receipt.complete
    assert daemon.stop() == 0


@pytest.mark.parametrize("shape", [[64.0, 64.0], [64, 64.0]])
def test_sides_that_only_equal_integers_are_refused(tmp_path: Path, shape: list[float]) -> None:
    with DaemonProcess(tmp_path / "data") as daemon, WireClient(daemon.endpoint) as client:
        ds = new_dataset_id()
        path = client.open("cells", ds)["path"]
        put(client, ds, 0)
        put(client, ds, 1, shape)
        error = client.wait_for("error")
        assert (error["code"], error["n"], error["fatal"]) == ("bad_header", 1, False)
        client.send("close", ds=ds, n=2)
        receipt = client.wait_for("closed")["receipt"]
        assert (receipt["status"], receipt["stored"], receipt["refused"]) == ("completed", 1, 1)
        assert check_frames(path, lambda _: SHAPE, oracle=False) == 1


def test_a_fault_behind_frames_that_wait_to_be_written(tmp_path: Path) -> None:
    prelude = PRELUDE.format(module="acqstream.log.intake", owner="Slot", name="__init__", nth=5)
    with DaemonProcess(tmp_path / "data", prelude=prelude) as daemon, WireClient(daemon.endpoint) as client:
        ds = new_dataset_id()
        path = client.open("cells", ds)["path"]
        for number in range(5):
            put(client, ds, number)
        check_end(daemon, client, ds, path, "internal", stored=4)


def test_a_fault_where_a_frame_takes_memory_of_its_own(tmp_path: Path) -> None:
    prelude = PRELUDE.format(module="acqstream.log.memory", owner="Ring", name="allocate", nth=2)
    with DaemonProcess(tmp_path / "data", prelude=prelude) as daemon, WireClient(daemon.endpoint) as client:
        ds = new_dataset_id()
        path = client.open("cells", ds)["path"]
        put(client, ds, 0)
        while client.receive().get("published") != 1:
            pass
        put(client, ds, 1)
        check_end(daemon, client, ds, path, "internal")
