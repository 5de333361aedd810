"""Several producers and acquisitions at the same time, in one memory budget."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import zmq

import acqstream
from acqstream.client.connector import Transport
from acqstream.client.daemon_requests import fetch_status
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.waiting import HANG_S

LOCAL: Transport = "ipc" if zmq.has("ipc") else "tcp"
TRANSPORTS: dict[str, Transport] = {"small": LOCAL, "odd": "tcp", "large": "shm", "wide": "shm"}
SHAPES = {"small": (64, 64), "odd": (33, 57), "large": (600, 700), "wide": (16, 2048)}
FRAMES = 150
MIB = 2**20
BESIDE_BYTES = 150 * MIB  # interpreter, libraries, what the sockets hold


def test_four_acquisitions_of_two_producers_by_all_transports(daemon: DaemonProcess) -> None:
    all_open, is_looked_at = threading.Barrier(len(SHAPES) + 1), threading.Event()

    def produce(name: str) -> str:
        transport = TRANSPORTS[name]
        endpoint = daemon.ipc if transport == "ipc" else daemon.endpoint
        with acqstream.create(name, endpoint=endpoint, transport=transport, buffer_mb=8) as run:
            assert run.transport == transport
            all_open.wait(HANG_S)
            for number in range(FRAMES):
                run.put(image_of(number, SHAPES[name]), time=number)
            assert is_looked_at.wait(HANG_S)
        assert run.receipt is not None
        assert run.receipt.complete
        assert run.receipt.stored == FRAMES
        return run.path

    process = programs.start(programs.PRODUCER, daemon.endpoint, "process", str(FRAMES), "close")
    try:
        with ThreadPoolExecutor(len(SHAPES)) as pool:
            running = {name: pool.submit(produce, name) for name in SHAPES}
            all_open.wait(HANG_S)
            status = fetch_status(daemon.endpoint)
            is_looked_at.set()
            paths = {name: one.result(HANG_S) for name, one in running.items()}
        process_path = programs.line_of(process)
        assert programs.end(process) == (0, "")
    finally:
        programs.kill(process)

    assert {one.name for one in status.acquisitions} >= set(SHAPES)
    assert status.memory_used_bytes <= status.memory_budget_bytes == 64 * 2**20
    after = fetch_status(daemon.endpoint)
    assert (after.acquisitions, after.memory_used_bytes) == ((), 0)
    assert 0 < after.memory_peak_bytes <= after.memory_budget_bytes
    paths["process"] = process_path
    for name, shape in {**SHAPES, "process": (128, 128)}.items():
        assert check_frames(paths[name], dict.fromkeys(range(FRAMES), shape).__getitem__) == FRAMES


@pytest.mark.slow
def test_eight_producers_in_128_mib(tmp_path: Path) -> None:
    """Different frames, over tcp, ipc and shared memory: all equal, and memory stays within what was granted."""
    shapes = [(64, 64), (33, 57), (600, 700), (16, 2048), (512, 512), (256, 256), (1, 1), (700, 600)]
    with DaemonProcess(tmp_path / "data", memory_mb=128) as daemon:
        all_open, is_looked_at = threading.Barrier(len(shapes) + 1), threading.Event()

        def produce(number: int) -> str:
            shape = shapes[number]
            transport = (LOCAL, "tcp", "shm")[number % 3]
            endpoint = daemon.ipc if transport == "ipc" else daemon.endpoint
            options: dict[str, Any] = {"frame": (shape, "uint16"), "buffer_mb": 16, "transport": transport}
            with acqstream.create(f"run{number}", endpoint=endpoint, **options) as run:
                all_open.wait(HANG_S)
                for time in range(FRAMES):
                    run.put(image_of(time, shape), time=time)
                assert is_looked_at.wait(HANG_S)
            assert run.receipt is not None
            assert run.receipt.complete
            return run.path

        with ThreadPoolExecutor(len(shapes)) as pool:
            running = [pool.submit(produce, number) for number in range(len(shapes))]
            all_open.wait(HANG_S)
            granted = fetch_status(daemon.endpoint).memory_used_bytes
            is_looked_at.set()
            most = 0
            while not all(one.done() for one in running):
                most = max(most, daemon.rss_bytes())
                wait(running, timeout=0.02, return_when=FIRST_COMPLETED)
            paths = [one.result() for one in running]
        assert granted <= 128 * MIB
        assert most <= 128 * MIB + granted + BESIDE_BYTES
    for path, shape in zip(paths, shapes, strict=True):
        assert check_frames(path, dict.fromkeys(range(FRAMES), shape).__getitem__, oracle=False) == FRAMES
