"""Wrong input, one row each: what the sender is told, and that it costs nobody else anything."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SMALL = (8, 8)
PAYLOAD = bytes(128)
MAX_ACQUISITIONS = 5
Send = Callable[[WireClient, str], None]


@dataclass(frozen=True)
class Row:
    """One wrong message: sent to an acquisition that has three frames.

    fatal: it ends that acquisition, after these three. refused: so many frames are refused; else the acquisition goes
    on as if nothing had come.
    """

    code: str
    text: str
    send: Send
    fatal: bool = False
    refused: int = 0


def raw(*parts: bytes) -> Send:
    return lambda client, _ds: client.send_parts(*parts)


def opened(name: str, **more: Any) -> Send:
    return lambda client, _ds: client.send("open", ds=new_dataset_id(), name=name, **more)


def frame(*payload: bytes, **fields: Any) -> Send:
    """Frame 3 with something else about it."""

    def send(client: WireClient, ds: str) -> None:
        header = {"t": "frame", "ds": ds, "n": 3, "dt": "<u2", "sh": [8, 8], "ax": {"time": 3, "channel": 3}, **fields}
        client.send_parts(json.dumps(header).encode(), *payload)

    return send


def msgpack_frame(**fields: Any) -> Send:
    def send(client: WireClient, ds: str) -> None:
        header = {"t": "frame", "ds": ds, "n": 3, "dt": "<u2", "sh": [8, 8], "ax": {"time": 3}, **fields}
        client.send_parts(msgpack.packb(header), PAYLOAD)

    return send


def batch(**fields: Any) -> Send:
    def send(client: WireClient, ds: str) -> None:
        ax = {"time": [3, 4], "channel": [3, 4]}
        header = {"t": "frames", "ds": ds, "n": 3, "count": 2, "dt": "<u2", "sh": [8, 8], "ax": ax, **fields}
        client.send_parts(json.dumps(header).encode(), PAYLOAD * 2)

    return send


TABLE = {
    # the header
    "header too long": Row("bad_header", "at most 1048576", raw(b'{"t":"ping","x":"' + b"x" * 2**20 + b'"}')),
    "6 MB of metadata": Row("bad_header", "at most 1048576", frame(PAYLOAD, meta={"x": "y" * 6_000_000})),
    "not a map": Row("bad_header", "expected a JSON object or a msgpack map", raw(b"[1,2]")),
    "nothing": Row("bad_header", "empty header part", raw(b"")),
    "random bytes": Row("bad_header", "header starts with byte", raw(bytes(range(1, 200)))),
    "torn": Row("bad_header", "not valid JSON", raw(b'{"t":"ping"')),
    "unknown type": Row("bad_header", "unknown message type 'format_disk'", raw(b'{"t":"format_disk"}')),
    "NaN in metadata, JSON": Row("bad_header", "NaN is not JSON; send null", frame(PAYLOAD, meta={"x": math.nan})),
    "NaN in metadata, msgpack": Row("bad_header", "not JSON compliant", msgpack_frame(meta={"x": math.nan}), refused=1),
    "a field of a wrong type": Row("bad_header", "'n' must be an integer", frame(PAYLOAD, n="3"), True),
    # parts
    "parts too many": Row("bad_header", "must have one part; more parts came", raw(b'{"t":"ping"}', b"x")),
    "payload missing": Row("payload_size", "two parts, header and pixels", frame(), refused=1),
    "payload too short": Row("payload_size", "needs one part of 128", frame(PAYLOAD[1:]), refused=1),
    "payload too long": Row("payload_size", "needs one part of 128", frame(PAYLOAD + b"x"), refused=1),
    "payload in two parts": Row("payload_size", "and more parts", frame(PAYLOAD, PAYLOAD), refused=1),
    # pixels
    "float32": Row("dtype_unsupported", "convert the image, for example", frame(PAYLOAD * 2, dt="<f4"), refused=1),
    "int16": Row("dtype_unsupported", "convert the image, for example", frame(PAYLOAD, dt="<i2"), refused=1),
    "big-endian": Row("dtype_unsupported", "little-endian uint16", frame(PAYLOAD, dt=">u2"), refused=1),
    "16-bit RGB": Row("dtype_unsupported", "send one channel each", frame(PAYLOAD * 3, sh=[8, 8, 3]), refused=1),
    "four dimensions": Row("dtype_unsupported", "must be (Y, X)", frame(PAYLOAD, sh=[1, 1, 8, 8]), refused=1),
    "more than 4 GiB": Row("limit_exceeded", "exceeds the window", frame(PAYLOAD, sh=[2**16, 2**16]), True),
    "a side too long": Row("dtype_unsupported", "sides must be 1 to", frame(PAYLOAD, sh=[2**21, 8]), refused=1),
    # names
    "name ..": Row("bad_name", "begins with", opened("..")),
    "name with a slash": Row("bad_name", "no name before or behind a", opened("a//b")),
    "name with a backslash": Row("bad_name", "is not a letter", opened("a\\b")),
    "name from the root": Row("bad_name", "no name before or behind a", opened("/etc/passwd")),
    "name empty": Row("bad_name", "empty", opened("")),
    "name of 300 characters": Row("bad_name", "100 characters", opened("x" * 300)),
    "name of a device": Row("bad_name", "for a device", opened("COM1.tif")),
    "name taken": Row("name_taken", "already exists", opened("finished")),
    "name being written": Row("name_taken", "already exists", opened("VICTIM")),
    "opened twice": Row("name_taken", "already open", lambda c, ds: c.send("open", ds=ds, name="again")),
    # order, window, axes
    "number skipped": Row("gap", "declare missing frames with skip", frame(PAYLOAD, n=4), True),
    "beyond the window": Row("limit_exceeded", "exceeds the window", frame(bytes(40 * 10**6), sh=[4000, 5000]), True),
    "axes repeated": Row(
        "duplicate_axes", "is stored already", frame(PAYLOAD, ax={"channel": 0, "time": 0}), refused=1
    ),
    "axis mixed": Row("axis_kind", "must not mix both", frame(PAYLOAD, ax={"time": 3, "channel": "DAPI"}), refused=1),
    "axis mixed in a batch": Row("axis_kind", "must not mix", batch(ax={"time": ["a", "b"]}), refused=2),
    "axis true": Row("bad_header", "must be an integer or a string", frame(PAYLOAD, ax={"time": True}), refused=1),
    "axis 0.5": Row("bad_header", "must be an integer or a string", frame(PAYLOAD, ax={"time": 0.5}), refused=1),
    "axis name": Row("bad_header", "letters, digits or underscores", frame(PAYLOAD, ax={"../x": 3}), refused=1),
    "17 axes": Row("bad_header", "at most 16", frame(PAYLOAD, ax={f"a{i}": 0 for i in range(17)}), refused=1),
    "a batch of none": Row("bad_header", "'count' must be an integer from 1", batch(count=0), True),
    "a batch too short": Row(
        "payload_size", "needs one part of 384", batch(count=3, ax={"time": [3, 4, 5], "channel": [3, 4, 5]}), refused=3
    ),
}


@pytest.fixture(scope="module")
def busy_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """With a finished dataset, and an acquisition that runs all the time and is complete at the end."""
    folder: Path = tmp_path_factory.mktemp("table") / "data"
    with DaemonProcess(folder, max_acquisitions=MAX_ACQUISITIONS, grace_s=0.5) as process:
        acqstream.create("finished", endpoint=process.endpoint).close()
        victim = Victim(process.endpoint)
        yield process
        victim.finish()


@pytest.mark.parametrize("row", TABLE.values(), ids=list(TABLE))
def test_what_the_sender_of_wrong_input_is_told(busy_daemon: DaemonProcess, row: Row) -> None:
    ds = new_dataset_id()
    before = sorted(path.name for path in busy_daemon.data.parent.iterdir())
    with WireClient(busy_daemon.endpoint) as client:
        path = client.open("row", ds, on_exists="number")["path"]
        for number in range(3):
            client.frame(ds, number, image_of(number, SMALL).tobytes(), SMALL, {"time": number, "channel": number})
        row.send(client, ds)
        error = client.wait_for("error", "opened", "closed")
        assert (error["t"], error.get("code"), error.get("fatal")) == ("error", row.code, row.fatal), error
        assert row.text in error["text"], error["text"]
        assert len(error["text"]) < 600
        number = 3 + row.refused
        if not row.fatal:
            client.frame(ds, number, image_of(3, SMALL).tobytes(), SMALL, {"time": 3, "channel": 3})
            client.send("close", ds=ds, n=number + 1)
        receipt = client.wait_for("closed")["receipt"]
    stored = 3 if row.fatal else 4
    assert receipt["refused"] == row.refused
    assert (receipt["status"], receipt["stored"]) == ("interrupted" if row.fatal else "completed", stored)
    assert receipt["reason"] == (error["text"] if row.fatal else "")
    assert _numbers(path) == list(range(stored))
    assert sorted(path.name for path in busy_daemon.data.parent.iterdir()) == before


def _numbers(path: str) -> list[int]:
    with acqstream.open(path) as dataset:
        keys = list(dataset.keys())
        found = [int(key["time"]) for key in keys]
        for number in found:
            assert np.array_equal(dataset.read_frame(time=number, channel=number), image_of(number, SMALL))
    return found


def test_a_number_sent_again_is_acknowledged_again(busy_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    with WireClient(busy_daemon.endpoint) as client:
        path = client.open("again", ds)["path"]
        for number in (0, 1, 2, 1, 0, 2, 3, 3):
            client.send(
                "frame", image_of(number, SMALL).tobytes(), ds=ds, n=number, dt="<u2", sh=[8, 8], ax={"time": number}
            )
            if number == 0:
                client.wait_for("ack")
        client.send("close", ds=ds, n=4)
        assert client.wait_for("closed", "error")["receipt"]["stored"] == 4
    assert check_frames(path, lambda _: SMALL) == 4


def test_a_flood_of_opens_is_bounded(busy_daemon: DaemonProcess) -> None:
    """As many as are allowed are opened, the others refused with the reason; all are gone with their connection."""
    folders = len(list(busy_daemon.data.iterdir()))
    until(lambda: len(fetch_status(busy_daemon.endpoint).acquisitions) == 1, "acquisitions of earlier tests are over")
    with WireClient(busy_daemon.endpoint) as client:
        answers: list[dict[str, Any]] = []
        for number in range(200):
            client.send("open", ds=new_dataset_id(), name=f"flood{number}")
        while len(answers) < 200:
            answers.append(client.wait_for("opened", "error"))
        refused = [answer for answer in answers if answer["t"] == "error"]
        assert len(refused) == 200 - (MAX_ACQUISITIONS - 1)
        assert {answer["code"] for answer in refused} == {"denied"}
        texts = [answer["text"] for answer in refused]
        assert any("max_acquisitions is" in text for text in texts)
        assert all("max_acquisitions is" in text or "wait for the disk" in text for text in texts)
    assert len(list(busy_daemon.data.iterdir())) == folders + MAX_ACQUISITIONS - 1
    until(lambda: len(fetch_status(busy_daemon.endpoint).acquisitions) == 1, "the half-open ones expire")


def test_a_session_without_frames_ends_with_its_connection(busy_daemon: DaemonProcess) -> None:
    with WireClient(busy_daemon.endpoint) as client:
        path = client.open("half_open", new_dataset_id())["path"]
    until(lambda: state_of(path)["state"] == "INTERRUPTED", "the grace time is over")
    with acqstream.open(path) as dataset:
        assert list(dataset.keys()) == []


def test_arrays_of_any_layout_are_made_right_by_the_client(busy_daemon: DaemonProcess) -> None:
    image = image_of(0, (40, 60))
    padded = np.zeros((80, 61), "<u2")
    padded[::2, 1:] = image
    layouts = {
        "C": image,
        "Fortran": np.asfortranarray(image),
        "big-endian": image.astype(">u2"),
        "big-endian Fortran": np.asfortranarray(image.astype(">u2")),
        "every second row": padded[::2, 1:],
        "mirrored": image[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": np.frombuffer(image.tobytes(), "<u2").reshape(40, 60),
    }
    with acqstream.create("layouts", endpoint=busy_daemon.endpoint) as run:
        for name, array in layouts.items():
            run.put(array, layout=name)
    assert run.receipt is not None
    assert run.receipt.complete
    with acqstream.open(run.path) as dataset:
        for name in layouts:
            assert np.array_equal(dataset.read_frame(layout=name), image), name


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint32", "complex64", "bool"])
def test_what_no_stack_holds_is_refused_by_the_client_with_advice(busy_daemon: DaemonProcess, dtype: str) -> None:
    run = acqstream.create("advice", endpoint=busy_daemon.endpoint, on_exists="number")
    with pytest.raises((acqstream.AcqStreamError, ValueError), match="convert the image"):
        run.put(np.zeros((4, 4), dtype), time=0)
    run.put(np.zeros((4, 4), "uint8"), time=0)
    assert run.close().stored == 1
