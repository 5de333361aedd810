"""Frames from memory of the producer's: whole or refused, whoever sends what; and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import AcquisitionFailed, ConfigError
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.memory_client import PAGE, PAGES, SEALS, MemoryClient, hand_over, memory_file
from tests.live.stored import check_frames, image_of, state_of, unstalled
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id
from tests.log.read_back import open_ndstorage
from tests.waiting import until

LARGE = (400, 401)  # 320,800 bytes: its last block is not full
SMALL = (40, 40)
STARTS = [0, 100 * PAGE, 200 * PAGE]


def sum_of(payload: bytes) -> dict[str, str]:
    return {"xxh3": f"{xxhash.xxh3_64_intdigest(payload):016x}"}


def frame_fields(number: int, shape: tuple[int, ...] = LARGE) -> dict[str, Any]:
    return {"n": number, "dt": "<u2", "sh": list(shape), "ax": {"time": number}}


def handles(pid: int) -> list[str]:
    """Open files of a process that are memory of a producer's, and its mappings of them."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # closed meanwhile
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines()
    return [text for text in (*links, *maps) if "memfd:a test" in text or "memfd:acqstream-producer" in text]


@pytest.fixture(scope="module")
def victim(shared_daemon: DaemonProcess) -> Iterator[Victim]:
    """Another producer with shared memory, at work all the time."""
    at_work = Victim(shared_daemon.endpoint)
    assert at_work.run.transport == "shm"
    yield at_work
    at_work.finish()


@pytest.fixture
def client(shared_daemon: DaemonProcess, victim: Victim) -> Iterator[MemoryClient]:
    with MemoryClient(shared_daemon.endpoint) as one:
        yield one
    assert victim.error is None


