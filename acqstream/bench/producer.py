"""The producer of a benchmark: `python -m acqstream.bench.producer ENDPOINT NAME WORKLOAD DURABILITY TRANSPORT [hold]`.

Prints a measurement. With `hold` it waits when it is prepared, so that several begin at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from acqstream.bench.child_process import hold
from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload, print_measurement, run_workload
from acqstream.client.connect import TRANSPORTS, Transport
from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed
from acqstream.model.acquisition_spec import DurabilityMode

_PATIENCE_S = 120.0  # a slow disk is to be measured, not to be reported


def measure(
    endpoint: str,
    name: str,
    workload: Workload,
    durability: DurabilityMode,
    transport: Transport,
    *,
    prepared: Callable[[], None] | None = None,
) -> Measurement:
    """Send the workload to a daemon; the time ends with the receipt, when every frame is durable."""
    with create(
        name,
        endpoint=endpoint,
        expect=workload.frames,
        frame=(workload.shape, workload.dtype),
        durability=durability,
        patience_s=_PATIENCE_S,
        transport=transport,
    ) as run:

        def put(image: NDArray[Any], number: int) -> None:
            run.put(image, time=number)

        def finish() -> None:
            receipt = run.close()
            if not receipt.complete or receipt.stored != workload.frames:
                stored = f"{receipt.stored} of {workload.frames} frames stored in {receipt.path}"
                raise AcquisitionFailed(f"{stored}: {receipt.status} {receipt.reason}")

        return run_workload(workload, put, finish, role="producer", prepared=prepared)


def _durability_of(text: str) -> DurabilityMode:
    return "close" if text == "close" else "batch" if text == "batch" else float(text)


if __name__ == "__main__":
    _endpoint, _name, _workload, _durability, _transport = sys.argv[1:6]
    print_measurement(
        measure(
            _endpoint,
            _name,
            Workload.from_argument(_workload),
            _durability_of(_durability),
            next(known for known in TRANSPORTS if known == _transport),
            prepared=hold if sys.argv[6:] == ["hold"] else None,
        )
    )
