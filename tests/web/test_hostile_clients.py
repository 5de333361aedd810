"""Hostile clients against a web process beside a daemon that records: our errors, little memory, no harm."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from pathlib import Path

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import image_of
from tests.waiting import WAIT_S, until
from tests.web.web_process import Site, web_process

MAX_GROWTH_BYTES = 300 * 2**20
PATHS = (
    *(
        "/data/../../etc/passwd",
        "/data/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/data/cells/../../etc/passwd",
        "/data//etc/passwd",
    ),
    *("/data/cells@g=99999999999999999999999/ome.zarr/zarr.json", "/data/cells@g=1e9/ome.zarr/zarr.json"),
    *("/data/cells@chunk=1/n5/attributes.json", "/data/cells@chunk=1073741824/n5/attributes.json", "/data/@@@@/n5"),
    *("/data/cells/ome.zarr/0/c/999999999999999999/0/0", "/data/cells/ome.zarr/0/c/-1/0/0", "/data/cells/ome.zarr/0/c"),
    *(
        "/data/cells/ome.zarr/" + "0/" * 40,
        "/data/cells/precomputed/s0/0-9999999999_0-1_0-1",
        "/data/cells/n5/s99/0/0/0",
    ),
    *("/data/" + "%00" * 50, "/data/%ff%fe/x", "/" + "a" * 7000, "/t//data/cells", "/t/%/data/cells/ome.zarr"),
    *(
        "/view/..%2f..%2fetc%2fpasswd",
        "/view/cells/../../x",
        "/neuroglancer/../../etc/passwd",
        "*",
        "http://evil.example/",
    ),
)


def attack(port: int, seed: int, answers: list[bytes], faults: list[str]) -> None:
    """Send requests of all kinds, whole and cut, with random bytes between."""
    chance = random.Random(seed)
    for _ in range(40):
        path = chance.choice(PATHS).encode("latin-1", "replace")
        method = chance.choice([b"GET", b"HEAD", b"POST", b"OPTIONS", b"GET"])
        host = chance.choice([b"localhost", b"evil.example", b"127.0.0.1"])
        lines = [method + b" " + path + b" HTTP/1.1", b"Host: " + host]
        lines += chance.choice([[], [b"Range: bytes=0-999999999999999999"], [b"Range: bytes=-1"], [b"Origin: null"]])
        request = b"\r\n".join([*lines, b"Connection: close", b"", b""])
        if chance.random() < 0.2:
            request = request[: chance.randrange(1, len(request))]
        if chance.random() < 0.1:
            request = chance.randbytes(200)
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as one:
            one.sendall(request)
            one.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := one.recv(65536):
                answer += piece
            answers.append(answer[:200])
            if b"Traceback" in answer or b"root:" in answer:
                faults.append(f"{request!r:.200}: {answer!r:.200}")


def idle(port: int, opened: list[socket.socket]) -> None:
    """Open connections that never send a complete request."""
    for number in range(150):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
            opened.append(one)
            if number % 2:
                one.sendall(b"GET /data/cells")


def test_a_recording_does_not_notice_hostile_clients(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DaemonProcess(data) as daemon, web_process(data) as site:
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            run.put(image_of(0), time=0)
            until(lambda: site.ask("/data/cells/ome.zarr/zarr.json").status == 200, "the run is served")
            before = site.rss_bytes()
            faults: list[str] = []
            answers: list[bytes] = []
            opened: list[socket.socket] = []
            threads = [threading.Thread(target=attack, args=(site.port, seed, answers, faults)) for seed in range(6)]
            threads.append(threading.Thread(target=idle, args=(site.port, opened)))
            for thread in threads:
                thread.start()
            for number in range(1, 40):
                run.put(image_of(number), time=number)
            for thread in threads:
                thread.join()
            for one in opened:
                one.close()
        assert run.receipt is not None
        assert run.receipt.complete
        assert run.receipt.stored == 40
        assert not faults
        assert len(answers) > 100
        assert not any(b" 500 " in answer.split(b"\r\n")[0] for answer in answers)
        check_alive(site, before)


def check_alive(site: Site, before: int) -> None:
    """It answers, and has taken no memory to speak of."""
    until(
        lambda: site.ask("/data/cells/ome.zarr/0/c/39/0/0").body == image_of(39).tobytes(), "the last frame is served"
    )
    assert site.process is not None
    assert site.process.poll() is None
    assert site.rss_bytes() - before < MAX_GROWTH_BYTES