def test_a_client_from_the_page(client: MemoryClient, shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    path = client.open("page", ds)["path"]
    for number in range(9):
        payload = image_of(number, LARGE).tobytes()
        if number >= len(STARTS):
            while client.cursors.get(ds, (0, 0, 0))[1] <= number - len(STARTS):
                client.wait_for("ack")
        place = client.place(STARTS[number % 3], payload)
        client.send("frame", ds=ds, sum=sum_of(payload), mem=place, **frame_fields(number))
    (one,) = (one for one in fetch_status(shared_daemon.endpoint).acquisitions if one.dataset_id == ds)
    assert (one.transport, one.transport_why) == ("shm", "")
    client.send("close", ds=ds, n=9)
    receipt = client.wait_for("closed")["receipt"]
    assert (receipt["stored"], receipt["without_checksum"], receipt["status"]) == (9, 0, "completed")
    assert check_frames(path, lambda _: LARGE) == 9


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_many_frames_in_one_message(client: MemoryClient, shape: tuple[int, int]) -> None:
    ds, count = new_dataset_id(), 3
    path = client.open(f"many-{shape[0]}", ds)["path"]
    payload = b"".join(image_of(number, shape).tobytes() for number in range(count))
    axes = {"time": {"start": 0, "step": 1}}
    sums = [f"{xxhash.xxh3_64_intdigest(image_of(number, shape).tobytes()):016x}" for number in range(count)]
    fields = {"n": 0, "count": count, "dt": "<u2", "sh": list(shape), "ax": axes, "sums": sums}
    client.send("frames", ds=ds, mem=client.place(64, payload), **fields)
    client.send("close", ds=ds, n=count)
    assert client.wait_for("closed")["receipt"]["stored"] == count
    assert check_frames(path, lambda _: shape) == count


BAD_PLACES: dict[str, tuple[Any, str]] = {
    "no list": ({"gen": 1}, "bad_header"),
    "one integer": ([1], "bad_header"),
    "text": (["1", "0"], "bad_header"),
    "booleans": ([True, False], "bad_header"),
    "negative": ([1, -4096], "bad_header"),
    "too large for an integer": ([1, 2**63], "bad_header"),
    "another generation": ([10**6, 0], "bad_memory"),
    "behind the end": (PAGES * PAGE, "bad_memory"),
    "across the end": ((PAGES - 78) * PAGE, "bad_memory"),
    "far away": (2**62, "bad_memory"),
}


@pytest.mark.parametrize("kind", ["frame", "frames"])
@pytest.mark.parametrize(("place", "code"), BAD_PLACES.values(), ids=list(BAD_PLACES))
def test_places_that_are_none(client: MemoryClient, kind: str, place: Any, code: str) -> None:
    ds = new_dataset_id()
    client.open("places", ds, on_exists="number")
    if isinstance(place, int):
        place = [client.generation, place]
    fields: dict[str, Any] = {"n": 0, "dt": "<u2", "sh": list(LARGE), "ax": {"time": 0}}
    if kind == "frames":
        fields |= {"count": 1, "ax": {"time": [0]}}
    client.send(kind, ds=ds, mem=place, **fields)
    error = client.wait_for("error")
    assert (error["code"], error["fatal"], error["n"]) == (code, False, 0), error
    client.send("close", ds=ds, n=1)
    receipt = client.wait_for("closed")["receipt"]
    assert (receipt["stored"], receipt["refused"]) == (0, 1)


def test_a_payload_beside_a_place_and_neither(client: MemoryClient) -> None:
    for payload in (bytes(2 * SMALL[0] * SMALL[1]), None):
        ds = new_dataset_id()
        client.open("beside", ds, on_exists="number")
        place = {"mem": [client.generation, 0]} if payload else {}
        client.send("frame", payload, ds=ds, **place, **frame_fields(0, SMALL))
        assert client.wait_for("error")["code"] == "payload_size"
        client.send("close", ds=ds, n=1)


def test_a_place_without_memory(client: MemoryClient, shared_daemon: DaemonProcess) -> None:
    with WireClient(shared_daemon.endpoint) as other:
        ds = new_dataset_id()
        opened = other.open("without", ds, memory={"token": "0" * 32})
        assert opened["memory"] is None
        assert "no memory was handed over" in opened["memory_why"]
        other.send("frame", ds=ds, mem=[1, 0], **frame_fields(0))
        assert other.wait_for("error")["code"] == "bad_memory"
        other.send("close", ds=ds, n=1)
        assert other.wait_for("closed")["receipt"]["refused"] == 1


def test_the_memory_of_another_producer_stays_with_it(client: MemoryClient, shared_daemon: DaemonProcess) -> None:
    first, second = new_dataset_id(), new_dataset_id()
    client.open("first", first)
    with MemoryClient(shared_daemon.endpoint) as other:
        other.open("second", second)
        other.send("frame", ds=second, mem=[client.generation, 0], **frame_fields(0))
        assert other.wait_for("error")["code"] == "bad_memory"
        other.send("close", ds=second, n=1)
        assert other.wait_for("closed")["receipt"]["refused"] == 1
    client.send("close", ds=first, n=0)


MESSAGES: dict[str, tuple[bytes | dict[str, Any], list[dict[str, Any]], str]] = {
    "rubbish": (b"\x00\xffrubbish", [{}], ""),
    "no map": (b"[1]", [{}], ""),
    "another type": ({"t": "open", "v": 1, "token": "0" * 32}, [{}], "expected a message of type"),
    "another version": ({"t": "memory", "v": 2, "token": "0" * 32}, [{}], "version 1"),
    "a short token": ({"t": "memory", "v": 1, "token": "00"}, [{}], "hex digits"),
    "too long": (b'{"t":"memory","v":1,"token":"' + b"0" * 5000 + b'"}', [{}], ""),
    "no descriptor": ({"t": "memory", "v": 1, "token": "0" * 32}, [], "0 descriptors"),
    "two descriptors": ({"t": "memory", "v": 1, "token": "0" * 32}, [{}, {}], "2 descriptors"),
    "not sealed": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"seals": 0}], "not sealed"),
    "half sealed": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"seals": SEALS & 2}], "not sealed"),
    "pages may go": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"seals": SEALS & 6}], "not sealed"),
    "empty": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"size": 0}], "0 bytes"),
    "too small": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"size": 100}], "100 bytes"),
    "no whole pages": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"size": 2 * PAGE + 1}], "whole pages"),
    "not there": ({"t": "memory", "v": 1, "token": "0" * 32}, [{"size": 2**50, "is_there": False}], "are present"),
}


def memory_files_of(daemon: DaemonProcess) -> int:
    links = []
    for path in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(path))
    return sum("memfd:" in link for link in links)


