"""A run with letters of several scripts and spaces in its name, from `create` to `verify`, also in a plain locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status, stop_acquisition
from acqstream.client.run import Run
from acqstream.errors import AcquisitionFailed, AcquisitionRefused
from acqstream.model.state import AcquisitionState
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import mirrors_of
from tests.live.stored import image_of, state_of
from tests.waiting import until

NAME = "Zellen am Rand 細胞 é"
APART = unicodedata.normalize("NFD", NAME)
SHAPE = (40, 50)
COUNT = 4
PLAIN_LOCALES = [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]

assert unicodedata.is_normalized("NFC", NAME)
assert APART != NAME


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "Daten der Klinik ü" / "data", home=tmp_path) as process:
        yield process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> None:
    (tmp_path / "Daten der Klinik ü").mkdir()


def verb(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acqstream", *arguments]
    environment = {**{key: value for key, value in os.environ.items() if not key.startswith("LC_")}, **environment}
    # JSON is ASCII; other text is in the locale of the program, which may be another than ours.
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)


def put(run: Run, first: int, stop: int) -> None:
    for number in range(first, stop):
        run.put(image_of(number, SHAPE), z=number)


@pytest.mark.timeout_s(180)
def test_a_run_with_mirrors_is_stored_under_its_name_and_proved(daemon: DaemonProcess) -> None:
    with acqstream.create(APART, endpoint=daemon.endpoint, mirrors=["n5", "wkw"], expect=COUNT) as run:
        assert (run.name, Path(run.path).name) == (NAME, NAME)
        put(run, 0, COUNT)
    path = daemon.data / NAME
    assert run.receipt is not None
    assert run.receipt.path == str(path)
    until(lambda: all(one.state == "complete" for one in mirrors_of(daemon, path).values()), "mirrors")
    stacks = sorted(file.name for file in path.glob("*.tif"))
    assert stacks == ["NDTiffStack.tif"]  # ASCII: Java readers take names in the charset of their platform
    for place in (path, path.with_name(f"{NAME}.n5"), path.with_name(f"{NAME}.wkw")):
        with acqstream.open(place) as dataset:
            pixels = dataset.levels[0].read().reshape(COUNT, *SHAPE)
        assert np.array_equal(pixels, [image_of(number, SHAPE) for number in range(COUNT)])
        ended = verb("verify", str(place), "--json", **PLAIN_LOCALES[-1])
        assert ended.returncode == 0, ended.stderr
    assert verb("info", str(path), **PLAIN_LOCALES[-1]).returncode == 0
    assert json.loads((path / "acqstream.json").read_bytes())["name"] == NAME


@pytest.mark.timeout_s(120)
@pytest.mark.parametrize("locale", PLAIN_LOCALES)
def test_status_and_stop_know_it_by_name(daemon: DaemonProcess, locale: dict[str, str]) -> None:
    run = acqstream.create(NAME, endpoint=daemon.endpoint)
    run.put(image_of(0, SHAPE), z=0)
    until(lambda: run.progress.published == 1, "published")
    assert [one.name for one in fetch_status(daemon.endpoint).acquisitions] == [NAME]
    told = verb("status", "--endpoint", daemon.endpoint, "--json", **locale)
    assert told.returncode == 0, told.stderr
    assert [one["name"] for one in json.loads(told.stdout)["acquisitions"]] == [NAME]
    assert verb("status", "--endpoint", daemon.endpoint, **locale).returncode == 0
    ended = verb("stop", APART, "--endpoint", daemon.endpoint, "--json", **locale)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["stored"] == 1
    with pytest.raises(AcquisitionFailed):
        run.close()


def test_stop_takes_either_form_and_says_a_wrong_name(daemon: DaemonProcess) -> None:
    run = acqstream.create(NAME, endpoint=daemon.endpoint)
    with pytest.raises(AcquisitionRefused, match="Zellen 2"):
        stop_acquisition("Zellen 2", daemon.endpoint)
    assert stop_acquisition(APART, daemon.endpoint).status == "canceled"
    with pytest.raises(AcquisitionFailed):
        run.close()


def test_it_is_resumed_by_either_form_of_its_name(daemon: DaemonProcess) -> None:
    run = acqstream.create(NAME, endpoint=daemon.endpoint)
    put(run, 0, 2)
    until(lambda: run.progress.published == 2, "published")
    daemon.kill()
    with pytest.raises(acqstream.AcqStreamError):
        run.close()
    daemon.start()
    assert state_of(daemon.data / NAME)["state"] == AcquisitionState.INTERRUPTED
    with acqstream.create(APART, endpoint=daemon.endpoint, resume=True) as again:
        assert (again.name, again.next) == (NAME, 2)
        put(again, 2, COUNT)
    assert again.receipt is not None
    assert again.receipt.stored == COUNT
    assert sorted(file.name for file in (daemon.data / NAME).glob("*.tif")) == ["NDTiffStack.tif", "NDTiffStack_1.tif"]
    with acqstream.open(daemon.data / NAME) as dataset:
        assert np.array_equal(dataset.levels[0].read(), [image_of(number, SHAPE) for number in range(COUNT)])


def test_names_that_differ_in_case_or_form_are_one(daemon: DaemonProcess) -> None:
    with acqstream.create(NAME, endpoint=daemon.endpoint) as run:
        put(run, 0, 1)
    for name in (APART, NAME.upper(), APART.lower()):
        with pytest.raises((AcquisitionRefused, acqstream.DatasetExists)) as caught:
            acqstream.create(name, endpoint=daemon.endpoint)
        assert caught.value.code == "name_taken"
    with acqstream.create(APART, endpoint=daemon.endpoint, on_exists="number") as run:
        put(run, 0, 1)
    assert Path(run.path).name == f"{NAME}_1"


@pytest.mark.parametrize(
    "name", ["a\u202eb", "a/../b", "a/NUL/b", "a\\b", "NUL.txt", " a", "a.", "a\u00a0b", "細" * 61]
)
def test_a_name_that_some_system_cannot_have_is_refused(daemon: DaemonProcess, name: str) -> None:
    with pytest.raises(AcquisitionRefused, match="is not allowed") as caught:
        acqstream.create(name, endpoint=daemon.endpoint)
    assert caught.value.code == "bad_name"
