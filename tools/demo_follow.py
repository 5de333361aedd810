"""Follows a dataset that another process writes, checks every frame, and prints the outcome as JSON.

    python tools/demo_follow.py DATA_DIRECTORY FRAMES

The dataset is the first one that appears in the folder. A frame's expected pixels follow from its number, which is its
place in the order of arrival. Progress goes to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import acqstream
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.scene import SceneCamera

APPEAR_TIMEOUT_S = 60
FRAME_TIMEOUT_S = 30
REPORT_EVERY = 50


def wait_for_dataset(folder: Path) -> Path:
    """The path of the first dataset in `folder` that can be opened."""
    deadline = time.monotonic() + APPEAR_TIMEOUT_S
    while time.monotonic() < deadline:
        for path in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
            try:
                acqstream.open(path).close()
            except (acqstream.DatasetError, OSError):
                continue  # not a dataset yet
            return path
        time.sleep(0.02)
    raise SystemExit(f"follower: no dataset appeared in {folder} within {APPEAR_TIMEOUT_S} s")


def main() -> None:
    folder, frames = Path(sys.argv[1]), int(sys.argv[2])
    camera = SceneCamera(parse_axes(sys.argv[3]))
    path = wait_for_dataset(folder)
    dataset = acqstream.open(path)
    seen = live = 0
    wrong: list[int] = []
    for key in dataset.follow(timeout_s=FRAME_TIMEOUT_S):
        image = dataset.read_frame(**key)
        if not np.array_equal(image, camera.frame(seen, image.shape, image.dtype.name)):
            wrong.append(seen)
        live += not dataset.complete
        seen += 1
        if seen % REPORT_EVERY == 0:
            print(f"  follower: {seen} of {frames} frames, the last at {dict(key)}", file=sys.stderr, flush=True)
    print(json.dumps({"seen": seen, "live": live, "wrong": wrong, "complete": dataset.complete}), flush=True)
    dataset.close()


if __name__ == "__main__":
    main()