@pytest.mark.parametrize(("message", "files", "text"), MESSAGES.values(), ids=list(MESSAGES))
def test_memory_that_is_not_taken(
    client: MemoryClient, shared_daemon: DaemonProcess, message: Any, files: list[dict[str, Any]], text: str
) -> None:
    path = client.hello()["memory"]
    before = memory_files_of(shared_daemon)
    descriptors = [memory_file(**{"size": PAGE, **file}) for file in files]
    try:
        connection, answer = hand_over(path, message, *descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    with connection:
        assert (answer["t"], answer["code"]) == ("error", "bad_memory")
        assert text in answer["text"]
        assert connection.recv(4096) == b""
    until(lambda: memory_files_of(shared_daemon) <= before, "the descriptors are closed")


@pytest.mark.parametrize("what", ["file", "pipe", "socket"])
def test_a_descriptor_that_is_no_memory(client: MemoryClient, tmp_path: Path, what: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PAGE))
    ends = list(socket.socketpair()) if what == "socket" else []
    opened = [os.open(path, os.O_RDWR)] if what == "file" else list(os.pipe()) if what == "pipe" else []
    first = opened[0] if opened else ends[0].fileno()
    connection, answer = hand_over(client.hello()["memory"], {"t": "memory", "v": 1, "token": "0" * 32}, first)
    connection.close()
    for descriptor in opened:
        os.close(descriptor)
    for end in ends:
        end.close()
    assert "not a memory file" in answer["text"]


def test_memory_that_nobody_names_goes_with_its_connection(client: MemoryClient, shared_daemon: DaemonProcess) -> None:
    path = client.hello()["memory"]
    before = len(handles(shared_daemon.pid))
    descriptor = memory_file(4 * PAGE)
    connections = [
        hand_over(path, {"t": "memory", "v": 1, "token": f"{number:032x}"}, descriptor)[0] for number in range(10)
    ]
    os.close(descriptor)
    assert len(handles(shared_daemon.pid)) > before
    for connection in connections:
        connection.close()
    until(lambda: len(handles(shared_daemon.pid)) == before, "the memory is unmapped")


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_a_slot_changed_after_sending_is_found_and_named(client: MemoryClient, shape: tuple[int, int]) -> None:
    """As if it were overwritten too early: the bytes differ from the sum when the daemon looks."""
    ds = new_dataset_id()
    path = client.open(f"changed-{shape[0]}", ds)["path"]
    payloads = [image_of(number, shape).tobytes() for number in range(3)]
    for number, (start, payload) in enumerate(zip(STARTS, payloads, strict=True)):
        place = client.place(start, payload if number < 2 else payload[:-1] + b"\xa5")
        client.send("frame", ds=ds, sum=sum_of(payload), mem=place, **frame_fields(number, shape))
    error = client.wait_for("error")
    assert (error["code"], error["fatal"], error["n"]) == ("checksum", False, 2)
    assert "frame 2" in error["text"]
    client.send("close", ds=ds, n=3)
    receipt = client.wait_for("closed")["receipt"]
    assert (receipt["stored"], receipt["refused"], receipt["status"]) == (2, 1, "completed")
    assert check_frames(path, lambda _: shape) == 2


def times_of(path: str) -> list[int]:
    """The times of the frames, each with its own pixels."""
    with acqstream.open(path) as dataset:
        times = [int(key["time"]) for key in list(dataset.keys())]
        assert all(np.array_equal(dataset.read_frame(time=time), image_of(time, LARGE)) for time in times)
    return times


