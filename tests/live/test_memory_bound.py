"""The daemon's memory stays within its budget, however much passes through."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import pytest

import acqstream
from acqstream.errors import ProtocolError
from acqstream.integrity.verify import verify
from acqstream.log.journal import JOURNAL_NAME
from acqstream.model.frame_header import MAX_NUMBER
from tests.host_system import needs_small_processes
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.waiting import until

BUDGET_MB = 64
BESIDE_MB = 150  # interpreter, libraries, what the sockets hold
FRAME = (512, 512)
FRAMES = 2000  # 1 GB

MANY = 20_000_000
SKIP_MB = 40  # what a daemon's memory swings by


def test_a_long_gap_takes_no_memory_and_no_disk(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", memory_mb=BUDGET_MB) as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            run.put(image_of(0, FRAME), time=0)
            until(lambda: run.progress.published == 1, "it is published")
            before = daemon.rss_bytes()
            for count in (MANY, 10**12):
                run.skip(count, reason="no light")
                run.put(image_of(1, FRAME), time=count % 2**31)
            for _ in range(20_000):
                run.skip(1, reason="one by one")
            end = run.next
            until(lambda: run.progress.published == end, "it is published")
            after = daemon.rss_bytes()
            with pytest.raises(ProtocolError, match="frame numbers end at"):
                run.skip(MAX_NUMBER - end + 1, reason="too far")
        assert run.receipt is not None
        assert run.receipt.complete
        assert (run.receipt.stored, run.receipt.skipped) == (3, end - 3)
        assert [gap.count for gap in run.receipt.missing] == [MANY, 10**12, 20_000]
        assert after - before < SKIP_MB * 2**20
    assert (Path(run.path) / JOURNAL_NAME).stat().st_size < 2**20
    assert verify(Path(run.path)).problems == []


@pytest.mark.promise("memory-budget")
@pytest.mark.slow
@pytest.mark.timeout_s(180)
@pytest.mark.parametrize("transport", ["tcp", pytest.param("shm", marks=needs_small_processes)])
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
