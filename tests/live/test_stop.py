"""An operator ends somebody's acquisition."""

from __future__ import annotations

import json

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status, stop_acquisition
from acqstream.errors import AcquisitionFailed, AcquisitionRefused
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

IMAGE = np.zeros((8, 8), np.uint16)


def test_the_producer_is_told_and_what_it_sent_is_stored(shared_daemon: DaemonProcess) -> None:
    errors: list[Exception] = []
    run = acqstream.create("cells", endpoint=shared_daemon.endpoint, on_error=errors.append)
    other = acqstream.create("others", endpoint=shared_daemon.endpoint)
    run.put(IMAGE, time=0)
    until(lambda: run.progress.published == 1, "one frame is published")
    receipt = stop_acquisition("cells", shared_daemon.endpoint)
    assert (receipt.status, receipt.reason, receipt.stored) == ("canceled", "stopped by the operator", 1)
    with pytest.raises(AcquisitionFailed, match="stopped by the operator") as info:
        run.close()
    assert info.value.code == "stopped"
    assert [type(error) for error in errors] == [AcquisitionFailed]
    with acqstream.open(receipt.path) as dataset:
        assert str(dataset.state) == "CANCELED"
        assert len(list(dataset.keys())) == 1
    other.put(IMAGE, time=0)
    other.close()
    assert other.receipt is not None
    assert other.receipt.complete


def test_a_lost_producer_finds_its_acquisition_stopped(shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    with WireClient(shared_daemon.endpoint) as client:
        client.open("lost", ds)
    assert stop_acquisition("lost", shared_daemon.endpoint).status == "canceled"
    with WireClient(shared_daemon.endpoint) as client:
        answer = client.open("lost", ds, resume=True, epoch=1)
    assert (answer["t"], answer["receipt"]["reason"]) == ("closed", "stopped by the operator")


def test_an_unknown_name_is_refused(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(AcquisitionRefused, match="'absent'") as info:
        stop_acquisition("absent", shared_daemon.endpoint)
    assert info.value.code == "unknown_ds"
    assert fetch_status(shared_daemon.endpoint).acquisitions == ()


def test_the_verb_prints_the_receipt(shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with WireClient(shared_daemon.endpoint) as client:
        client.open("by-hand", new_dataset_id())
        assert command("stop", "by-hand", "--endpoint", shared_daemon.endpoint, "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "canceled"
