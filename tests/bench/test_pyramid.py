from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings
from acqstream.bench.producer import wait_for_view
from acqstream.errors import AcquisitionFailed
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.checkpoint import Checkpoint, view_folder, write_checkpoint
from bench.pyramid import PyramidPlan, run_pyramid_benchmark


def test_levels_that_fail_end_it(tmp_path: Path) -> None:
    folder = view_folder(tmp_path / "cells", "pyramid")
    folder.mkdir()
    write_checkpoint(LocalDisk(), folder, Checkpoint("pyramid", "", 4, None, False, {}, "after 4 frames: no such luck"))
    with pytest.raises(AcquisitionFailed, match="failed after 4 frames: no such luck"):
        wait_for_view(tmp_path / "cells", ViewSpec("pyramid"))
    write_checkpoint(LocalDisk(), folder, Checkpoint("pyramid", "", 4, None, True, {}))
    wait_for_view(tmp_path / "cells", ViewSpec("pyramid"))


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.skipif(sys.platform == "win32", reason="needs ipc")
def test_a_run_for_real(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=2_200_000, pairs=1, rows=("ipc",), daemon_memory_mb=64)
    plan = PyramidPlan(shape=(256, 256), side=3)
    writing, reading = run_pyramid_benchmark(settings, lambda *news: None, plan=plan).tables
    without, with_levels, ratio = writing.rows
    assert (without["row"], with_levels["row"], ratio["row"]) == ("without levels", "with levels", "with / without")
    assert without["log_gb_per_s"] == without["log_and_levels_gb_per_s"]
    assert without["views_cpu_s_per_gb"] == 0
    assert with_levels["views_cpu_s_per_gb"]
    assert isinstance(with_levels["log_gb_per_s"], float)
    assert with_levels["log_gb_per_s"] > float(with_levels["log_and_levels_gb_per_s"] or 0) > 0
    assert [row["region"] for row in reading.rows] == ["256 x 256", "512 x 512", "768 x 768"]
    assert all(row["ms"] for row in reading.rows)
    assert list(tmp_path.iterdir()) == []