def test_a_run_whose_buffer_is_overwritten_loses_that_frame_only(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        run = acqstream.create("cells", endpoint=daemon.endpoint, transport="shm", buffer_mb=8)
        run.put(image_of(0, LARGE), time=0)
        until(lambda: run.progress.published == 1, "the first is published")
        daemon.pause()
        run.put(image_of(1, LARGE), time=1)
        memory = run._buffer._memory
        assert memory is not None
        start = run._state.outbox._messages[0].start
        memory[start : start + 8] = b"\xff" * 8
        daemon.go_on()
        until(lambda: bool(run.warnings), "it is refused")
        with pytest.raises(acqstream.FrameRefused, match=r"frame 1: .*its place in shared memory was changed"):
            run.put(image_of(2, LARGE), time=2)
        run.put(image_of(1, LARGE), time=1)  # once more
        assert (run.close().stored, run.close().refused) == (3, 1)
        assert sorted(times_of(run.path)) == [0, 1, 2]


def test_nothing_stays_behind(tmp_path: Path) -> None:
    """After a run, a killed producer and a killed daemon."""
    daemon = DaemonProcess(tmp_path / "data", grace_s=0.1).start()
    ours = len(handles(os.getpid()))
    with acqstream.create("normal", endpoint=daemon.endpoint, transport="shm", buffer_mb=8) as run:
        run.put(image_of(0, LARGE), time=0)
        until(lambda: run.progress.published == 1, "published")
        assert len(handles(daemon.pid)) == 2  # a mapping, and the descriptor for the process of the views
    until(lambda: not handles(daemon.pid), "the memory is unmapped")
    assert len(handles(os.getpid())) <= ours  # what earlier tests left to the garbage collector may go meanwhile

    producer = programs.start(programs.PRODUCER, daemon.endpoint, "killed", "50", "wait")
    try:
        path = programs.line_of(producer)
        assert programs.line_of(producer) == "50"
        assert handles(daemon.pid)
    finally:
        programs.kill(producer)
    until(lambda: state_of(path)["state"] == "INTERRUPTED", "it is interrupted")
    until(lambda: not handles(daemon.pid), "the memory is unmapped")

    files = {f"{daemon.port}.{kind}" for kind in ("sock", "memory", "shutdown")}
    assert {one.name for one in daemon.runtime.iterdir()} == files
    assert (daemon.runtime / f"{daemon.port}.memory").stat().st_mode & 0o777 == 0o660
    daemon.kill()
    daemon.start()  # on the sockets that the killed one left
    assert daemon.stop() == 0
    assert list(daemon.runtime.iterdir()) == []


def test_a_producer_killed_with_frames_on_their_way(tmp_path: Path) -> None:
    """What the daemon has received lies in the dead producer's memory, and is stored."""
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as daemon:
        ds = new_dataset_id()
        with MemoryClient(daemon.endpoint) as client:
            path = client.open("cells", ds)["path"]
            for number, start in enumerate(STARTS):
                payload = image_of(number, LARGE).tobytes()
                place = client.place(start, payload)
                client.send("frame", ds=ds, sum=sum_of(payload), mem=place, **frame_fields(number))
            client.wait_for("ack")
        until(lambda: state_of(path)["state"] == "INTERRUPTED", "it is interrupted")
        assert check_frames(path, lambda _: LARGE) == len(STARTS)


def test_large_frames_outlive_their_daemon(tmp_path: Path) -> None:
    """Killed with slots in use, stopped for a while, killed again; slots are used many times over."""
    count, moments = 160, {40: "kill", 80: "pause", 120: "kill"}
    daemon = DaemonProcess(tmp_path / "data").start()
    with acqstream.create("cells", endpoint=daemon.endpoint, transport="shm", buffer_mb=4, patience_s=30) as run:
        for number in range(count):
            what = moments.get(number)
            if what == "pause":
                daemon.pause()
                resume = threading.Timer(1.0, daemon.go_on)
                resume.start()
            run.put(image_of(number, LARGE), time=number)
            if what == "kill":
                daemon.kill()
                daemon.start()
        until(lambda: run.progress.published == count, "all published")
        assert run.transport == "shm"
        until(lambda: len(handles(daemon.pid)) == 2, "one memory, open and mapped once")
    resume.join()
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.sent, run.receipt.without_checksum) == (count, count, 0)
    assert check_frames(run.path, lambda _: LARGE) == count
    assert daemon.stop() == 0


def test_without_a_way_to_the_memory_frames_go_by_socket(tmp_path: Path) -> None:
    never = "import acqstream.daemon.endpoints as endpoints; endpoints.LOOK_INTERVAL_S = 1e9"  # it is not made again
    with DaemonProcess(tmp_path / "data", prelude=never) as daemon:
        (daemon.runtime / f"{daemon.port}.memory").unlink()
        with pytest.raises(ConfigError, match=r"transport='shm': .*the socket is missing"):
            acqstream.create("insisted", endpoint=daemon.endpoint, transport="shm")
        assert not (daemon.data / "insisted").exists()
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            run.put(image_of(0, LARGE), time=0)
            assert run.transport == "ipc"
            assert "the socket is missing" in run.transport_why
            (one,) = fetch_status(daemon.endpoint).acquisitions
            assert (one.transport, one.transport_why) == ("messages", run.transport_why)
        assert check_frames(run.path, lambda _: LARGE) == 1


