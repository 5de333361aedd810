"""How mirrors of a real daemon ended, by the dataset's folder, `acqstream wait` and `run.wait_for_mirrors`."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.cli.output import ExitCode
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.integrity.verify import verify
from acqstream.mirrors.run_end import DatasetEnd, mirror_results, wait_for_end
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import mirror
from tests.live.stored import harmful, image_of, unstalled
from tests.live.test_mirrors import PLAIN
from tests.waiting import HANG_S, until

SHAPE = (64, 64)
COUNT = 24
NEVER_S = 1e6  # no test takes so long
WAIT_S = 55.0  # a test that hangs is ended after this
RECORD = "acqstream.mirror.n5.json"


def put(run: Run, first: int = 0, stop: int = COUNT) -> None:
    for number in range(first, stop):
        run.put(image_of(number, SHAPE), time=number)


def record_of(dataset: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dataset / RECORD).read_bytes())
    return content


@contextlib.contextmanager
def views_stopped(daemon: DaemonProcess) -> Iterator[None]:
    """The process of the views is alive, and does nothing."""
    pid: int = until(lambda: fetch_status(daemon.endpoint).views.pid, "the process of the views runs")
    process = psutil.Process(pid)
    process.suspend()
    try:
        if sys.platform != "win32":  # there all threads have stopped when the call returns
            until(lambda: process.status() == psutil.STATUS_STOPPED, "the process of the views stands still")
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):  # it died with its daemon
            process.resume()


@contextlib.contextmanager
def recorded(daemon: DaemonProcess, name: str) -> Iterator[Run]:
    """A run that has ended, with a mirror that has not: no frame of it was taken."""
    how: Any = {"endpoint": daemon.endpoint, "patience_s": WAIT_S}
    with acqstream.create("first", mirrors=["null"], **how):  # has the process of the views started
        with views_stopped(daemon):
            with acqstream.create(name, mirrors=[PLAIN], **how) as run:
                put(run)
            yield run


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def waiting(pool: ThreadPoolExecutor, path: Path, **more: Any) -> Future[DatasetEnd]:
    """`wait_for_end` in a thread, once it has looked."""
    looks: list[DatasetEnd] = []
    future = pool.submit(wait_for_end, path, timeout_s=HANG_S, on_look=looks.append, **more)
    until(lambda: looks or future.done(), "it has looked")
    return future


def test_a_mirror_that_is_complete_after_the_run(
    daemon: DaemonProcess, pool: ThreadPoolExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = daemon.data / "cells"
    with recorded(daemon, "cells") as run:
        waited = waiting(pool, dataset)
        assert run.receipt is not None
        assert run.receipt.mirrors == {"n5": f"under way: 0 of {COUNT} frames"}
        receipt = (dataset / "receipt.json").read_bytes()
        assert not (dataset / RECORD).exists()
        assert wait_for_end(dataset, timeout_s=0.0).outcome == "timeout"
        with pytest.raises(acqstream.WaitTimeout, match="the mirrors of cells have not ended within"):
            run.wait_for_mirrors(timeout_s=0.01)
        assert not run.mirrors
    (result,) = run.wait_for_mirrors(HANG_S)
    assert (result.name, result.state, result.frames, result.published) == ("n5", "complete", COUNT, COUNT)
    assert run.mirrors == (result,)
    until((dataset / RECORD).exists, "it is recorded")  # the mirror's own checkpoint comes before that
    (result,) = mirror_results(dataset)
    end = waited.result()
    assert end.ok
    assert [(one.name, one.state, one.frames) for one in end.mirrors] == [("n5", "complete", COUNT)]
    assert (end.stored, end.missing) == (COUNT, 0)
    assert (dataset / "receipt.json").read_bytes() == receipt
    with acqstream.open(dataset) as found:
        assert found.mirrors == {result.name: result}
    proof = verify(dataset)
    assert proof.ok
    assert mirror_results(dataset) == (result,)
    assert proof.notes == []
    with acqstream.open(dataset / result.path) as mirrored:
        assert np.array_equal(
            np.squeeze(mirrored.levels[0].read()), np.stack([image_of(n, SHAPE) for n in range(COUNT)])
        )
    assert verb("info", str(dataset)) == 0
    assert f"mirror  n5: complete, {COUNT} frames" in capsys.readouterr().out


def verb(*arguments: str) -> int:

    return command(*list(arguments))


def test_a_mirror_that_fails_and_is_made_by_hand(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, place = daemon.data / "cells", daemon.data / "cells.n5"
    place.mkdir()
    (place / "mine").write_text("something else")
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN]) as run:
        put(run)
    (result,) = run.wait_for_mirrors(HANG_S)
    assert result.state == "failed"
    assert "is not a mirror of cells" in result.reason
    assert verb("wait", str(dataset)) == ExitCode.INCOMPLETE
    assert f"n5  failed, 0 of {COUNT} frames: {result.reason}" in " ".join(capsys.readouterr().out.split("\n"))
    proof = verify(dataset)
    assert proof.ok
    assert [one.state for one in mirror_results(dataset)] == ["failed"]
    shutil.rmtree(place)
    assert mirror(str(dataset), "--to", "n5") == 0
    assert verb("wait", str(dataset)) == ExitCode.OK
    (result,) = run.wait_for_mirrors(HANG_S)
    assert (result.state, result.frames, result.reason) == ("complete", COUNT, "")


def test_the_daemon_is_killed_before_the_mirror_has_ended(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    dataset = daemon.data / "cells"
    try:
        with recorded(daemon, "cells") as run:
            waited = waiting(pool, dataset, patience_s=NEVER_S)
            daemon.kill()
            end = wait_for_end(dataset, patience_s=0.0)
            assert (end.outcome, end.complete, end.state) == ("abandoned", True, "COMPLETE")
            (mirrored,) = end.mirrors
            assert (mirrored.state, "no process makes it" in mirrored.reason) == ("unfinished", True)
            told = pool.submit(run.wait_for_mirrors, WAIT_S)
            daemon.start()
            (result,) = told.result()
            assert (result.state, result.frames) == ("complete", COUNT)
            assert waited.result().ok
    finally:
        daemon.kill_if_running()


def test_the_daemon_is_killed_before_the_mirror_s_end_is_recorded(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        dataset = daemon.data / "cells"
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN]) as run:
            put(run)
        (result,) = run.wait_for_mirrors(HANG_S)
        daemon.kill()
        (dataset / RECORD).unlink(missing_ok=True)  # the daemon may have died before it: the checkpoint comes first
        end = wait_for_end(dataset, patience_s=0.0)
        assert end.ok  # by the mirror's own checkpoint
        assert (end.mirrors[0].frames, end.mirrors[0].changed_at) == (COUNT, "")
        daemon.start()
        until((dataset / RECORD).exists, "it is recorded")
        again = record_of(dataset)
        assert (again["state"], again["frames"], again["path"]) == ("complete", COUNT, result.path)


def test_a_run_whose_daemon_died_is_not_waited_for_without_end(
    tmp_path: Path, pool: ThreadPoolExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        run = acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN], patience_s=NEVER_S)
        put(run, 0, 4)
        waited = waiting(pool, daemon.data / "cells", patience_s=NEVER_S)
        daemon.kill()
        path = str(daemon.data / "cells")
        assert verb("wait", path, "--patience", "0", "--json") == ExitCode.UNAVAILABLE
        told = json.loads(capsys.readouterr().out)
        assert (told["outcome"], told["state"], told["ok"]) == ("abandoned", "RUNNING", False)
        assert verb("wait", path, "--patience", "0") == ExitCode.UNAVAILABLE
        assert "no process continues it; start the daemon" in capsys.readouterr().out
        daemon.start()
        put(run, 4)
        run.close()
        end = waited.result()
        assert end.ok
        assert end.stored == COUNT


def test_a_run_that_is_resumed_has_its_mirrors_recorded_anew(daemon: DaemonProcess) -> None:
    dataset = daemon.data / "cells"
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN], patience_s=60) as run:
        put(run, 0, 10)
        until(lambda: run.progress.durable == 10, "all frames are durable")
        assert daemon.stop() == 0
        daemon.start()
        until(lambda: run.progress.published == 10 and daemon_has(daemon, "cells"), "the producer is back")
        with views_stopped(daemon):
            assert [one.state for one in mirror_results(dataset)] == ["running"]
            put(run, 10)
    (result,) = run.wait_for_mirrors(HANG_S)
    assert (result.state, result.frames) == ("complete", COUNT)


def daemon_has(daemon: DaemonProcess, name: str) -> bool:
    return any(one.name == name for one in fetch_status(daemon.endpoint).acquisitions)


def test_a_producer_that_is_lost_leaves_an_interrupted_mirror(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.0) as daemon:
        dataset = daemon.data / "cells"
        run = acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN])
        put(run, 0, 10)
        until(lambda: run.progress.durable == 10, "all frames are durable")
        run._connection.stop()
        run._closing.abandon()
        until((dataset / RECORD).exists, "its mirror has ended")
        assert record_of(dataset)["state"] == "interrupted"
        end = wait_for_end(dataset, patience_s=0.0)
        assert (end.outcome, end.ok) == ("interrupted", False)
        with acqstream.create("cells", endpoint=daemon.endpoint, resume=True, mirrors=[PLAIN]) as again:
            assert not (dataset / RECORD).exists()
            put(again, 10)
        (result,) = again.wait_for_mirrors(HANG_S)
        assert (result.state, result.frames) == ("complete", COUNT)
        assert wait_for_end(dataset, timeout_s=HANG_S).ok


def test_no_daemon_that_answers(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[PLAIN]) as run:
            put(run)
    run._state.settings = replace(run._state.settings, patience_s=0.5)
    with pytest.raises(acqstream.DaemonUnavailable, match="the mirrors of cells had not ended"):
        run.wait_for_mirrors(HANG_S)


def test_a_dataset_that_is_gone(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=[]) as run:
        put(run)
    assert run.wait_for_mirrors(HANG_S) == ()
    shutil.rmtree(daemon.data / "cells")
    with pytest.raises(acqstream.ProtocolError, match="is not in this data directory as 'cells'") as caught:
        run.wait_for_mirrors(HANG_S)
    assert caught.value.code == "unknown_ds"


@pytest.mark.parametrize("levels", ["auto", 0])
def test_mirrors_of_the_configuration_are_made_of_a_tiled_run(tmp_path: Path, levels: Any) -> None:
    """Beside levels of the tiles: the picture of four planned tiles, and that of one without a plan."""
    tiles: dict[str, Any] = {"tiles": {"overlap": (4, 4)}, "levels": levels}
    right = np.concatenate([image_of(column, SHAPE)[2:-2, 2:-2] for column in range(4)], axis=1)
    with DaemonProcess(tmp_path / "data", mirrors=["n5", "wkw"]) as daemon:
        planned = [{"name": "row", "size": 1}, {"name": "column", "size": 4}]
        with acqstream.create("scan", endpoint=daemon.endpoint, axes=planned, **tiles) as run:
            for column in range(4):
                run.put(image_of(column, SHAPE), row=0, column=column)
        with acqstream.create("free", endpoint=daemon.endpoint, **tiles) as free:
            for column in range(4):
                free.put(image_of(column, SHAPE), row=0, column=column)
        names = ["n5", "wkw"] if levels == 0 else ["n5", "pyramid", "wkw"]
        for one in (run, free):
            results = one.wait_for_mirrors(HANG_S)
            assert sorted((result.name, result.state) for result in results) == [(name, "complete") for name in names]
        with acqstream.create("plain", endpoint=daemon.endpoint, mirrors=[], **tiles) as plain:
            plain.put(image_of(0, SHAPE), row=0, column=0)
        assert {one.name for one in plain.wait_for_mirrors(HANG_S)} == {*names} - {"n5", "wkw"}
        assert harmful(run.warnings) == harmful(free.warnings) == harmful(plain.warnings) == []
    for name in ("scan", "free"):
        assert verb("wait", str(daemon.data / name)) == ExitCode.OK
        for suffix in ("n5", "wkw"):
            with acqstream.open(daemon.data / f"{name}.{suffix}") as mirror:
                assert np.array_equal(mirror.levels[0].read().reshape(right.shape), right)


@pytest.mark.parametrize("name", ["n5", "ome-zarr"])
def test_tiles_are_mirrored_as_images_on_request(tmp_path: Path, name: str) -> None:
    """Without a plan, in a spiral: rows and columns below those of the first tile are images like others."""
    mirrors = [{"format": name, "tiles": "separate", "levels": 2}]
    spiral = [(0, 0), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1)]
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create(
            "scan", endpoint=daemon.endpoint, tiles={"overlap": (4, 4)}, levels=0, mirrors=mirrors
        ) as run:
            for number, (row, column) in enumerate(spiral):
                place = {"XPositionUm": 10.0 * column, "YPositionUm": 10.0 * row, "PixelSizeUm": 0.5}
                run.put(image_of(number, SHAPE), row=row, column=column, meta=place)
        assert [(one.name, one.state) for one in run.wait_for_mirrors(HANG_S)] == [(name, "complete")]
        assert unstalled(run.warnings) == []
    assert verb("wait", str(daemon.data / "scan")) == ExitCode.OK
    suffix = {"n5": "n5", "ome-zarr": "ome.zarr"}[name]
    assert verb("verify", str(daemon.data / f"scan.{suffix}")) == ExitCode.OK
    with acqstream.open(daemon.data / f"scan.{suffix}") as mirror:
        level = mirror.levels[0]
        assert (level.axes, level.shape) == (("row", "column", "y", "x"), (2, 3, *SHAPE))
        for number, (row, column) in enumerate(spiral):
            assert np.array_equal(level.read((row + 1, column + 1)), image_of(number, SHAPE))
            assert level.place_of(row=row, column=column) == (0.0, 10.0 * row - 15.75, 10.0 * column - 15.75)


def test_a_tiled_run_with_a_mirror_goes_on(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", mirrors=["n5"], grace_s=0.0) as daemon:
        planned = [{"name": "row", "size": 1}, {"name": "column", "size": 2}]
        run = acqstream.create("scan", endpoint=daemon.endpoint, tiles={"overlap": (4, 4)}, levels=0, axes=planned)
        run.put(image_of(0, SHAPE), row=0, column=0)
        until(lambda: run.progress.durable == 1, "the tile is durable")
        run._connection.stop()
        run._closing.abandon()
        until(lambda: not daemon_has(daemon, "scan"), "the producer is given up")
        with acqstream.create("scan", endpoint=daemon.endpoint, resume=True) as again:
            again.put(image_of(1, SHAPE), row=0, column=1)
        assert [one.state for one in again.wait_for_mirrors(HANG_S)] == ["complete"]
    assert harmful(again.warnings) == []
