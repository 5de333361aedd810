"""Wrong input in the middle of another's acquisition: it is told, and costs nobody else anything."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acqstream.client.daemon_requests import fetch_status
from acqstream.daemon.reception import MAX_PARTS_AT_ONCE
from acqstream.integrity.verify import verify
from tests.live.daemon_process import DaemonProcess
from tests.live.raw_peer import RawPeer
from tests.live.stored import check_frames, image_of, state_of
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id

SMALL = (8, 8)
STOP_VICTIM = b'{"t":"stop","name":"victim"}'
PAYLOAD = bytes(128)


@pytest.fixture(scope="module")
def victim(shared_daemon: DaemonProcess) -> Iterator[Victim]:
    at_work = Victim(shared_daemon.endpoint)
    yield at_work
    at_work.finish()


@pytest.fixture
def client(shared_daemon: DaemonProcess, victim: Victim) -> Iterator[WireClient]:
    """A connection beside the victim's; the daemon and the victim go on after whatever was sent over it."""
    with WireClient(shared_daemon.endpoint) as one:
        yield one
    assert any(one.path == victim.run.path for one in fetch_status(shared_daemon.endpoint).acquisitions)
    assert victim.error is None


# --- what is no message of this protocol at all


def test_what_is_no_zmtp(shared_daemon: DaemonProcess, client: WireClient) -> None:
    noise = random.Random(1)
    for content in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        noise.randbytes(5000),
        b"\x01\x00" * 100,  # messages of the first ZMTP version
        b"\x05\x00{}{}" * 50,
        b"\xff\0\0\0\0\0\0\0\x01\x7f" + noise.randbytes(200),  # begins as ZMTP 3
        b"",
    ):
        with socket.create_connection(("127.0.0.1", shared_daemon.port)) as one:
            with contextlib.suppress(OSError):  # the daemon may hang up
                one.sendall(content)
                one.shutdown(socket.SHUT_WR)
                one.settimeout(0.2)
                while one.recv(65536):
                    pass
    assert client.hello()["t"] == "welcome"


