"""A producer at a steady rate: `python -m acqstream.bench.paced_producer ENDPOINT NAME WORKLOAD TRANSPORT RATE`.

RATE is in frames per second. Holds when it is prepared: the dataset is there then. Prints the times of each frame.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from acqstream.bench.child_process import hold
from acqstream.bench.workload import Workload
from acqstream.client.connect import TRANSPORTS, Transport
from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed

_PATIENCE_S = 120.0
_BUFFER_MB = 256


@dataclass(frozen=True, slots=True)
class PacedTimes:
    """Of each frame: when it was due, when its `put` began and ended, when it was seen to be published.

    Nanoseconds of the monotonic clock, which is the same in all processes. What is published is looked up after each
    put: those times are late by one interval at the most. Those that were published at the end only are None.
    """

    due_ns: list[int]
    began_ns: list[int]
    ended_ns: list[int]
    published_ns: list[int | None]

    @staticmethod
    def from_document(document: dict[str, Any]) -> PacedTimes:
        return PacedTimes(**document)


def send(endpoint: str, name: str, workload: Workload, transport: Transport, frames_per_s: float) -> PacedTimes:
    """Put a frame whenever one is due; after a `put` that took too long the next ones follow at once."""
    images = workload.pool()
    times = PacedTimes([], [], [], [None] * workload.frames)
    with create(
        name,
        endpoint=endpoint,
        expect=workload.frames,
        frame=(workload.shape, workload.dtype),
        patience_s=_PATIENCE_S,
        buffer_mb=_BUFFER_MB,
        transport=transport,
    ) as run:
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
        receipt = run.close()
    if not receipt.complete or receipt.stored != workload.frames:
        raise AcquisitionFailed(f"{receipt.stored} of {workload.frames} frames stored in {receipt.path}")
    return times


if __name__ == "__main__":
    _endpoint, _name, _workload, _transport, _rate = sys.argv[1:6]
    _known = next(known for known in TRANSPORTS if known == _transport)
    print(
        json.dumps(asdict(send(_endpoint, _name, Workload.from_argument(_workload), _known, float(_rate)))), flush=True
    )
