"""Mirrors of tiled runs without declared rows and columns, through a real daemon."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.cli.output import ExitCode
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.mirrors.run_end import wait_for_end
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import unstalled
from tests.live.test_mirror_endings import verb
from tests.mirrors.test_open_mosaic import serpentine, spiral
from tests.oracles.webknossos_package import PYTHON, needs_environment
from tests.waiting import HANG_S, until

SHAPE, OVERLAP = (120, 150), (20, 30)
SHOWN = (SHAPE[0] - OVERLAP[0], SHAPE[1] - OVERLAP[1])
SUMMARY = {"PixelSizeUm": 0.5}
PROGRAM = Path(__file__).with_name("zarr_picture_program.py")
OME_ZARR: dict[str, Any] = {"format": "ome-zarr", "chunks": [1, 64, 64], "levels": 3}


def picture(top: int, left: int, height: int, width: int) -> NDArray[Any]:
    """A part of the scanned sample, without zeros, from a pixel of the tile at row 0 and column 0."""
    return pattern.window(top, left, (height, width), "uint16") | 1


def put(run: Run, row: int, column: int) -> None:
    """A tile, whose shown part begins at (row, column) times the size of that."""
    top, left = row * SHOWN[0] - OVERLAP[0] // 2, column * SHOWN[1] - OVERLAP[1] // 2
    run.put(picture(top, left, *SHAPE), row=row, column=column)


def right_of(cells: Any) -> NDArray[Any]:
    """All that the cells cover; they are a rectangle."""
    rows, columns = ([cell[side] for cell in cells] for side in (0, 1))
    height, width = (max(rows) - min(rows) + 1) * SHOWN[0], (max(columns) - min(columns) + 1) * SHOWN[1]
    return picture(min(rows) * SHOWN[0], min(columns) * SHOWN[1], height, width)


def taken(daemon: DaemonProcess, name: str) -> int:
    """Frames that a mirror of the only run has; -1 while the daemon does not know the run."""
    found = [one.mirrors[name].cursor for one in fetch_status(daemon.endpoint).acquisitions if name in one.mirrors]
    return found[0] if found else -1


class ZarrPolls:
    """zarr-python in a process of its own. shapes are all that it has seen."""

    def __init__(self, folder: Path, right: Path) -> None:
        command = [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM), str(folder), str(right)]
        self.shapes: set[tuple[int, ...]] = set()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def look(self) -> set[tuple[int, ...]]:
        """Open and read the array ten times."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write("10\n")
        asked.flush()
        told = json.loads(answers.readline())
        assert told["wrong"] == []
        self.shapes.update(map(tuple, told["shapes"]))
        return self.shapes

    def close(self) -> None:
        self._process.communicate(timeout=HANG_S)


@needs_environment("zarr 3")
@pytest.mark.parametrize("compression", ["blosc", "none"])
def test_zarr_python_sees_a_single_picture_when_it_is_complete(tmp_path: Path, compression: str) -> None:
    cells = serpentine(4, 5)
    right = right_of(cells)
    np.save(tmp_path / "right.npy", right)
    mirrors: Any = [{**OME_ZARR, "compression": compression}, "n5"]
    options: dict[str, Any] = {"tiles": {"overlap": OVERLAP}, "levels": 0, "mirrors": mirrors, "summary": SUMMARY}
    with DaemonProcess(tmp_path / "data") as daemon, contextlib.ExitStack() as ends:
        polls = ZarrPolls(daemon.data / "scan.ome.zarr" / "0", tmp_path / "right.npy")
        ends.callback(polls.close)
        with acqstream.create("scan", endpoint=daemon.endpoint, **options) as run:
            for row, column in cells:
                put(run, row, column)
                polls.look()
            until(lambda: taken(daemon, "ome-zarr") == len(cells), "all are mirrored")
            assert not any(map(all, polls.look())), "nothing is shown in part"
        results = run.wait_for_mirrors(HANG_S)
        shown = {shape for shape in polls.look() if all(shape)}
    assert [(one.name, one.state, one.reason) for one in results] == [(n, "complete", "") for n in ("ome-zarr", "n5")]
    assert unstalled(run.warnings) == []
    assert shown == {right.shape}
    for suffix in ("n5", "ome.zarr"):
        with acqstream.open(tmp_path / "data" / f"scan.{suffix}") as mirror:
            assert np.array_equal(mirror.levels[0].read().squeeze(), right)
    assert verb("verify", str(tmp_path / "data" / "scan.ome.zarr")) == ExitCode.OK


