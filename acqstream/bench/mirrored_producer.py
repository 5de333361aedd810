"""A producer whose frames are mirrored: `python -m acqstream.bench.mirrored_producer ENDPOINT NAME WORKLOAD HOW`.

HOW is a `MirroredPlan` as JSON. The frames are z-stacks, one time point after the other. Prints a `MirroredRun`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement, measurement_from
from acqstream.bench.tiled_producer import wait_for_view
from acqstream.bench.workload import Workload, run_workload
from acqstream.client.connect import TRANSPORTS
from acqstream.client.producer import create
from acqstream.client.status import fetch_status
from acqstream.errors import AcquisitionFailed
from acqstream.mirrors.view_kinds import folder_of
from acqstream.protocol.mirrors import parse_views

SPACE = {"PixelSizeUm": 0.325, "z-step_um": 1.0}  # usual ones: levels are halved in the plane twice before in z
_PATIENCE_S = 120.0  # a slow disk is to be measured, not to be reported


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredPlan:
    """z: frames of a stack. mirrors: as for `create`. frames_per_s: None is as fast as it goes."""

    z: int
    mirrors: tuple[Mapping[str, Any], ...]
    transport: str
    frames_per_s: float | None = None

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> MirroredPlan:
        values = json.loads(text)
        return MirroredPlan(**{**values, "mirrors": tuple(values["mirrors"])})


@dataclass(frozen=True, slots=True)
class MirroredRun:
    """log: until the receipt. From the last `put` on, finish_s is the time until all mirrors are durable; behind_frames
    is how many frames the last of them had not taken then. memory_bytes: what all of them had computed to take."""

    log: Measurement
    finish_s: float
    all_s: float
    behind_frames: int
    memory_bytes: int

    @staticmethod
    def from_document(values: Mapping[str, Any]) -> MirroredRun:
        return MirroredRun(**{**values, "log": measurement_from(values["log"])})


def send(endpoint: str, name: str, workload: Workload, plan: MirroredPlan) -> MirroredRun:
    """Put all frames and wait for the mirrors. Raises AcquisitionFailed if a frame is missing or a mirror failed."""
    times = -(-workload.frames // plan.z)
    with create(
        name,
        endpoint=endpoint,
        summary=SPACE,
        axes=[{"name": "time", "size": times}, {"name": "z", "size": plan.z}],
        mirrors=plan.mirrors,
        frame=(workload.shape, workload.dtype),
        patience_s=_PATIENCE_S,
        transport=next(known for known in TRANSPORTS if known == plan.transport),
    ) as run:
        started_s = last_put_s = 0.0
        behind = 0

        def put(image: NDArray[Any], number: int) -> None:
            nonlocal started_s
            started_s = started_s or time.perf_counter()
            if plan.frames_per_s is not None:
                early_s = started_s + number / plan.frames_per_s - time.perf_counter()
                if early_s > 0:
                    time.sleep(early_s)
            run.put(image, time=number // plan.z, z=number % plan.z)

        def finish() -> None:
            nonlocal last_put_s, behind
            last_put_s = time.perf_counter()
            behind = _frames_behind(endpoint, name, workload.frames) if plan.frames_per_s is not None else 0
            receipt = run.close()
            if not receipt.complete or receipt.stored != workload.frames:
                stored = f"{receipt.stored} of {workload.frames} frames stored in {receipt.path}"
                raise AcquisitionFailed(f"{stored}: {receipt.status} {receipt.reason}")

        log = run_workload(workload, put, finish, role="producer")
        memory_bytes = 0
        for spec in parse_views(plan.mirrors):
            saved = wait_for_view(folder_of(Path(run.path), spec), f"the mirror {spec.name} of {run.path}")
            memory_bytes += int(saved.state["summary"]["memory_bytes"])
        done_s = time.perf_counter()
    return MirroredRun(log, done_s - last_put_s, done_s - started_s, behind, memory_bytes)


def _frames_behind(endpoint: str, name: str, sent: int) -> int:
    """How many of the frames sent the slowest mirror has not taken; as the daemon knows it, a tenth of a second old."""
    for acquisition in fetch_status(endpoint).acquisitions:
        if acquisition.name == name:
            return max((sent - mirror.cursor for mirror in acquisition.mirrors.values()), default=0)
    return sent


if __name__ == "__main__":
    _endpoint, _name, _workload, _plan = sys.argv[1:]
    _found = send(_endpoint, _name, Workload.from_argument(_workload), MirroredPlan.from_argument(_plan))
    print(json.dumps(asdict(_found)), flush=True)
