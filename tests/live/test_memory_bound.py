"""The daemon's memory stays within its budget, however much passes through."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of

BUDGET_MB = 64
BESIDE_MB = 150  # interpreter, libraries, what the sockets hold
FRAME = (512, 512)
FRAMES = 2000  # 1 GB


@pytest.mark.slow
@pytest.mark.timeout_s(180)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_gigabyte_of_small_frames(tmp_path: Path, transport: Literal["tcp", "shm"]) -> None:
    images = [image_of(number, FRAME) for number in range(10)]
    with DaemonProcess(tmp_path / "data", memory_mb=BUDGET_MB) as daemon:
        peak, is_over = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not is_over.wait(0.01):
                peak = max(peak, daemon.rss_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            options: Any = {"transport": transport, "buffer_mb": 64, "patience_s": 60}
            with acqstream.create("cells", endpoint=daemon.endpoint, **options) as run:
                assert run.transport == transport
                for number in range(FRAMES):
                    run.put(images[number % 10], time=number)
        finally:
            is_over.set()
            watcher.join()
    assert run.receipt is not None
    assert run.receipt.complete
    for path in Path(run.path).glob("*.tif"):
        path.unlink()
    assert peak < (BUDGET_MB + BESIDE_MB) * 2**20