def test_a_spiral_has_its_mirrors_made_again(tmp_path: Path) -> None:
    cells = spiral(9)
    right = right_of(cells)
    why = "frame 4 is a tile of column -1, and the picture begins at column 0"
    with DaemonProcess(tmp_path / "data") as daemon:
        mirrors: Any = [OME_ZARR, "n5", "precomputed"]
        options: dict[str, Any] = {"tiles": {"overlap": OVERLAP}, "levels": 0, "summary": SUMMARY}
        with acqstream.create("scan", endpoint=daemon.endpoint, mirrors=mirrors, **options) as run:
            for number, (row, column) in enumerate(cells):
                put(run, row, column)
                if number == 3:
                    until(lambda: taken(daemon, "n5") == taken(daemon, "ome-zarr") == 4, "four are mirrored")
            until(lambda: sum(one.code == "mirror_restarts" for one in run.warnings) == 2, "both are warned of")
            text = next(one.text for one in run.warnings if one.code == "mirror_restarts" and "'n5'" in one.text)
            assert text == f"mirror 'n5' is made again when the run ends: {why}"
            (status,) = fetch_status(daemon.endpoint).acquisitions
            assert (status.mirrors["n5"].state, status.mirrors["n5"].reason) == ("held", why)
            with pytest.raises(acqstream.WaitTimeout):
                run.wait_for_mirrors(0.5)
            end = wait_for_end(Path(run.path), timeout_s=0.5)
            assert {one.name: one.reason for one in end.mirrors}["n5"] == why
        assert run.receipt is not None
        assert run.receipt.mirrors["n5"] == f"under way: 4 of 9 frames; {why}"
        results = {one.name: one for one in run.wait_for_mirrors(HANG_S)}
        assert verb("wait", run.path) == ExitCode.OK
    assert [results[name].state for name in ("ome-zarr", "n5", "precomputed")] == ["complete"] * 3
    assert results["n5"].reason == results["ome-zarr"].reason == f"restarted: {why}"
    codes = [one.code for one in unstalled(run.warnings)]
    assert sorted(codes) == ["mirror_restarts", "mirror_restarts", "mirror_waits"]
    for suffix in ("n5", "ome.zarr", "precomputed"):
        with acqstream.open(tmp_path / "data" / f"scan.{suffix}") as mirror:
            assert np.array_equal(mirror.levels[0].read().squeeze(), right), suffix
    assert verb("verify", run.path) == ExitCode.OK


def test_a_daemon_that_is_killed_comes_to_the_same_end(tmp_path: Path) -> None:
    cells = spiral(16)
    daemon = DaemonProcess(tmp_path / "data").start()
    tiles = {"overlap": OVERLAP, "wait_s": 2}
    with acqstream.create(
        "scan", endpoint=daemon.endpoint, tiles=tiles, levels=0, mirrors=[OME_ZARR], patience_s=30
    ) as run:
        for number, (row, column) in enumerate(cells):
            put(run, row, column)
            if number == 3:
                until(lambda: taken(daemon, "ome-zarr") == 4, "four are mirrored")
            if number in (2, 7, 11):
                until(lambda n=number: run.progress.published > n, "it is published")  # type: ignore[misc]
                daemon.kill()
                daemon.start()
    (result,) = run.wait_for_mirrors(HANG_S)
    assert (result.state, result.frames) == ("complete", 16)
    assert "restarted: " in result.reason
    assert daemon.stop() == 0
    with acqstream.open(tmp_path / "data" / "scan.ome.zarr") as mirror:
        assert np.array_equal(mirror.levels[0].read().squeeze(), right_of(cells))
