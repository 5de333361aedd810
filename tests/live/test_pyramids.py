"""A tiled acquisition through the daemon: its levels are made beside it, whatever dies."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import psutil
import pytest

import acqstream
from acqstream.pipeline.views.checkpoint import read_checkpoint, view_folder
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import until
from tests.pipeline.views.pyramid_cases import check_levels, grid, shuffled, tiles_of

OVERLAP = (4, 6)


def is_complete(folder: Path) -> bool:
    saved = read_checkpoint(view_folder(folder, "pyramid"))
    return saved is not None and saved.is_complete


def kill_views(daemon: DaemonProcess) -> None:
    for child in psutil.Process(daemon.pid).children():
        os.kill(child.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["views", "daemon"])
def test_levels_of_a_tiled_acquisition(tmp_path: Path, dies: str) -> None:
    chance = random.Random(dies)
    frames = tiles_of(shuffled(grid(5, 6, top=-2), 2), (40, 50), others=[{"channel": "A"}, {"channel": "B"}])
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, tiles={"overlap": OVERLAP}) as run:
            for frame in frames:
                run.put(frame.image, frame.axes)
                if dies == "views" and chance.random() < 0.1:
                    kill_views(daemon)
        assert run.receipt is not None
        assert run.receipt.complete
        if dies == "daemon":
            daemon.kill()
            daemon.start()
        folder = daemon.data / "cells"
        until(lambda: is_complete(folder), "the pyramid is complete")
        check_levels(folder, frames, 3, OVERLAP)
