"""The watch of a real daemon: while it records, is away, is back, and ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import StatusClient
from acqstream.errors import DaemonUnavailable
from acqstream.log.state_file import RECEIPT_NAME
from acqstream.model.status import AcquisitionStatus
from acqstream.monitor.daemon_watch import DaemonWatch, receipt_of
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

IMAGE = np.zeros((16, 16), np.uint16)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data") as daemon:
        yield daemon


@pytest.fixture
def watch(daemon: DaemonProcess) -> Iterator[DaemonWatch]:
    watch = DaemonWatch(daemon.endpoint)
    yield watch
    watch.close()


def test_a_run_from_its_start_to_its_receipt(daemon: DaemonProcess, watch: DaemonWatch) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(IMAGE, time=0)
        until(lambda: run.progress.published == 1, "the frame is published")
        (status,) = watch.tick().running
        assert (status.name, status.published) == ("cells", 1)
    view = watch.tick()
    (ended,) = view.ended
    assert (view.running, ended.last.name, ended.receipt, ended.is_good) == ((), "cells", run.receipt, True)
    assert watch.view is view


def test_a_daemon_that_is_killed_and_comes_back(daemon: DaemonProcess, watch: DaemonWatch) -> None:
    run = acqstream.create("cells", endpoint=daemon.endpoint)
    run.put(IMAGE, time=0)
    until(lambda: run.progress.durable == 1, "the frame is durable")
    before = watch.tick()
    daemon.kill()
    away = watch.tick(1.0)
    assert away.status is None
    assert daemon.endpoint in away.why
    assert (away.running, away.ended) == (before.running, ())
    daemon.start()
    run.put(IMAGE, time=1)
    until(lambda: run.progress.durable == 2, "the run continues")
    back = watch.tick()
    assert [one.name for one in back.running] == ["cells"]
    assert back.ended == ()
    run.close()


def test_the_end_of_the_daemon_ends_its_runs(daemon: DaemonProcess, watch: DaemonWatch) -> None:
    run = acqstream.create("cells", endpoint=daemon.endpoint)
    run.put(IMAGE, time=0)
    watch.tick()
    daemon.kill()
    (ended,) = watch.note_end_of_daemon("killed").ended
    assert (ended.last.name, ended.receipt, ended.state, ended.is_good) == ("cells", None, "", False)
    daemon.start()  # so that the run can be closed
    run.close()


def test_one_connection_is_used_again_and_replaced_when_lost(daemon: DaemonProcess) -> None:
    client = StatusClient(daemon.endpoint)
    try:
        first = client.fetch()
        assert first.endpoint == daemon.endpoint
        link = client._link
        client.fetch()
        assert client._link is link
        daemon.stop()
        with pytest.raises(DaemonUnavailable):
            client.fetch(0.5)
        assert client._link is None
        daemon.start()
        assert client.fetch().boot == first.boot
    finally:
        client.close()


@pytest.mark.parametrize("content", [None, "{", '{"dataset_id": "another", "path": "/x", "status": "completed"}'])
def test_no_receipt_of_this_run(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / RECEIPT_NAME).write_text(content, encoding="utf-8")
    assert receipt_of(AcquisitionStatus(name="cells", dataset_id="b0e1", path=str(tmp_path))) is None
