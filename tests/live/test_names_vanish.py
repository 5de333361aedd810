"""Names vanish under a running daemon: folders of runs and mirrors, the runtime folder with its sockets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status, shut_down
from acqstream.client.run import Run
from acqstream.log.state_file import read_receipt
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows renames and removes no folder with open files")
SHAPE = (128, 128)
COUNT = 120


def put(run: Run, numbers: range, shape: tuple[int, int] = SHAPE) -> None:
    send(run, numbers, shape)
    until(lambda: run.progress.published == numbers.stop, "the frames are published")


def send(run: Run, numbers: range, shape: tuple[int, int] = SHAPE) -> None:
    for number in numbers:
        run.put(image_of(number, shape), time=number)


def codes(run: Run) -> list[str]:
    return [warning.code for warning in run.warnings]


@pytest.mark.promise("names-vanish")
@pytest.mark.parametrize("shape", [SHAPE, (2048, 2048)], ids=["small", "large"])
@pytest.mark.parametrize("place", ["cells mutant 3", "other/cells"])
def test_a_run_goes_on_in_its_folder_under_any_name(
    shared_daemon: DaemonProcess, place: str, shape: tuple[int, int]
) -> None:
    data, name = shared_daemon.data, f"cells{shape[0]}{len(place)}"
    moved = data / f"{place}{shape[0]}"
    moved.parent.mkdir(exist_ok=True)
    run = acqstream.create(name, endpoint=shared_daemon.endpoint)
    with run:
        put(run, range(10), shape)
        (data / name).rename(moved)
        put(run, range(10, COUNT // 4), shape)
        assert codes(run) == ["folder_moved"]
        assert f"{data / name} was renamed or moved; the run goes on in {moved}" in run.warnings[0].text
        moved.rename(moved.with_name("again" + moved.name))
    moved = moved.with_name("again" + moved.name)
    assert run.receipt is not None
    assert (run.receipt.status, run.receipt.stored, run.receipt.path) == ("completed", COUNT // 4, str(moved))
    assert read_receipt(str(moved)) == run.receipt
    assert check_frames(moved, lambda _: shape) == COUNT // 4
    assert not (data / name).exists()


@pytest.fixture
def failing_daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon whose runs fail, which its exit code says."""
    daemon = DaemonProcess(tmp_path / "data").start()
    yield daemon
    daemon.stop()


@pytest.mark.promise("names-vanish")
def test_a_deleted_folder_ends_the_run_with_that_said(failing_daemon: DaemonProcess) -> None:
    run = acqstream.create("deleted", endpoint=failing_daemon.endpoint)
    put(run, range(10))
    shutil.rmtree(failing_daemon.data / "deleted")
    deleted = r"another program deleted the folder|was deleted by another program"
    with pytest.raises(acqstream.AcqStreamError, match=deleted):
        send(run, range(10, COUNT))
        run.close()
    assert run.receipt is not None
    assert run.receipt.status == "failed"


@pytest.mark.parametrize("name", ["stack.tif", "NDTiff.index", "acqstream.journal"])
def test_a_deleted_file_ends_the_run_with_that_said(failing_daemon: DaemonProcess, name: str) -> None:
    dataset = f"without {name}"
    run = acqstream.create(dataset, endpoint=failing_daemon.endpoint)
    put(run, range(10))
    path = failing_daemon.data / dataset / name.replace("stack", f"{dataset}_NDTiffStack")
    path.unlink()
    with pytest.raises(acqstream.AcqStreamError, match=f"{path.name} was deleted by another program"):
        send(run, range(10, COUNT))
        run.close()


def test_a_moved_run_that_was_interrupted_is_resumed_by_the_same_daemon(daemon: DaemonProcess) -> None:
    run = acqstream.create("cells", endpoint=daemon.endpoint)
    put(run, range(10))
    (daemon.data / "cells").rename(daemon.data / "renamed")
    put(run, range(10, 20))
    run.close("error")
    assert state_of(daemon.data / "renamed")["state"] == "ERRORED"
    with acqstream.create("renamed", endpoint=daemon.endpoint, resume=True) as again:
        assert again.next == 20
        for number in range(20, 30):
            again.put(image_of(number, SHAPE), time=number)
    assert check_frames(daemon.data / "renamed", lambda _: SHAPE) == 30


@pytest.mark.parametrize("mirror", ["n5", "wkw", "ome-zarr", "precomputed", "hsds"])
def test_a_mirror_whose_folder_vanishes_fails_with_that_said(shared_daemon: DaemonProcess, mirror: str) -> None:
    data, name = shared_daemon.data, f"mirrored-{mirror}"
    container = data / f"{name}.{mirror.replace('ome-zarr', 'ome.zarr')}"
    with acqstream.create(name, endpoint=shared_daemon.endpoint, mirrors=[mirror]) as run:
        put(run, range(40))
        names = ("json", "info")  # of documents: a folder that is taken away without one is made again
        until(lambda: any(path.name.endswith(names) for path in container.rglob("*")), "the mirror has begun")
        until(lambda: _moved(container, data / f"elsewhere-{mirror}"), "it is moved")
        put(run, range(40, COUNT))
    assert run.receipt is not None
    assert (run.receipt.status, run.receipt.stored) == ("completed", COUNT)
    (result,) = run.wait_for_mirrors(timeout_s=30)
    assert result.state == "failed"
    assert "was renamed, moved or deleted" in result.reason
    until(lambda: f"view {mirror} of {data / name} failed" in shared_daemon.output(), "the log")


def test_a_run_moved_after_its_receipt_leaves_its_mirrors_with_that_said(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5"]) as run:
        put(run, range(COUNT), (1024, 1024))
    (daemon.data / "cells").rename(daemon.data / "moved")
    with pytest.raises(acqstream.AcqStreamError, match="its folder was renamed, moved or deleted"):
        run.wait_for_mirrors(timeout_s=30)
    until(lambda: "view n5 of" in daemon.output(), "the log")
    until(lambda: "renamed, moved or deleted" in daemon.output(), "the log")


@pytest.mark.promise("names-vanish")
@pytest.mark.parametrize("way", ["removed", "renamed"])
def test_the_runtime_folder_is_made_again(daemon: DaemonProcess, way: str) -> None:
    with acqstream.create("cells", endpoint=daemon.ipc) as run:
        put(run, range(10))
        if way == "removed":
            shutil.rmtree(daemon.runtime)
        else:
            daemon.runtime.rename(daemon.runtime.with_name("gone"))
        names = [f"{daemon.port}{suffix}" for suffix in (".sock", ".memory", ".shutdown")]
        until(lambda: all((daemon.runtime / name).exists() for name in names), "all names are there again")
        put(run, range(10, 20))
        fetch_status(daemon.ipc)
        with acqstream.create("shared", endpoint=daemon.endpoint, transport="shm") as new:
            new.put(image_of(0, SHAPE), time=0)
    assert run.receipt is not None
    assert run.receipt.stored == 20
    shut_down(daemon.endpoint)
    assert daemon.wait() == 0


def _moved(source: Path, target: Path) -> bool:
    """Renamed before any file of it is done; the mirror may put its folder in its place at any time."""
    try:
        source.rename(target)
    except OSError:
        return False
    return True
