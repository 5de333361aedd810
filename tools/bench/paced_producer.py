"""A producer at a steady rate and a follower, each in a child process, with the times of each frame."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from acqstream.bench.child_process import hold
from acqstream.bench.producer import close_complete, open_run
from acqstream.bench.workload import Workload
from acqstream.client.connector import Transport
from acqstream.dataset.dataset import open_dataset
from acqstream.errors import AcquisitionFailed

_PACED_BUFFER_MB = 256
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PacedTimes:
    """Times of each frame: due, begin and end of its `put`, seen as published.

    Nanoseconds of the monotonic clock, which is the same in all processes. The published count is read after each put:
    those times are late by one interval at most. Frames that were published after the last put have None.
    """

    due_ns: list[int]
    began_ns: list[int]
    ended_ns: list[int]
    published_ns: list[int | None]


def send_paced(endpoint: str, name: str, workload: Workload, transport: Transport, frames_per_s: float) -> PacedTimes:
    """Put a frame whenever one is due; after a slow `put` the next ones follow at once.

    Waits when it is prepared: the dataset exists then.
    """
    images = workload.pool()
    times = PacedTimes([], [], [], [None] * workload.frames)
    more = {"expect": workload.frames, "buffer_mb": _PACED_BUFFER_MB}
    with open_run(endpoint, name, workload, transport, **more) as run:
        hold()
        seen, started_ns = 0, time.monotonic_ns()
        for number in range(workload.frames):
            due_ns = started_ns + int(number * 1e9 / frames_per_s)
            if (early_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(early_ns / 1e9)
            times.due_ns.append(due_ns)
            times.began_ns.append(time.monotonic_ns())
            run.put(images[number % len(images)], time=number)
            now_ns = time.monotonic_ns()
            times.ended_ns.append(now_ns)
            published = run.progress.published
            times.published_ns[seen:published] = [now_ns] * (published - seen)
            seen = published
        close_complete(run, workload)
    return times


def follow(dataset: Path, frames: int) -> list[int]:
    """Read every frame as soon as it is published; the moments, by the frame's place on the time axis."""
    read_ns = [0] * frames
    count = 0
    with open_dataset(dataset) as growing:
        hold()
        for key in growing.follow(timeout_s=_TIMEOUT_S):
            growing.read_frame(key)
            read_ns[int(key["time"])] = time.monotonic_ns()
            count += 1
    if count != frames:
        raise AcquisitionFailed(f"the follower saw {count} of {frames} frames")
    return read_ns
