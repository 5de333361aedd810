"""kill -9 of the daemon at random moments: what it had acknowledged is there, before recovery and after it."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import DaemonUnavailable, WriterBehind
from acqstream.log.journal import JOURNAL_NAME, decode_journal_header
from acqstream.model.state import AcquisitionState
from tests.host_system import needs_sockets_to_close
from tests.live.daemon_process import DaemonProcess
from tests.live.impatience import make_impatient
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import WAIT_S, until

PATIENCE_S = 0.4
LATEST_KILL_S = 0.4
FRAME_INTERVAL_S = 0.002  # bounds what has to be read again
SEED = int(os.environ.get("ACQSTREAM_TEST_SEED") or random.randrange(2**32))


def shape_of(number: int) -> tuple[int, int]:
    return (256, 256) if number % 3 else (600, 700)


def published_when_killed(daemon: DaemonProcess, name: str, delay_s: float, *, is_late: bool) -> int:
    """Send frames until the daemon is gone; how many it had acknowledged as published.

    is_late: the delay begins when the first one is.
    """
    is_due = threading.Event()

    def kill() -> None:
        if is_late:
            is_due.wait(WAIT_S)
        time.sleep(delay_s)
        daemon.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    run = None
    try:
        with contextlib.suppress(DaemonUnavailable):
            transport: Any = "shm" if int(name.removeprefix("cells")) % 2 else "tcp"
            patience_s = WAIT_S if is_late else PATIENCE_S
            options = {"transport": transport, "patience_s": patience_s, "buffer_mb": 20}
            run = acqstream.create(name, endpoint=daemon.endpoint, **options)
            make_impatient(run, PATIENCE_S)
            number = 0
            while True:
                with contextlib.suppress(WriterBehind):  # its disk may take longer: the frame comes again
                    run.put(image_of(number, shape_of(number)), time=number)
                    number += 1
                if run.progress.published:
                    is_due.set()
                time.sleep(FRAME_INTERVAL_S)
    finally:
        is_due.set()
        killer.join()
        if run is not None:
            with contextlib.suppress(DaemonUnavailable):
                run.close("error", reason="the daemon was killed")
    return run.progress.published if run is not None else 0


def check_before_recovery(path: Path, published: int) -> None:
    if not (path / "NDTiff.index").exists() and not published:
        return  # killed while the dataset was being made
    with contextlib.suppress(acqstream.AcqStreamError) if not published else contextlib.nullcontext():
        with acqstream.open(path) as dataset:
            assert not dataset.complete
        check_frames(path, shape_of, least=published)


def check_after_recovery(path: Path, published: int) -> None:
    if not (path / "acqstream.json").exists():  # killed while the dataset was being made: `opened` was never said
        assert not published
        assert not list(path.glob("*.tif"))
        return
    assert state_of(path)["state"] == "INTERRUPTED"
    assert decode_journal_header((path / JOURNAL_NAME).read_bytes(), "").clean
    assert not list(path.glob("*.part"))
    if not published and not list(path.glob("*.tif")):
        return
    with acqstream.open(path) as dataset:
        assert dataset.state is AcquisitionState.INTERRUPTED
    check_frames(path, shape_of, least=published)


def check_kills(tmp_path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    counts = []
    with DaemonProcess(tmp_path / "data") as daemon:
        for round_number in range(kills):
            name = f"cells{round_number}"
            delay_s = chance.uniform(0.0, LATEST_KILL_S if round_number % 4 else 0.03)
            try:
                is_late = round_number == kills - 1  # one at least is killed with frames published
                counts.append(published_when_killed(daemon, name, delay_s, is_late=is_late))
                check_before_recovery(daemon.data / name, counts[-1])
                daemon.start()
                check_after_recovery(daemon.data / name, counts[-1])
            except BaseException as error:
                error.add_note(f"round {round_number}, killed after {delay_s:.4f} s, seed {seed}")
                raise
    assert any(counts)


@pytest.mark.parametrize("seed", [SEED])  # part of the name, so that it is told in any case
def test_five_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, 5, seed)


@pytest.mark.deep
@needs_sockets_to_close
@pytest.mark.slow
@pytest.mark.timeout_s(180)
@pytest.mark.parametrize("seed", [SEED])
def test_fifteen_more_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, 15, seed + 1)


def test_the_next_daemon_is_told_how_many_frames_were_sent(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, patience_s=WAIT_S) as run:
        for number in range(3):
            run.put(image_of(number, (64, 64)), time=number)
        until(lambda: sent_of(daemon) == 3, "the first one knows")
        until(lambda: run.progress.durable == 3, "all are safe")
        daemon.kill()
        daemon.start()
        until(lambda: sent_of(daemon) == 3, "so does the next one, though nothing was put")


def sent_of(daemon: DaemonProcess) -> int | None:
    runs = fetch_status(daemon.endpoint).acquisitions
    return runs[0].sent if runs else None
