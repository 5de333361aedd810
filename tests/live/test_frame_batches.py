"""`frames` over the wire: many small puts share messages, a lone one is not delayed, a bad one ends at its number."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import acqstream
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SHAPE = (32, 48)


def test_a_burst_of_small_frames_is_whole(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        for number in range(3000):
            meta = {"number": number} if number % 3 == 0 else None
            run.put(pattern.frame(number, SHAPE, "uint16"), time=number // 3, z=number % 3, meta=meta)
            if number % 1000 == 999:
                run.put(pattern.frame(number, (300, 500), "uint16"), time=-number, z=0)  # a large one in between
    with acqstream.open(run.path) as dataset:
        assert len(list(dataset.keys())) == 3003
        for number in range(3000):
            axes = {"time": number // 3, "z": number % 3}
            assert np.array_equal(dataset.read_frame(axes), pattern.frame(number, SHAPE, "uint16")), number
            assert dataset.read_metadata(axes).get("number") == (number if number % 3 == 0 else None)


@pytest.mark.parametrize("transport", ["shm", "ipc", "tcp"])
@pytest.mark.parametrize("shape", [SHAPE, (300, 500)])
def test_frames_that_are_put_together_are_stored(
    daemon: DaemonProcess, transport: Literal["shm", "ipc", "tcp"], shape: tuple[int, int]
) -> None:
    frames = np.stack([pattern.frame(number, shape, "uint16") for number in range(8000 if shape == SHAPE else 30)])
    count = len(frames)
    with acqstream.create("cells", endpoint=daemon.endpoint, transport=transport) as run:
        run.put_many(frames, time=range(count), meta=[{"number": number} for number in range(count)])
        run.put_many(frames[:7], time=np.arange(7), z=1, time_ns=range(7))
        with pytest.raises(acqstream.FrameRefused) as caught:
            run.put_many(frames[:3], time=[count, 5, count + 1])  # time 5 is stored already
            until(lambda: run.progress.durable == run.next, "all are stored")
            run.put(frames[0], time=-1)
        assert caught.value.number == count + 8
        with run.reserve_many(5, shape, "uint16", time=range(5), z=2) as places:
            places[:] = frames[5:10]
    with acqstream.open(run.path) as dataset:
        assert np.array_equal(dataset.read_frames(range(count)), frames)  # more than the daemon's memory
        for number in range(0, count, 9):
            assert np.array_equal(dataset.read_frame(time=number), frames[number])
            assert dataset.read_metadata(time=number)["number"] == number
        assert [dataset.read_metadata(time=number, z=1)["time_ns"] for number in range(7)] == [*range(7)]
        assert np.array_equal(dataset.read_frame(time=count + 1), frames[2])
        assert [np.array_equal(dataset.read_frame(time=time, z=2), frames[5 + time]) for time in range(5)] == [True] * 5


def test_a_lone_frame_is_published_without_another_put(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(pattern.frame(0, SHAPE, "uint16"), time=0)
        until(lambda: run.progress.published == 1, "the lone frame is published")


def batch(number: int, count: int, **fields: object) -> dict[str, object]:
    axes = {"time": {"start": number, "step": 1}}
    return {"n": number, "count": count, "dt": "<u2", "sh": list(SHAPE), "ax": axes, **fields}


def pixels(number: int, count: int) -> bytes:
    return b"".join(pattern.frame(number + one, SHAPE, "uint16").tobytes() for one in range(count))


def send_when_open(client: WireClient, ds: str, payload: bytes, fields: dict[str, object]) -> None:
    """Send a batch as soon as the window takes its last frame."""
    number, count = fields["n"], fields["count"]
    assert isinstance(number, int)
    assert isinstance(count, int)
    while number + count > client.limits[ds]["n"]:
        assert client.receive()["t"] in ("ack", "status")
    client.send("frames", payload, ds=ds, **fields)


def stored_times(path: str) -> list[object]:
    with acqstream.open(path) as dataset:
        for key in dataset.keys():  # noqa: SIM118 - a dataset is no mapping
            expected = pattern.frame(int(key["time"]), SHAPE, "uint16")
            assert np.array_equal(dataset.read_frame(key), expected)
        return [key["time"] for key in dataset.keys()]  # noqa: SIM118


def test_frames_beside_a_bad_one_are_stored_and_the_error_names_it(daemon: DaemonProcess) -> None:
    for name, bad, number in (
        ("sums", batch(3, 4, sums=[None, None, "zz", None]), 5),
        ("axes", batch(3, 4, ax={"time": [3, 4, 0, 6]}), 5),  # time 0 is stored already
    ):
        with WireClient(daemon.endpoint, "json") as client:
            ds = new_dataset_id()
            path = client.open(name, ds)["path"]
            send_when_open(client, ds, pixels(0, 3), batch(0, 3))
            send_when_open(client, ds, pixels(3, 4), bad)
            error = client.wait_for("error")
            assert (error["n"], error["fatal"], "count" in error) == (number, False, False), error
            client.send("close", ds=ds, n=7)
            receipt = client.wait_for("closed")["receipt"]
            assert (receipt["stored"], receipt["refused"], receipt["status"]) == (6, 1, "completed")
        assert stored_times(path) == [0, 1, 2, 3, 4, 6]


def test_a_batch_that_is_partly_known_adds_the_rest(daemon: DaemonProcess) -> None:
    with WireClient(daemon.endpoint, "msgpack") as client:
        ds = new_dataset_id()
        path = client.open("known", ds)["path"]
        send_when_open(client, ds, pixels(0, 3), batch(0, 3))
        send_when_open(client, ds, pixels(1, 5), batch(1, 5))
        client.send("close", ds=ds, n=6)
        assert client.wait_for("closed")["receipt"]["stored"] == 6
    assert stored_times(path) == list(range(6))


def test_a_payload_of_another_size_is_refused(daemon: DaemonProcess) -> None:
    with WireClient(daemon.endpoint, "json") as client:
        ds = new_dataset_id()
        client.open("short", ds)
        send_when_open(client, ds, pixels(0, 2), batch(0, 3))
        error = client.wait_for("error")
        assert (error["code"], error["n"]) == ("payload_size", 0)
