"""The null view of a real daemon: its sums are those of the frames that were sent, whatever happens to its process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.cli.main import main
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.model.status import AcquisitionStatus, UnfinishedViewStatus, ViewProcessStatus
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of, unstalled
from tests.log.make_frames import LEAST_LIMIT_BYTES
from tests.views.view_sums import sums_of
from tests.waiting import WAIT_S, until

SHAPE = (256, 256)
LOW_STACK_LIMIT = f"""
from acqstream.log.log import Log
Log.__init__.__kwdefaults__["stack_limit_bytes"] = {LEAST_LIMIT_BYTES}
"""
DYING_VIEWS = """
import sys
from acqstream.daemon.view_process import ViewProcess
ViewProcess.__init__.__defaults__ = ((sys.executable, "-c", "import sys; sys.exit(3)"),)
"""


def views_of(daemon: DaemonProcess) -> ViewProcessStatus:
    return fetch_status(daemon.endpoint).views


def mirror_of(daemon: DaemonProcess, name: str) -> UnfinishedViewStatus | None:
    """The view of a dataset as the daemon's status has it; None when it is complete, or not asked for."""
    found = [one for one in views_of(daemon).mirrors if Path(one.path).name == name]
    return found[0] if found else None


def wait_for(daemon: DaemonProcess, name: str, **fields: Any) -> UnfinishedViewStatus:
    """Until the view of a dataset is so."""

    def look() -> UnfinishedViewStatus | None:
        mirror = mirror_of(daemon, name)
        return mirror if mirror is not None and fields.items() <= asdict(mirror).items() else None

    found: UnfinishedViewStatus = until(look, f"{name}: {fields}")
    return found


def child_of(daemon: DaemonProcess) -> int:
    pid: int = until(lambda: views_of(daemon).pid, "the views' process runs")
    return pid


def wait_for_another(daemon: DaemonProcess, pid: int) -> None:
    until(lambda: views_of(daemon).pid not in (pid, None), "the views' process was started again")


def result_of(daemon: DaemonProcess, name: str) -> Mapping[str, Any]:
    """The state of the complete null view."""
    path = daemon.data / f"{name}.null" / "view.json"

    def look() -> Any:
        content = json.loads(path.read_bytes()) if path.exists() else {}
        return content.get("complete") and content["state"]

    found: Mapping[str, Any] = until(look, f"the view of {name} is complete")
    return found


def check(daemon: DaemonProcess, name: str, images: Sequence[NDArray[Any]]) -> None:
    assert result_of(daemon, name) == sums_of(images)


def images_of(count: int, shape: tuple[int, ...] = SHAPE) -> list[NDArray[Any]]:
    return [image_of(number, shape) for number in range(count)]