def test_a_daemon_that_takes_none(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", shared_memory=False) as daemon:
        files = {f"{daemon.port}.{kind}" for kind in ("sock", "shutdown")}
        assert {one.name for one in daemon.runtime.iterdir()} == files
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            run.put(image_of(0, LARGE), time=0)
            assert "takes no shared memory" in run.transport_why
        assert check_frames(run.path, lambda _: LARGE) == 1


def test_memory_that_was_insisted_on_and_is_lost_is_a_warning(tmp_path: Path) -> None:
    first = DaemonProcess(tmp_path / "data").start()
    with acqstream.create("cells", endpoint=first.endpoint, transport="shm", buffer_mb=4, patience_s=30) as run:
        run.put(image_of(0, LARGE), time=0)
        first.kill()
        with DaemonProcess(first.data, port=first.port, shared_memory=False):
            run.put(image_of(1, LARGE), time=1)
            until(lambda: run.progress.published == 2, "it goes on")
            assert run.transport == "ipc"
            (warning,) = unstalled(run.warnings)
            assert warning.code == "no_shared_memory"
            assert warning.text.endswith(run.transport_why)
            assert run.close().complete
    assert check_frames(run.path, lambda _: LARGE) == 2


def test_two_producers_and_shapes_of_all_kinds(tmp_path: Path) -> None:
    shapes = [(512, 512), (400, 401), (16, 16), (40, 41), (1, 400_000), (700, 401)]
    with DaemonProcess(tmp_path / "data") as daemon:
        runs = [acqstream.create(name, endpoint=daemon.endpoint, transport="shm", buffer_mb=4) for name in ("a", "b")]
        for number in range(60):
            for position, run in enumerate(runs):
                run.put(image_of(number, shapes[(number + position) % 6]), time=number)
        for position, run in enumerate(runs):
            assert run.close().complete
            shape_of = lambda number, position=position: shapes[(number + position) % 6]  # noqa: E731
            assert check_frames(run.path, shape_of) == 60


def test_rgb_and_bytes_and_other_orders(daemon: DaemonProcess) -> None:
    rgb = np.arange(300 * 301 * 3, dtype=np.uint8).reshape(300, 301, 3)
    with acqstream.create("cells", endpoint=daemon.endpoint, transport="shm") as run:
        run.put(rgb, time=0)
        run.put(rgb[:, :, 0].T, time=1)
        run.put(image_of(2, LARGE).astype(">u2"), time=2)
    with acqstream.open(run.path) as dataset:
        assert np.array_equal(dataset.read_frame(time=0), rgb)
        assert np.array_equal(dataset.read_frame(time=1), rgb[:, :, 0].T)
        assert np.array_equal(dataset.read_frame(time=2), image_of(2, LARGE))
    with open_ndstorage(run.path) as oracle:
        assert np.array_equal(oracle.read_image(time=1), rgb[:, :, 0].T)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_frames_that_a_camera_writes_into_the_buffer(daemon: DaemonProcess, transport: Any) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, transport=transport, buffer_mb=4) as run:
        for number in range(30):
            shape = SMALL if number % 5 == 0 else LARGE
            with run.reserve(shape, "uint16", time=number, meta={"number": number}) as buffer:
                buffer[:] = image_of(number, shape)
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.without_checksum) == (30, 0)
    assert check_frames(run.path, lambda number: SMALL if number % 5 == 0 else LARGE) == 30


def test_a_refused_frame_ends_the_run_as_over_sockets(daemon: DaemonProcess) -> None:
    run = acqstream.create("cells", endpoint=daemon.endpoint, transport="shm")
    run.put(image_of(0, LARGE), time=0)
    run.put(image_of(1, LARGE), time=0)
    with pytest.raises((AcquisitionFailed, acqstream.AcqStreamError), match="is stored already"):
        run.close()
    assert check_frames(run.path, lambda _: LARGE) == 1
