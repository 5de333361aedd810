"""A reader of a growing dataset: `python -m acqstream.bench.follower PATH FRAMES`.

Prints when each frame had been read, as nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from acqstream.bench.child_process import hold
from acqstream.dataset.dataset import open_dataset
from acqstream.errors import AcquisitionFailed

_TIMEOUT_S = 30.0


def follow(path: Path, frames: int) -> list[int]:
    """Read every frame as soon as it is published; the moments, by the frame's place on the time axis."""
    read_ns = [0] * frames
    count = 0
    with open_dataset(path) as dataset:
        hold()
        for key in dataset.follow(timeout_s=_TIMEOUT_S):
            dataset.read_frame(key)
            read_ns[int(key["time"])] = time.monotonic_ns()
            count += 1
    if count != frames:
        raise AcquisitionFailed(f"the follower saw {count} of {frames} frames")
    return read_ns


if __name__ == "__main__":
    print(json.dumps(follow(Path(sys.argv[1]), int(sys.argv[2]))), flush=True)
