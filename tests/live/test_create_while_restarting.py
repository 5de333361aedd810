"""`create` while its daemon is killed and started again, on a busy machine: it is opened, always, and by one attempt.

ACQSTREAM_RESTART_ROUNDS says how many rounds there are, 6 if it is not set.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.forwarder import Forwarder
from tests.waiting import until

ROUNDS = int(os.environ.get("ACQSTREAM_RESTART_ROUNDS", "6"))
ROUND_S = 30.0  # for the watchdog
LATEST_KILL_S = 0.03  # about as long as `create` takes
BUSY = "while True: pass"
BUSY_PROCESSES = 2 * (os.cpu_count() or 1)
IMAGE = np.arange(64, dtype="u2").reshape(8, 8)
TRANSPORTS = ("auto", "tcp", "ipc", "shm", "own socket")
SEED = int(os.environ.get("ACQSTREAM_TEST_SEED") or random.randrange(2**32))


@pytest.fixture
def load() -> Iterator[None]:
    """More processes that compute than there are processors."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_PROCESSES)]
    yield
    for process in busy:
        process.kill()
        process.wait()


def create_in_round(daemon: DaemonProcess, number: int, delay_s: float) -> None:
    """Kill the daemon so long after `create` began, start it again at once, and store a frame."""
    transport = TRANSPORTS[number % len(TRANSPORTS)]
    options: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport}
    if transport == "own socket":
        options = {"endpoint": daemon.ipc}
    began = threading.Event()

    def restart() -> None:
        began.wait()
        time.sleep(delay_s)  # where in `create` it dies is left to chance
        daemon.kill()
        daemon.launch()

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        began.set()
        with acqstream.create(f"cells{number}", **options, buffer_mb=1, patience_s=20.0) as run:
            restarting.join()
            run.put(IMAGE, time=0)
        assert run.receipt is not None
        assert run.receipt.stored == 1
        assert run.name == f"cells{number}"
    except BaseException as error:
        error.add_note(f"round {number}, {transport}, killed after {delay_s:.4f} s, seed {SEED}")
        raise
    finally:
        restarting.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the transports are those of POSIX systems")
@pytest.mark.timeout_s(60 + ROUND_S * ROUNDS)
@pytest.mark.parametrize("seed", [SEED])  # part of the name, so that it is told in any case
def test_rounds_of_create_while_the_daemon_restarts(tmp_path: Path, load: None, seed: int) -> None:
    chance = random.Random(seed)
    with DaemonProcess(tmp_path / "data") as daemon:
        for number in range(ROUNDS):
            create_in_round(daemon, number, chance.uniform(0.0, LATEST_KILL_S))
    assert len(list(daemon.data.glob("cells*"))) == ROUNDS


def test_create_goes_on_when_a_stopped_daemon_does(tmp_path: Path) -> None:
    """SIGSTOP before `hello` is answered; what waits in the connection is answered later."""
    with DaemonProcess(tmp_path / "data") as daemon:
        daemon.pause()
        runs: list[Any] = []
        creating = threading.Thread(
            target=lambda: runs.append(acqstream.create("cells", endpoint=daemon.endpoint, patience_s=60.0))
        )
        creating.start()
        time.sleep(0.3)  # some attempts are made meanwhile, or none: both must do
        daemon.go_on()
        creating.join()
        with runs[0] as run:
            run.put(IMAGE, time=0)
        assert len(list(daemon.data.iterdir())) == 1 + len(list(daemon.data.glob(".*")))


def test_create_finds_the_daemon_after_one_that_was_killed_while_it_was_stopped(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        daemon.pause()
        runs: list[Any] = []
        creating = threading.Thread(
            target=lambda: runs.append(acqstream.create("cells", endpoint=daemon.endpoint, patience_s=60.0))
        )
        creating.start()
        time.sleep(0.3)
        daemon.kill()
        daemon.launch()
        creating.join()
        with runs[0] as run:
            run.put(IMAGE, time=0)


@pytest.mark.parametrize("resume", [False, True])
def test_a_connection_cut_before_opened_gets_its_own_run(tmp_path: Path, resume: bool) -> None:
    """The daemon lives on, and has opened the acquisition for a connection that is gone."""
    with DaemonProcess(tmp_path / "data") as daemon, Forwarder(daemon.port) as forwarder:
        forwarder.cut_when(b"opened")
        with acqstream.create("cells", endpoint=forwarder.endpoint, transport="tcp", resume=resume) as run:
            run.put(IMAGE, time=0)
        assert forwarder.cuts == 1
        assert run.name == "cells"
        until(lambda: "closed" in daemon.output(), "the dataset is closed")
        assert sorted(path.name for path in daemon.data.glob("cells*")) == ["cells"]


@pytest.mark.parametrize("lost", [b"hello", b"welcome", b"open", b"opened"])
def test_each_message_of_an_opening_lost_twice(tmp_path: Path, lost: bytes) -> None:
    with DaemonProcess(tmp_path / "data") as daemon, Forwarder(daemon.port) as forwarder:
        (daemon.data / "cells" / "notes").mkdir(parents=True)
        forwarder.cut_when(b"\xa1t" + bytes([0xA0 + len(lost)]) + lost, times=2)  # the type of a message in msgpack
        options: dict[str, Any] = {"transport": "tcp", "on_exists": "number", "summary": {"Interval_ms": 5}}
        with acqstream.create("cells", endpoint=forwarder.endpoint, **options) as run:
            run.put(IMAGE, time=0)
        assert (forwarder.cuts, run.name) == (2, "cells_1")
        until(lambda: "closed" in daemon.output(), "the dataset is closed")
        assert sorted(path.name for path in daemon.data.glob("cells*")) == ["cells", "cells_1"]


DIES_BEFORE_IT_ANSWERS = """
import os
from acqstream.daemon.acquisition import ActiveAcquisition
answer = ActiveAcquisition.opened
def opened(self):
    try:
        os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return answer(self)
    os._exit(1)
ActiveAcquisition.opened = opened
"""


def test_a_daemon_that_dies_between_the_first_file_and_its_answer(tmp_path: Path) -> None:
    """The next one finds the dataset by its id, and gives it to the same producer."""
    prelude = DIES_BEFORE_IT_ANSWERS.format(mark=str(tmp_path / "mark"))
    with DaemonProcess(tmp_path / "data", prelude=prelude) as daemon:
        (daemon.data / "cells" / "notes").mkdir(parents=True)
        runs: list[Any] = []
        options: dict[str, Any] = {"on_exists": "number", "patience_s": 60.0}
        creating = threading.Thread(
            target=lambda: runs.append(acqstream.create("cells", endpoint=daemon.endpoint, **options))
        )
        creating.start()
        until((tmp_path / "mark").exists, "the daemon is dying")
        daemon.kill()
        daemon.launch()
        creating.join()
        with runs[0] as run:
            run.put(IMAGE, time=0)
        assert run.name == "cells_1"
        assert run.receipt.stored == 1
        assert sorted(path.name for path in daemon.data.glob("cells*")) == ["cells", "cells_1"]
