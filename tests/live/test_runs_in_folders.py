"""A run whose name has folders, from `create` over a killed daemon to `rm`; its mirrors lie beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.cli.main import main
from acqstream.client.daemon_requests import fetch_status, send_note, stop_acquisition
from acqstream.dataset.run_list import list_runs
from acqstream.errors import AcquisitionFailed, AcquisitionRefused
from acqstream.integrity.verify import verify
from acqstream.mirrors.run_end import data_directory_of, is_recorded
from acqstream.model.run_note import TERMINAL, new_note
from acqstream.model.state import AcquisitionState
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of, state_of
from tests.waiting import HANG_S, until

NAME = "anna/2026-11-29/embryo"
SHAPE = (40, 50)


def verb(*arguments: str) -> object:
    with pytest.raises(SystemExit) as info:
        main(list(arguments))
    return info.value.code


@pytest.mark.timeout_s(180)
def test_it_is_recorded_killed_resumed_proved_listed_and_removed(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    path = daemon.data / NAME
    run = acqstream.create(NAME, endpoint=daemon.endpoint, mirrors=["n5", "wkw"])
    assert (run.name, run.path) == (NAME, str(path))
    for number in range(2):
        run.put(image_of(number, SHAPE), z=number)
    until(lambda: run.progress.published == 2, "published")
    daemon.kill()
    with pytest.raises(acqstream.AcqStreamError):
        run.close()
    daemon.start()
    assert state_of(path)["state"] == AcquisitionState.INTERRUPTED, "the daemon looks below"
    with acqstream.create(NAME, endpoint=daemon.endpoint, mirrors=["n5", "wkw"], resume=True) as again:
        assert (again.name, again.path, again.next) == (NAME, str(path), 2)
        for number in range(2, 4):
            again.put(image_of(number, SHAPE), z=number)
    assert again.receipt is not None
    assert (again.receipt.stored, again.receipt.path) == (4, str(path))
    assert [one.state for one in again.wait_for_mirrors(HANG_S)] == ["complete", "complete"]
    assert sorted(one.name for one in path.glob("*.tif")) == [
        "embryo_NDTiffStack.tif",
        "embryo_NDTiffStack_1.tif",
    ]
    for place in (path, path.with_name("embryo.n5"), path.with_name("embryo.wkw")):
        assert verb("verify", str(place)) == 0
        with acqstream.open(place) as dataset:
            pixels = dataset.levels[0].read().reshape(4, *SHAPE)
        assert np.array_equal(pixels, [image_of(number, SHAPE) for number in range(4)])
    capsys.readouterr()
    assert verb("ls", str(daemon.data), "--json") == 0
    assert [(one["name"], one["mirrors"]) for one in json.loads(capsys.readouterr().out)] == [
        (NAME, {"n5": "complete", "wkw": "complete"})
    ]
    assert verb("wait", str(path)) == 0
    moved = daemon.data / "bob" / "cells"
    moved.parent.mkdir()
    assert verb("mv", str(path), str(moved)) == 0
    assert verify(moved).ok
    assert verb("rm", str(moved), "--yes", "--force") == 0
    assert list_runs(daemon.data) == []
    assert [one for one in daemon.data.rglob("*") if one.is_file() and not one.name.startswith(".")] == []


def test_the_daemon_knows_it_by_its_whole_name(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    first = acqstream.create(NAME, endpoint=daemon.endpoint)
    second = acqstream.create(NAME, endpoint=daemon.endpoint, on_exists="number")
    other = acqstream.create("bob/2026-11-29/embryo", endpoint=daemon.endpoint)
    for run in (first, second, other):
        run.put(image_of(0, SHAPE), z=0)
    assert [one.name for one in fetch_status(daemon.endpoint).acquisitions] == [NAME, f"{NAME}_1", other.name]
    path = Path(first.path)
    until(lambda: first.progress.published, "the folder is there")
    assert data_directory_of(path) == daemon.data
    assert is_recorded(path)
    assert send_note(NAME, new_note("drug added", TERMINAL), daemon.endpoint).path == first.path
    assert verb("note", str(path), "washed", "--endpoint", daemon.endpoint) == 0
    assert verb("note", NAME, "again", "--endpoint", daemon.endpoint) == 0
    with acqstream.open(path) as dataset:
        assert [one.content for one in dataset.notes] == ["drug added", "washed", "again"]
    for name in (f"{NAME}/inside", f"{NAME}.x/../y"):
        with pytest.raises(AcquisitionRefused) as info:
            acqstream.create(name, endpoint=daemon.endpoint)
        assert info.value.code == "bad_name"
    with pytest.raises(AcquisitionRefused, match="embryo"):
        stop_acquisition("embryo", daemon.endpoint)
    for run in (first, second, other):
        assert stop_acquisition(run.name, daemon.endpoint).status == "canceled"
        with pytest.raises(AcquisitionFailed):
            run.close()
    assert "anna" in capsys.readouterr().out
