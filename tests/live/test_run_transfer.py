"""A daemon's runs are moved and removed beside it: never one that it records."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import acqstream
from acqstream.dataset.run_list import list_runs
from acqstream.dataset.run_transfer import copy_run, move_run, remove_run
from acqstream.errors import DatasetLocked
from acqstream.integrity.verify import verify
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.waiting import HANG_S, until


def test_a_run_is_refused_while_it_is_recorded(daemon: DaemonProcess, tmp_path: Path) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5"]) as run:
        run.put(image_of(0, (64, 64)), time=0)
        dataset = Path(run.path)
        until(lambda: next(iter(list_runs(dataset.parent, cache=tmp_path / "cache"))).frames, "a frame is listed")
        for act in (lambda: move_run(dataset, tmp_path / "cells"), lambda: copy_run(dataset, tmp_path / "cells")):
            with pytest.raises(DatasetLocked, match="being recorded"):
                act()
        with pytest.raises(DatasetLocked, match="being recorded"):
            remove_run(dataset, is_forced=True)
    run.wait_for_mirrors(HANG_S)
    move_run(dataset, tmp_path / "cells")
    assert verify(tmp_path / "cells").ok
    assert list_runs(dataset.parent, cache=tmp_path / "cache") == []
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5"]) as again:  # the name is free
        again.put(image_of(1, (64, 64)), time=0)
    assert all(mirror.complete for mirror in again.wait_for_mirrors(HANG_S))
    remove_run(dataset)
    assert [path.name for path in dataset.parent.iterdir() if path.name.startswith("cells")] == []


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory")
def test_a_run_moves_between_two_file_systems_and_back(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["n5", "ome-zarr"]) as run:
        for time in range(5):
            run.put(image_of(time, (64, 64)), time=time)
        run.note("drug added")
    assert all(mirror.complete for mirror in run.wait_for_mirrors(HANG_S))
    dataset = Path(run.path)
    parts = sorted(path.name for path in dataset.parent.iterdir() if path.name.startswith("cells"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        assert os.stat(memory).st_dev != os.stat(dataset).st_dev
        for source, target in ((dataset, Path(memory) / "cells"), (Path(memory) / "cells", dataset)):
            move_run(source, target)
            assert not source.exists()
            assert sorted(path.name for path in target.parent.iterdir() if path.name.startswith("cells")) == parts
            assert verify(target).ok
            with acqstream.open(target) as moved:
                assert set(moved.mirrors) == {"n5", "ome-zarr"}
                assert [note.text for note in moved.notes] == ["drug added"]
                assert (moved.read_frame(time=4) == image_of(4, (64, 64))).all()
