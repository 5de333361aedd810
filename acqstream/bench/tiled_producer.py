"""The producer of tiles: `python -m acqstream.bench.tiled_producer ENDPOINT NAME WORKLOAD SIDE LEVELS TRANSPORT`.

Sends scans of SIDE x SIDE tiles, one time point after the other, with LEVELS "auto" or "0". Prints a measurement until
the log is durable, as "log", and in "all_seconds" the time until levels are, too.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload, run_workload
from acqstream.client.connect import TRANSPORTS, Transport
from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed
from acqstream.views.checkpoint import Checkpoint, read_checkpoint, view_folder

_PATIENCE_S = 120.0  # a slow disk is to be measured, not to be reported
_POLL_S = 0.01


def measure(
    endpoint: str, name: str, workload: Workload, *, side: int, levels: Literal["auto"] | int, transport: Transport
) -> tuple[Measurement, float]:
    """What was measured until the receipt, and seconds until the levels are durable."""
    with create(
        name,
        endpoint=endpoint,
        tiles={"overlap": (0, 0)},
        levels=levels,
        expect=workload.frames,
        frame=(workload.shape, workload.dtype),
        patience_s=_PATIENCE_S,
        transport=transport,
    ) as run:

        def put(image: NDArray[Any], number: int) -> None:
            scan, place = divmod(number, side * side)
            run.put(image, time=scan, row=place // side, column=place % side)

        def finish() -> None:
            receipt = run.close()
            if not receipt.complete or receipt.stored != workload.frames:
                stored = f"{receipt.stored} of {workload.frames} frames stored in {receipt.path}"
                raise AcquisitionFailed(f"{stored}: {receipt.status} {receipt.reason}")

        log = run_workload(workload, put, finish, role="producer")
        if not levels:
            return log, log.seconds
        durable_s = time.perf_counter()
        wait_for_levels(Path(run.path))
        return log, log.seconds + time.perf_counter() - durable_s


def wait_for_levels(dataset: Path) -> None:
    """Until all levels are durable. Raises AcquisitionFailed if they were given up."""
    wait_for_view(view_folder(dataset, "pyramid"), f"the pyramid of {dataset}")


def wait_for_view(folder: Path, name: str) -> Checkpoint:
    """Until the view with this folder is complete: its last checkpoint. Raises AcquisitionFailed if it was given up."""
    while True:
        saved = read_checkpoint(folder)
        if saved is not None and saved.failed:
            raise AcquisitionFailed(f"{name} failed {saved.failed}")
        if saved is not None and saved.is_complete:
            return saved
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _endpoint, _name, _workload, _side, _levels, _transport = sys.argv[1:]
    _log, _all_s = measure(
        _endpoint,
        _name,
        Workload.from_argument(_workload),
        side=int(_side),
        levels="auto" if _levels == "auto" else int(_levels),
        transport=next(known for known in TRANSPORTS if known == _transport),
    )
    print(json.dumps({"log": asdict(_log), "all_seconds": _all_s}), flush=True)