HEADERS = {
    "empty": b"",
    "not a map": b"[1,2]",
    "torn JSON": b'{"t":"ping"',
    "NaN": b'{"t":"ping","x":NaN}',
    "a key twice": b'{"t":"ping","t":"ping"}',
    "no UTF-8": b'{"t":"\xff\xfe"}',
    "deep": b'{"t":' + b"[" * 100_000,
    "torn msgpack": b"\x81",
    "a map of 4 billion entries": b"\xdf\xff\xff\xff\xff",
    "msgpack extension": b"\x81\xa1t\xd4\x05\x00",
    "no type": b"{}",
    "unknown type": b'{"t":"format_disk"}',
    "type no string": b'{"t":{"a":1}}',
    "a large one": b'{"t":"ping","x":"' + b"x" * 2**20 + b'"}',
    "a long name": json.dumps({"t": "open", "ds": "abcd", "name": "x" * 500_000}).encode(),
    "axes no list": b'{"t":"open","ds":"abcd","name":"a","axes":5}',
    "axis name no string": b'{"t":"open","ds":"abcd","name":"a","axes":[{"name":["x"]}]}',
    "labels no list": b'{"t":"open","ds":"abcd","name":"a","axes":[{"name":"x","labels":5}]}',
    "half a surrogate": b'{"t":"open","ds":"abcd","name":"a","summary":{"x":"\\ud800"}}',
    "binary in a patch": b"\x83\xa1t\xa5patch\xa2ds\xa4abcd\xa7display\x81\xa1a\xc4\x01x",
    "integer of 300 digits": b'{"t":"skip","ds":"abcd","n":' + b"9" * 300 + b"}",
    "integer of 5000 digits": b'{"t":"skip","ds":"abcd","n":' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("raw", HEADERS.values(), ids=list(HEADERS))
def test_a_header_that_is_none_is_answered(client: WireClient, raw: bytes) -> None:
    client.send_parts(raw)
    error = client.wait_for("error", "opened")
    assert error["t"] == "error", error
    assert error["fatal"] is False
    assert error["code"] != "internal", error
    assert len(json.dumps(error)) < 2000


@pytest.mark.parametrize(
    "parts",
    [
        (b'{"t":"ping"}', b""),
        (b'{"t":"ping"}', b"x" * 100_000, b"y"),
        (b"", b"", b""),
        (b"{}", *[STOP_VICTIM] * (MAX_PARTS_AT_ONCE + 2)),
    ],
    ids=["a payload", "two", "empty ones", "thousands of commands"],
)
def test_a_message_of_too_many_parts_is_answered(client: WireClient, parts: tuple[bytes, ...]) -> None:
    client.send_parts(*parts)
    error = client.wait_for("error")
    assert (error["code"], error["fatal"]) == ("bad_header", False)
    client.send("hello", v=1)
    assert client.receive()["t"] == "welcome"  # the next answer: none of the parts counts as a message


@pytest.mark.parametrize("name", ["../cells", "/tmp/cells", "..", "", "x" * 101, "nul", "-rf", ".hidden"])
def test_names_that_lead_elsewhere_are_refused(client: WireClient, shared_daemon: DaemonProcess, name: str) -> None:
    before = sorted(path.name for path in shared_daemon.data.iterdir())
    error = client.open(name, new_dataset_id())
    assert (error["code"], error["fatal"]) == ("bad_name", False)
    assert sorted(path.name for path in shared_daemon.data.iterdir()) == before


def test_what_this_version_does_not_have_is_refused_at_once(client: WireClient) -> None:
    assert client.open("copies", new_dataset_id(), mirrors=["bmp"])["code"] == "unsupported"
    client.send("hello", v=2)
    assert client.wait_for("error")["code"] == "bad_version"
    assert client.open("full", new_dataset_id(), frame={"dt": "<u2", "sh": [2**20, 2**20]}, expect=10**9)["code"] in (
        "disk_full",
        "denied",
    )


# --- messages about acquisitions that are not one's own


def test_an_acquisition_of_another_connection_is_out_of_reach(client: WireClient, victim: Victim) -> None:
    ds = state_of(victim.run.path)["dataset_id"]
    for send in (
        lambda: client.send("frame", PAYLOAD, ds=ds, n=0, dt="<u2", sh=[8, 8], ax={}),
        lambda: client.send("frame", b"short", ds=ds, n=0, dt="<u2", sh=[8, 8], ax={}),
        lambda: client.send("frame", ds=ds, n="zero"),
        lambda: client.send("skip", ds=ds, n=0, count=1000),
        lambda: client.send("skip", ds=ds, n=-1),
        lambda: client.send("patch", ds=ds, display={"a": 1}),
        lambda: client.send("close", ds=ds, n=0),
        lambda: client.send("ping", ds=ds),
    ):
        send()
        error = client.wait_for("error", "closed", "ack", "status")
        assert error["code"] in ("denied", "bad_header"), error
        assert error["fatal"] is False
    assert client.open("victim", ds)["code"] == "name_taken"


def test_an_acquisition_that_is_not_there(client: WireClient) -> None:
    ds = new_dataset_id()
    client.send("frame", PAYLOAD, ds=ds, n=0, dt="<u2", sh=[8, 8], ax={})
    assert client.wait_for("error")["code"] == "unknown_ds"
    others: dict[str, dict[str, Any]] = {"skip": {"n": 0}, "patch": {"display": {}}, "close": {"n": 0}, "ping": {}}
    for t, fields in others.items():
        client.send(t, ds=ds, **fields)
        error = client.wait_for("error")
        assert (error["code"], error["fatal"], error["ds"]) == ("unknown_ds", False, ds), t


# --- one's own acquisition: a wrong frame costs this frame, what breaks the protocol ends it


def frame(client: WireClient, ds: str, payload: bytes = PAYLOAD, **fields: Any) -> None:
    client.send("frame", payload, **{"ds": ds, "n": 3, "dt": "<u2", "sh": [8, 8], "ax": {"time": 3}, **fields})


REFUSED: dict[str, tuple[str, Callable[[WireClient, str], None]]] = {
    "too short": ("payload_size", lambda c, ds: frame(c, ds, PAYLOAD[1:])),
    "too long": ("payload_size", lambda c, ds: frame(c, ds, PAYLOAD + b"x")),
    "far too long": ("payload_size", lambda c, ds: frame(c, ds, bytes(1_000_000))),
    "empty": ("payload_size", lambda c, ds: frame(c, ds, b"")),
    "no payload": ("payload_size", lambda c, ds: c.send("frame", ds=ds, n=3, dt="<u2", sh=[8, 8], ax={"time": 3})),
    "three parts": (
        "payload_size",
        lambda c, ds: c.send_parts(
            json.dumps({"t": "frame", "ds": ds, "n": 3, "dt": "<u2", "sh": [8, 8], "ax": {"time": 3}}).encode(),
            PAYLOAD,
            PAYLOAD,
        ),
    ),
    "the same axes again": ("duplicate_axes", lambda c, ds: frame(c, ds, ax={"time": 0})),
    "float": ("dtype_unsupported", lambda c, ds: frame(c, ds, dt="<f4")),
    "big-endian": ("dtype_unsupported", lambda c, ds: frame(c, ds, dt=">u2")),
    "no sides": ("dtype_unsupported", lambda c, ds: frame(c, ds, sh=[])),
    "a side of 0": ("dtype_unsupported", lambda c, ds: frame(c, ds, b"", sh=[0, 8])),
    "negative": ("dtype_unsupported", lambda c, ds: frame(c, ds, sh=[-8, -8])),
    "nested sides": ("bad_header", lambda c, ds: frame(c, ds, sh=[[8], 8])),
    "axes no map": ("bad_header", lambda c, ds: frame(c, ds, ax=[1])),
    "an axis too large": ("bad_header", lambda c, ds: frame(c, ds, ax={"time": 2**31})),
    "a checksum that is none": ("bad_header", lambda c, ds: frame(c, ds, sum={"xxh3": "z" * 16})),
    "another checksum": ("checksum", lambda c, ds: frame(c, ds, sum={"xxh3": "0" * 16})),
}


FAULTS: dict[str, tuple[str, Callable[[WireClient, str], None]]] = {
    "a gap": ("gap", lambda c, ds: frame(c, ds, n=4)),
    "a gap by skip": ("gap", lambda c, ds: c.send("skip", ds=ds, n=5)),
    "beyond the window": ("limit_exceeded", lambda c, ds: frame(c, ds, bytes(200_000_000), sh=[10_000, 10_000])),
    "more than a file takes": ("limit_exceeded", lambda c, ds: frame(c, ds, sh=[2**20, 2**20])),
}


def begun(client: WireClient) -> tuple[str, str]:
    """The id and the path of a run of three frames."""
    ds = new_dataset_id()
    path = client.open("wrong", ds, on_exists="number")["path"]
    for number in range(3):
        client.frame(ds, number, image_of(number, SMALL).tobytes(), SMALL, {"time": number})
    return ds, str(path)


@pytest.mark.promise("refused-frames")
@pytest.mark.parametrize(("code", "send"), REFUSED.values(), ids=list(REFUSED))
def test_a_wrong_frame_costs_this_frame_only(
    client: WireClient, code: str, send: Callable[[WireClient, str], None]
) -> None:
    ds, path = begun(client)
    send(client, ds)
    error = client.wait_for("error")
    assert (error["ds"], error["fatal"], error["code"], error["n"]) == (ds, False, code, 3)
    client.frame(ds, 4, image_of(3, SMALL).tobytes(), SMALL, {"time": 3})  # its axes are free
    client.send("close", ds=ds, n=5)
    receipt = client.wait_for("closed", "error")["receipt"]
    assert [receipt[name] for name in ("status", "sent", "stored", "skipped", "refused")] == ["completed", 5, 4, 0, 1]
    (gap,) = receipt["missing"]
    assert (gap["first"], gap["count"]) == (3, 1)
    assert gap["reason"].startswith(f"refused ({code}): ")
    assert check_frames(path, lambda _: SMALL, oracle=False) == 4
    assert [(found.missing_count, found.problems) for found in [verify(Path(path))]] == [(1, [])]


@pytest.mark.promise("nonsense")
@pytest.mark.parametrize(("code", "send"), FAULTS.values(), ids=list(FAULTS))
def test_what_breaks_the_protocol_ends_its_own_acquisition_only(
    client: WireClient, code: str, send: Callable[[WireClient, str], None]
) -> None:
    ds, path = begun(client)
    send(client, ds)
    frame(client, ds, n=4, ax={"time": 4})  # already on its way when the error comes
    error = client.wait_for("error")
    assert (error["ds"], error["fatal"]) == (ds, True)
    assert error["code"] == code
    closed = client.wait_for("closed", "error")
    assert closed["t"] == "closed", closed  # one error only
    assert (closed["receipt"]["status"], closed["receipt"]["stored"]) == ("interrupted", 3)
    assert closed["receipt"]["reason"] == error["text"]
    assert state_of(path)["state"] == "INTERRUPTED"
    assert check_frames(path, lambda _: SMALL, oracle=False) == 3


def test_a_frame_before_opened_is_beyond_the_window(client: WireClient) -> None:
    ds = new_dataset_id()
    client.send("open", ds=ds, name="eager", on_exists="number")
    frame(client, ds, n=0)
    client.send("close", ds=ds, n=1)
    message = client.wait_for("error", "closed")
    if message["t"] == "error":
        assert (message["code"], message["fatal"]) == ("limit_exceeded", True)
        assert client.wait_for("closed")["receipt"]["stored"] == 0
    else:  # the dataset was open already
        assert message["receipt"]["stored"] == 1


def test_a_payload_above_the_limit_costs_its_sender_the_connection(shared_daemon: DaemonProcess) -> None:
    with RawPeer(shared_daemon.port) as peer:
        peer.announce(8 * 2**30)  # a part of 8 GiB, announced only
        peer.wait_until_closed()
    assert shared_daemon.rss_bytes() < 500 * 2**20
