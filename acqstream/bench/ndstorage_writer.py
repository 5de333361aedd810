"""ndstorage writing in its own process: `python -m acqstream.bench.ndstorage_writer DIR WORKLOAD`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload, print_measurement, run_workload


def measure(directory: Path, workload: Workload) -> Measurement:
    """Write the workload with `put_image`; the time ends when every file of the dataset is on the disk."""
    from ndstorage import NDTiffDataset

    dataset = NDTiffDataset(dataset_path=str(directory), summary_metadata={}, name="peer", writable=True)

    def put(image: NDArray[Any], number: int) -> None:
        dataset.put_image({"time": number}, image, {"Axes": {"time": number}})

    def finish() -> None:
        dataset.finish()
        for file in Path(dataset.path).iterdir():
            _sync(file)

    try:
        return run_workload(workload, put, finish, role="producer")
    finally:
        dataset.close()


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    print_measurement(measure(Path(sys.argv[1]), Workload.from_argument(sys.argv[2])))