def put(run: Run, images: Sequence[NDArray[Any]], first: int = 0, interval_s: float = 0.002) -> None:
    for number, image in enumerate(images, first):
        run.put(image, time=number)
        time.sleep(interval_s)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with short stack files, left running by its tests."""
    with DaemonProcess(tmp_path_factory.mktemp("views") / "data", prelude=LOW_STACK_LIMIT) as daemon:
        yield daemon


def test_a_view_that_keeps_up_lives_from_memory(shared: DaemonProcess) -> None:
    images = images_of(200)
    with acqstream.create("live", endpoint=shared.endpoint, mirrors=["null"]) as run:
        put(run, images[:1])
        wait_for(shared, "live", state="waiting", cursor=1)
        put(run, images[1:], 1)
        status = running(shared, "live")
        mirror = wait_for(shared, "live", state="waiting", cursor=200)
        assert mirror.from_memory > 100
        assert mirror.from_memory + mirror.from_stack == 200
        assert status.mirrors["null"].from_memory > 0
    assert run.receipt is not None
    assert run.receipt.mirrors == {"null": "complete"}
    check(shared, "live", images)
    until(lambda: mirror_of(shared, "live") is None, "a complete view is not listed")
    assert views_of(shared).memory == "shared"


def running(daemon: DaemonProcess, name: str) -> AcquisitionStatus:
    return next(one for one in fetch_status(daemon.endpoint).acquisitions if one.name == name)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "count"),
    [
        ("small", (64, 64), "uint16", 600),
        ("rollovers", (700, 600), "uint16", 25),
        ("rgb", (100, 90, 3), "uint8", 80),
        ("odd", (7, 5), "uint8", 300),
    ],
)
def test_kinds_of_frames(shared: DaemonProcess, name: str, shape: tuple[int, ...], dtype: str, count: int) -> None:
    chance = np.random.default_rng(count)
    images = [chance.integers(0, np.iinfo(dtype).max, shape, dtype=dtype) for _ in range(count)]
    with acqstream.create(name, endpoint=shared.endpoint, mirrors=["null"]) as run:
        put(run, images[: count // 2], interval_s=0.0)
        run.skip(7, reason="a gap")
        put(run, images[count // 2 :], count // 2, interval_s=0.0)
    check(shared, name, images)
    if name == "rollovers":
        assert len(list((shared.data / name).glob("*.tif"))) > 1


@pytest.mark.promise("views-apart")
def test_killed_again_and_again_it_takes_every_frame_once(shared: DaemonProcess) -> None:
    images = images_of(240)
    with acqstream.create("killed", endpoint=shared.endpoint, mirrors=["null"]) as run:
        for number in range(0, 240, 60):
            put(run, images[number : number + 60], number)
            pid = child_of(shared)
            if number < 180:
                psutil.Process(pid).kill()
                wait_for_another(shared, pid)
        mirror = wait_for(shared, "killed", cursor=240)
        assert mirror.restarts == 3
    assert run.receipt is not None
    assert run.receipt.complete
    check(shared, "killed", images)


@pytest.mark.promise("views-apart")
def test_a_stopped_process_costs_the_run_nothing(shared: DaemonProcess) -> None:
    images = images_of(401)  # three times the memory of an acquisition
    run = acqstream.create("stopped", endpoint=shared.endpoint, mirrors=["null"])
    put(run, images[:1])
    wait_for(shared, "stopped", state="waiting", cursor=1)  # with a view to make it is not ended for idleness
    pid = child_of(shared)
    psutil.Process(pid).suspend()
    try:
        put(run, images[1:], 1, interval_s=0.0)
        status = running(shared, "stopped")
        receipt = run.close()
        assert receipt.complete
        assert receipt.mirrors == {"null": "under way: 1 of 401 frames"}
        assert views_of(shared).pid == pid
        assert mirror_of(shared, "stopped") is not None
    finally:
        psutil.Process(pid).resume()
    assert 0 < status.memory_peak_bytes <= status.memory_bytes
    check(shared, "stopped", images)


def test_a_view_that_fails_does_not_touch_the_run(shared: DaemonProcess) -> None:
    images = images_of(20)
    (shared.data / "blocked.null").write_text("in the way")
    with acqstream.create("blocked", endpoint=shared.endpoint, mirrors=["null"]) as run:
        put(run, images)
        mirror = wait_for(shared, "blocked", state="failed")
        assert "blocked.null already exists" in mirror.reason
    assert run.receipt is not None
    assert run.receipt.complete
    assert run.receipt.mirrors["null"].startswith("failed ")
    assert unstalled(run.warnings) == []
    assert "blocked.null already exists" in shared.output()
    assert (shared.data / "blocked.null").read_text() == "in the way"


def test_a_finished_dataset_is_caught_up_from_the_command_line(
    shared: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    images = images_of(30)
    with acqstream.create("later", endpoint=shared.endpoint) as run:
        put(run, images, interval_s=0.0)
    assert run.receipt is not None
    assert run.receipt.mirrors == {}
    assert command("mirror", shared.data / "later", "--to", "null", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["frames"], told["of"], told["result"]) == ("complete", 30, 30, sums_of(images))
    check(shared, "later", images)


def test_the_command_line_follows_a_run(shared: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    images = images_of(60)
    run = acqstream.create("followed", endpoint=shared.endpoint)
    put(run, images[:10])
    until(lambda: run.progress.published == 10, "the first frames are published")
    with pytest.raises(SystemExit) as end:
        main(["mirror", str(shared.data / "followed"), "--to", "null"])
    assert not end.value.code
    assert "waiting, 10 frames" in capsys.readouterr().out
    put(run, images[10:], 10)
    run.close()
    assert command("mirror", shared.data / "followed", "--to", "null", "--follow") == 0
    assert "complete, 60 frames" in capsys.readouterr().out
    check(shared, "followed", images)


def test_without_mirrors_there_is_no_process(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", prelude=DYING_VIEWS) as daemon:
        with acqstream.create("plain", endpoint=daemon.endpoint) as run:
            put(run, images_of(5))
        assert views_of(daemon) == ViewProcessStatus(memory="shared")
        images = images_of(30)
        with acqstream.create("given-up", endpoint=daemon.endpoint, mirrors=["null"]) as run:
            put(run, images)
            mirror = wait_for(daemon, "given-up", state="failed")
            assert "died 5 times (exit code 3)" in mirror.reason
            assert views_of(daemon).pid is None
        assert run.receipt is not None
        assert run.receipt.complete
        assert "died 5 times" in run.receipt.mirrors["null"]


def test_over_two_ends_of_the_daemon(tmp_path: Path) -> None:
    images = images_of(150)
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["null"], patience_s=20) as run:
            for first, end in ((0, daemon.kill), (50, daemon.stop)):
                put(run, images[first : first + 50], first)
                wait_for(daemon, "cells", cursor=first + 50)
                child = psutil.Process(child_of(daemon))
                end()
                child.wait(WAIT_S)
                daemon.start()
                until(lambda: fetch_status(daemon.endpoint).acquisitions, "the producer is back")
            put(run, images[100:], 100)
        assert run.receipt is not None
        assert run.receipt.complete
        check(daemon, "cells", images)


def test_what_was_not_caught_up_goes_on_with_the_next_daemon(tmp_path: Path) -> None:
    images = images_of(50)
    with DaemonProcess(tmp_path / "data") as daemon:
        run = acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["null"])
        child = child_of(daemon)
        psutil.Process(child).suspend()
        put(run, images, interval_s=0.0)
        assert run.close().complete
        psutil.Process(child).kill()
        daemon.kill()
        assert not (daemon.data / "cells.null" / "view.json").exists()
        daemon.start()
        check(daemon, "cells", images)
