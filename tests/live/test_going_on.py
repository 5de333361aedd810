"""A run whose daemon is killed, stopped or paused, or whose producer is started again, goes on in one dataset."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import xxhash

import acqstream
from acqstream.client import run as run_module
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.integrity.recover import recover
from acqstream.log import journal
from acqstream.log.journal_file import read_journal
from tests.host_system import needs_sockets_to_close
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SHAPE = (128, 128)
FRAMES_A_KILL = 150
PAUSE_S = 15.0
STEADY_BYTES = 24 * 2**20
"""What a process may grow while the other side says nothing: less than its buffers of 8 and 64 MiB together."""


def put(run: Run, number: int) -> None:
    run.put(image_of(number, SHAPE), time=number, meta={"number": number})


def check(data: Path, count: int) -> None:
    """One dataset, each frame once, for us and for ndstorage, every checksum that of the pixels that were sent."""
    (folder,) = (path for path in data.iterdir() if path.is_dir())
    assert state_of(folder)["state"] == "COMPLETE"
    assert check_frames(folder, lambda _: SHAPE) == count
    records = read_journal(folder / journal.JOURNAL_NAME).prefix
    assert np.array_equal(records["number"], np.arange(count))
    expected = [xxhash.xxh3_64_intdigest(image_of(number, SHAPE).tobytes()) for number in range(count)]
    assert np.array_equal(records["checksum"], np.array(expected, np.uint64))
    assert not records["own_checksum"].any()


def check_receipt(run: Run, count: int) -> None:
    receipt = run.receipt
    assert receipt is not None
    assert (receipt.stored, receipt.sent, receipt.status, receipt.missing) == (count, count, "completed", ())
    assert receipt.without_checksum == 0


class Restarts:
    """Ends a daemon and starts it again, in a thread, as often as asked."""

    def __init__(self, daemon: DaemonProcess, end: Callable[[], object]) -> None:
        self._daemon = daemon
        self._end = end
        self._thread: threading.Thread | None = None
        self.count = 0

    def begin(self) -> None:
        self.wait()
        self.count += 1
        self._thread = threading.Thread(target=self._restart)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _restart(self) -> None:
        self._end()
        self._daemon.start()


@pytest.mark.promise("daemon-killed")
@pytest.mark.timeout_s(120)
@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
@pytest.mark.parametrize(
    ("ending", "times"), [("stop", 2), pytest.param("kill", 20, marks=[pytest.mark.slow, needs_sockets_to_close])]
)
def test_a_run_outlives_its_daemon(tmp_path: Path, transport: str, ending: str, times: int) -> None:
    count = FRAMES_A_KILL * times
    chance = random.Random(f"{transport}{ending}{times}")
    moments = {start + chance.randrange(FRAMES_A_KILL) for start in range(0, count, FRAMES_A_KILL)}
    daemon = DaemonProcess(tmp_path / "data").start()
    restarts = Restarts(daemon, daemon.kill if ending == "kill" else daemon.stop)
    try:
        endpoint = daemon.ipc if transport == "ipc" else daemon.endpoint
        run = acqstream.create("cells", endpoint=endpoint, transport=transport, patience_s=30)  # type: ignore[arg-type]
        with run:
            for number in range(count):
                if number in moments:
                    restarts.begin()
                put(run, number)
        check_receipt(run, count)
        assert restarts.count == times
        check(daemon.data, count)
    finally:
        restarts.wait()
        assert daemon.stop() == 0


@pytest.mark.parametrize("junk", ["index", "zeros", "journal", "entry", "lost index"])
def test_bytes_that_came_behind_a_run_after_its_recovery_cost_nothing(tmp_path: Path, junk: str) -> None:
    with DaemonProcess(tmp_path) as daemon, acqstream.create("cells", endpoint=daemon.endpoint) as run:
        for number in range(5):
            put(run, number)
        folder = daemon.data / "cells"
        until(lambda: read_journal(folder / journal.JOURNAL_NAME).end == 5, "five frames in the journal")
        daemon.kill()
        assert recover(folder) is not None
        index, journal_file = folder / "NDTiff.index", folder / journal.JOURNAL_NAME
        content = index.read_bytes()
        tails = {"index": (index, b"\x47" * 71), "zeros": (index, bytes(500)), "journal": (journal_file, b"\x01" * 40)}
        path, tail = tails.get(junk, (index, content[: parse_entries(content).offsets[1]]))
        with path.open("ab") as file:
            file.write(tail)
        if junk == "lost index":
            index.unlink()
        daemon.start()
        for number in range(5, 9):
            put(run, number)
    check_receipt(run, 9)
    check(daemon.data, 9)


def test_a_daemon_killed_twice_in_a_row(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    with acqstream.create("cells", endpoint=daemon.endpoint, patience_s=30) as run:
        for number in range(50):
            put(run, number)
        daemon.kill()
        daemon.launch()
        until(lambda: "recovered" in daemon.output(), "the recovery")
        daemon.kill()  # before, or while, the run goes on
        daemon.start()
        for number in range(50, 100):
            put(run, number)
    check_receipt(run, 100)
    assert daemon.stop() == 0
    check(daemon.data, 100)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "delay_s", [0.01, *(pytest.param(delay_s, marks=pytest.mark.slow) for delay_s in (0.0, 0.005, 0.03, 0.1))]
)
def test_a_daemon_killed_while_closing(tmp_path: Path, delay_s: float) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=30)
    for number in range(60):
        put(run, number)

    def kill() -> None:
        time.sleep(delay_s)  # whatever the close has come to
        daemon.kill()

    restarts = Restarts(daemon, kill)
    restarts.begin()
    run.close()
    check_receipt(run, 60)
    restarts.wait()
    assert daemon.stop() == 0
    check(daemon.data, 60)


def test_a_receipt_that_was_lost_with_the_daemon_is_told_by_the_next_one(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        ds = new_dataset_id()
        with WireClient(daemon.endpoint) as client:
            client.open("cells", ds)
            client.send("close", ds=ds, n=0)
            closed = client.wait_for("closed")
        daemon.kill()
        daemon.start()
        with WireClient(daemon.endpoint) as client:
            assert client.open("cells", ds, resume=True, epoch=1) == closed


def test_a_daemon_started_again_on_other_data_is_an_error(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=20)
    for number in range(10):
        put(run, number)
    until(lambda: run.progress.published == 10, "ten frames are published")
    daemon.kill()
    (tmp_path / "other").mkdir()
    daemon.launch_on(tmp_path / "other")
    with pytest.raises(acqstream.AcquisitionFailed, match="not in this data directory"):
        run.close()
    assert daemon.stop() == 0
    assert not [path for path in (tmp_path / "other").iterdir() if path.is_dir()]
    assert check_frames(run.path, lambda _: SHAPE) == 10


@pytest.mark.promise("producer-restarted")
def test_a_producer_started_again_goes_on_by_name(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as daemon:
        first = acqstream.create("cells", endpoint=daemon.endpoint, resume=True, summary={"PixelSizeUm": 0.5})
        for number in range(20):
            put(first, number)
        first.skip(2, reason="shutter")
        until(lambda: first.progress.published == 22, "the first frames are published")
        with pytest.raises(acqstream.AcquisitionRefused, match="another producer"):
            acqstream.create("cells", endpoint=daemon.endpoint, resume=True, patience_s=2)
        vanish(first)
        until(lambda: state_of(daemon.data / "cells")["state"] == "INTERRUPTED", "it is interrupted")

        with acqstream.create("cells", endpoint=daemon.endpoint, resume=True) as second:
            assert second.next == 22
            for number in range(22, 40):
                put(second, number)
        assert second.receipt is not None
        assert (second.receipt.stored, second.receipt.skipped, second.receipt.sent) == (38, 2, 40)
        assert second.receipt.dataset_id == first._state.dataset_id
        with acqstream.open(second.path) as dataset:
            assert dataset.summary_metadata["PixelSizeUm"] == 0.5
            for number in [*range(20), *range(22, 40)]:
                assert np.array_equal(dataset.read_frame(time=number), image_of(number, SHAPE))
        with pytest.raises(acqstream.DatasetExists, match="complete"):
            acqstream.create("cells", endpoint=daemon.endpoint, resume=True)


def vanish(run: Run) -> None:
    """As if its process had been killed."""
    run._connection.stop()
    run._connection.join()
    run_module._leave(run._closing)


@pytest.mark.promise("producer-restarted")
@pytest.mark.parametrize("grace_s", [0.1, 60.0])
def test_a_producer_that_was_replaced_is_fenced_off(tmp_path: Path, grace_s: float) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=grace_s) as daemon:
        ds = new_dataset_id()
        with WireClient(daemon.endpoint) as lost:
            lost.open("cells", ds)
            lost.frame(ds, 0, image_of(0, SHAPE).tobytes(), SHAPE, {"time": 0})
            while lost.wait_for("ack")["received"] < 1:
                pass
        if grace_s < 1:
            until(lambda: state_of(daemon.data / "cells")["state"] == "INTERRUPTED", "it is interrupted")
        with WireClient(daemon.endpoint) as old, WireClient(daemon.endpoint) as new:
            opened = until_opened(new, "cells")
            assert (opened["ds"], opened["next"], opened["resumed"]) == (ds, 1, True)
            error = old.open("cells", ds, resume=True, epoch=1)
            assert (error["code"], error["fatal"]) == ("denied", False)
            old.send("close", ds=ds, n=1, status="canceled")
            assert old.wait_for("error")["code"] == "denied"
            new.frame(ds, 1, image_of(1, SHAPE).tobytes(), SHAPE, {"time": 1})
            new.send("close", ds=ds, n=2)
            assert new.wait_for("closed")["receipt"]["stored"] == 2
        assert check_frames(daemon.data / "cells", lambda _: SHAPE) == 2


def until_opened(client: WireClient, name: str) -> dict:
    """Resume by name, as soon as the daemon has noticed that the last producer is gone."""
    return until(
        lambda: opened if (opened := client.open(name, new_dataset_id(), resume=True))["t"] == "opened" else None,
        "the acquisition is taken over",
    )


def test_a_client_from_the_page_outlives_the_daemon(tmp_path: Path) -> None:
    """docs/protocol.md, "Lost contact", with what it says and nothing of this package."""
    ds = new_dataset_id()
    with DaemonProcess(tmp_path / "data") as daemon:
        epoch = 0
        for first in range(0, 40, 10):
            with WireClient(daemon.endpoint) as client:
                opened = client.open("cells", ds, **({"resume": True, "epoch": epoch} if epoch else {}))
                assert opened["t"] == "opened", opened
                assert opened["epoch"] == epoch
                for number in range(opened["next"], first + 10):
                    client.frame(ds, number, image_of(number, SHAPE).tobytes(), SHAPE, {"time": number})
                if first == 30:
                    client.send("close", ds=ds, n=40)
                    receipt = client.wait_for("closed")["receipt"]
                else:
                    daemon.kill()
                    daemon.start()
                    epoch = opened["epoch"] + 1
    assert (receipt["stored"], receipt["sent"], receipt["status"]) == (40, 40, "completed")
    assert check_frames(receipt["path"], lambda _: SHAPE) == 40


@pytest.mark.timeout_s(120)
@needs_sockets_to_close
@pytest.mark.parametrize(
    ("kills", "grace_s"), [(3, 0.1), *(pytest.param(10, grace_s, marks=pytest.mark.slow) for grace_s in (0.1, 60.0))]
)
def test_a_producer_killed_again_and_again_goes_on_by_name(tmp_path: Path, kills: int, grace_s: float) -> None:
    count = (kills + 1) * 100
    seen = []
    with DaemonProcess(tmp_path / "data", grace_s=grace_s) as daemon:
        for round_number in range(kills + 1):
            some = 100 * (round_number + 1)  # with as many it waits to be killed
            producer = programs.start(programs.GOING_ON, daemon.endpoint, "cells", str(count), "10", str(some))
            try:
                seen.append(int(programs.line_of(producer)))
                if round_number == kills:
                    assert programs.line_of(producer) == f"closed {count}"
                    break
                until(lambda: received(daemon) > some - 50, "some frames")  # noqa: B023 - called in this turn only
            finally:
                programs.kill(producer)
        assert seen == sorted(seen)  # the same again where one was killed before anything of it was stored
        check(daemon.data, count)


def received(daemon: DaemonProcess) -> int:
    found = fetch_status(daemon.endpoint).acquisitions
    return found[0].received if found else 0


@pytest.mark.deep
@pytest.mark.promise("nothing-hangs")
@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_a_long_pause_of_one_side_costs_nothing_and_takes_no_memory(tmp_path: Path) -> None:
    count = 1500
    with ThreadPoolExecutor(2) as pool:  # the daemon of one run and the producer of another, in the same 15 s
        pauses = [pool.submit(run_with_a_pause, tmp_path / who, who, count) for who in ("daemon", "producer")]
    for one in pauses:
        check(one.result(), count)


def run_with_a_pause(place: Path, who: str, count: int) -> Path:
    """The data directory of a run in which one side stood still."""
    place.mkdir()
    with DaemonProcess(place / "data") as daemon:
        patience_s = 10.0 if who == "producer" else 2 * PAUSE_S
        arguments = ["cells", str(count), str(patience_s), "600"]
        producer = programs.start(programs.GOING_ON, daemon.endpoint, *arguments)
        try:
            assert programs.line_of(producer) == "0"
            until(lambda: received(daemon) > 300, "some frames")
            paused, other = (daemon.pid, producer.pid) if who == "daemon" else (producer.pid, daemon.pid)
            before = [psutil.Process(pid).memory_info().rss for pid in (paused, other)]
            psutil.Process(paused).suspend()
            assert producer.stdin is not None
            producer.stdin.write("go on\n")
            producer.stdin.flush()
            time.sleep(PAUSE_S)
            grown = [psutil.Process(pid).memory_info().rss for pid in (paused, other)]
            psutil.Process(paused).resume()
            assert max(np.subtract(grown, before)) < STEADY_BYTES, (who, before, grown)
            assert programs.line_of(producer) == f"closed {count}"
            after = psutil.Process(daemon.pid).memory_info().rss
            assert after - before[0 if who == "daemon" else 1] < STEADY_BYTES
        finally:
            resume_and_kill(producer)
        return daemon.data


def resume_and_kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process.pid).resume()
    programs.kill(process)
