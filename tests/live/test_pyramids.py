"""A tiled acquisition through the daemon: its levels are made beside it, whatever dies."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import DatasetError
from acqstream.integrity.verify import verify
from acqstream.model.status import ViewStatus
from acqstream.views.checkpoint import read_checkpoint, view_folder
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import Frame
from tests.views.pyramid_cases import check_levels, grid, shuffled, tiles_of
from tests.waiting import until

OVERLAP = (4, 6)


def is_complete(folder: Path) -> bool:
    saved = read_checkpoint(view_folder(folder, "pyramid"))
    return saved is not None and saved.is_complete


def kill_views(daemon: DaemonProcess) -> None:
    for child in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # killed before, and waited for by the daemon meanwhile
            child.kill()


@pytest.mark.promise("pyramids")
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


def test_a_short_scan_is_followed_in_its_levels_at_once(tmp_path: Path) -> None:
    frames = tiles_of(grid(2, 2))
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, tiles={"overlap": (0, 0)}) as run:
            for frame in frames:
                run.put(frame.image, frame.axes)
        with acqstream.open(run.path) as ds:  # the views' process has hardly begun
            assert [key["row"] for key in ds.follow(timeout_s=60, level=1)] == [0]
            ds.refresh()
            assert (ds.complete, len(ds.levels)) == (True, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dtype"), [((80, 50), "<u2"), ((40, 50), "|u1")])
def test_a_tile_unlike_the_others_ends_the_levels_and_nothing_else(
    tmp_path: Path, shape: tuple[int, int], dtype: str
) -> None:
    others = tiles_of([(2, 0)], shape, dtype, first=4)
    frames = [*tiles_of(grid(2, 2), (40, 50)), *others, *tiles_of([(2, 1)], (40, 50), first=5)]
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, tiles={"overlap": OVERLAP}) as run:
            for frame in frames:
                run.put(frame.image, frame.axes)
            until(lambda: reasons(daemon), "the view has failed")
            (reason,) = reasons(daemon)
            assert reason.startswith(f"after 4 frames: frame 4 is {shape[0]} x {shape[1]} {dtype}")
            assert reason.endswith("those before are 40 x 50 <u2 (16 bits, 1 samples): tiles of one pyramid are alike")
        assert run.receipt is not None
        assert run.receipt.complete
        assert run.receipt.mirrors == {"pyramid": f"failed {reason}"}
        with acqstream.open(run.path) as ds:
            for frame in frames:
                assert np.array_equal(ds.read_frame(frame.axes), frame.image)
            with pytest.raises(
                DatasetError, match="level 1 is incomplete: the view that makes it failed after 4 frames"
            ):
                list(ds.follow(level=1))
        assert verify(Path(run.path)).ok


@pytest.mark.slow
def test_tiles_in_shared_memory_are_halved_where_they_are(tmp_path: Path) -> None:
    scan = tiles_of(grid(4, 4), (400, 350))

    def mirror() -> ViewStatus:
        found = fetch_status(daemon.endpoint).views.mirrors
        return found[0] if found else ViewStatus()

    frames: list[Frame] = []
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, transport="shm", tiles={"overlap": (0, 0)}) as run:
            while mirror().from_memory < 10:
                assert len(frames) < 2000
                for frame in scan:
                    axes = {**frame.axes, "time": len(frames) // 16}
                    run.put(frame.image, axes)
                    frames.append(replace(frame, header=frame.header._replace(axes=axes)))
                until(lambda: mirror().cursor == len(frames), "all frames are taken")
        until(lambda: is_complete(daemon.data / "cells"), "the pyramid is complete")
        check_levels(daemon.data / "cells", frames, 2)


def reasons(daemon: DaemonProcess) -> list[str]:
    mirrors = fetch_status(daemon.endpoint).views.mirrors
    return [one.reason for one in mirrors if one.state == "failed"]
