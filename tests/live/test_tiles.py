"""Tiles through a daemon: stitched by an independent reader they are the sample that was scanned."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import acqstream
from acqstream.client.run import Run
from acqstream.errors import AcquisitionRefused, FrameRefused
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.integrity.verify import verify
from acqstream.simulate import pattern
from acqstream.simulate.axes_counter import TileScan
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of, unstalled
from tests.log.read_back import open_pyramid
from tests.waiting import until

SHAPE = (300, 400)  # large enough for a group of its own
SCAN = TileScan(3, 4, (32, 50), snake=True)


def put(run: Run, number: int) -> None:
    row, column = SCAN.cell(number)
    image = pattern.window(*SCAN.origin((row, column), SHAPE), SHAPE, "uint16", picture=number // SCAN.count)
    run.put(image, row=row - 1, column=column - 2, time=number // SCAN.count)


def check(path: Path | str, scans: int) -> None:
    """The whole canvas, as viewers show it: half of the overlap cut off all around."""
    y, x = SCAN.overlap
    height, width = SCAN.rows * (SHAPE[0] - y), SCAN.columns * (SHAPE[1] - x)
    with open_pyramid(path) as dataset, dask.config.set(scheduler="synchronous"):
        assert dataset.overlap.tolist() == [y, x]
        for time in range(scans):
            (canvas,) = np.asarray(dataset.as_array(stitched=True, time=time))
            expected = pattern.window(y // 2, x // 2, (height, width), "uint16", picture=time)
            assert np.array_equal(canvas, expected)
    with acqstream.open(path) as dataset:
        assert len(list(dataset.keys())) == scans * SCAN.count
    result = verify(Path(path))
    assert result.ok
    assert result.own_checksums == 0


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_scan_outlives_its_daemon(tmp_path: Path, transport: str) -> None:
    count = 3 * SCAN.count
    daemon = DaemonProcess(tmp_path / "data").start()
    with acqstream.create(
        "cells",
        endpoint=daemon.endpoint,
        transport=transport,  # type: ignore[arg-type]
        tiles={"overlap": SCAN.overlap, "wait_s": 2},
        levels=0,
        frame=(SHAPE, "uint16"),
        patience_s=30,
    ) as run:
        for number in range(count):
            if number in (7, 20):
                until(lambda: run.progress.published >= 5, "frames are published")
                daemon.kill()
                daemon.start()
            put(run, number)
    assert daemon.stop() == 0
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.missing) == (count, ())
    folder = Path(run.path)
    assert state_of(folder)["request"]["tiles"] == {"overlap": [32, 50], "levels": 0, "wait_s": 2.0}
    assert not list(folder.glob("*.tif"))
    assert len(list((folder / FULL_RESOLUTION).glob("*.tif"))) > 1
    check(folder, 3)


def test_a_producer_started_again_goes_on_with_the_tiles_of_the_beginning(daemon: DaemonProcess) -> None:
    options: dict[str, Any] = {"endpoint": daemon.endpoint, "resume": True, "levels": 0, "patience_s": 2}
    with (
        contextlib.suppress(KeyboardInterrupt),
        acqstream.create("cells", tiles={"overlap": (32, 50)}, **options) as run,
    ):
        for number in range(5):
            put(run, number)
        daemon.stop()
        raise KeyboardInterrupt
    daemon.start()
    with acqstream.create("cells", tiles={"overlap": (1, 1)}, **options) as run:
        for number in range(run.next, SCAN.count):
            put(run, number)
    check(run.path, 1)


def test_a_tile_again_replaces_the_first_unless_that_is_an_error(shared_daemon: DaemonProcess) -> None:
    images = [np.full((20, 30), value, np.uint16) for value in (1, 2)]
    tiles = {"overlap": (4, 4)}
    with acqstream.create("again", endpoint=shared_daemon.endpoint, tiles=tiles, levels=0) as run:
        for image in images:
            run.put(image, row=0, column=0)
    with acqstream.open(run.path) as dataset:
        assert np.array_equal(dataset.read_frame(row=0, column=0), images[1])
    run = acqstream.create("once", endpoint=shared_daemon.endpoint, tiles=tiles, levels=0, duplicates="error")
    with pytest.raises(FrameRefused, match="stored already"), run:
        for image in images:
            run.put(image, row=0, column=0)


def test_frames_that_are_no_tiles_end_the_run_by_name(shared_daemon: DaemonProcess) -> None:
    run = acqstream.create("no-tile", endpoint=shared_daemon.endpoint, tiles={"overlap": (4, 4)}, levels=0)
    with pytest.raises(FrameRefused, match="axis 'column'") as info, run:
        run.put(np.zeros((20, 30), np.uint16), row=0, column=0)
        run.put(np.zeros((20, 30), np.uint16), row=1)
    assert (info.value.code, info.value.number) == ("tile_axes", 1)


def test_frames_no_larger_than_the_overlap_are_refused_before_anything_is_made(shared_daemon: DaemonProcess) -> None:
    with pytest.raises((AcquisitionRefused, acqstream.AcqStreamError), match="must be larger than the overlap"):
        acqstream.create(
            "small", endpoint=shared_daemon.endpoint, tiles={"overlap": (4, 30)}, frame=((20, 30), "uint16")
        )
    assert not (shared_daemon.data / "small").exists()


def test_an_overlap_in_one_direction_only_is_told_to_the_producer(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("one-way", endpoint=shared_daemon.endpoint, tiles={"overlap": (0, 4)}, levels=0) as run:
        run.put(np.zeros((20, 30), np.uint16), row=0, column=0)
    assert [warning.code for warning in unstalled(run.warnings)] == ["overlap_one_way"]
