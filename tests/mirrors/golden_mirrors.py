"""The half-done mirrors behind tests/golden/mirrors. The README there has the command."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.views.view_run import ViewRun
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import frames_at, places_of, run_of

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "n5": {"format": "n5", "compression": "gzip", "blocks": [8, 16, 16], "levels": 3},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2, "compression": "raw"},
}
FRAMES = frames_at(
    places_of(("time", "channel", "z"), {"time": 2, "z": 36}, {"channel": ("DAPI", "GFP")}), (20, 40), "<u1"
)
SAVED = 36 + 20  # frames: inside the second stack, blocks of which are full, half full and empty
KILLED = SAVED + 7  # frames that were taken when the process ended


def work(run: ViewRun) -> None:
    """Store full blocks and announce them, as between two frames that come slowly."""
    for _ in range(300):
        run.view.work(time.monotonic(), is_idle=False)
        time.sleep(0.005)


def main(target: Path, view_module: Any) -> None:
    """Write the dataset, and both mirrors as a killed process leaves them."""
    view_module.STEP_BYTES = 1  # a frame in each step
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "cells"
        write_log(dataset, FRAMES)
        runs = [run_of(dataset, settings, name=name) for name, settings in SETTINGS.items()]
        for run in runs:
            for frames in (SAVED, KILLED):
                while run.progress().cursor < frames:
                    run.step()
                work(run)
                if frames == SAVED:
                    run.save()
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.lock", "*.tmp"), dirs_exist_ok=True)
        for run in runs:
            run.close()
