"""Another writer in its own process: `python -m acqstream.bench.peer_process NAME DIR WORKLOAD`.

NAME is a key of PEERS. Prints a measurement.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from acqstream.bench.measurement import Measurement
from acqstream.bench.peers import PEERS
from acqstream.bench.workload import Workload, print_measurement, run_workload


def measure(name: str, folder: Path, workload: Workload) -> Measurement:
    """Write the workload; the time ends when every file and folder that the peer made is on the disk."""
    writer = PEERS[name].open(folder, workload)

    def finish() -> None:
        writer.finish()
        force(folder)

    return run_workload(workload, writer.put, finish, role="producer")


def force(folder: Path) -> None:
    """fsync of every file below `folder`, of every folder there, and of itself."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            _sync(os.path.join(parent, name), os.O_RDWR)
        if os.name == "posix":  # elsewhere folders cannot be opened
            _sync(parent, os.O_RDONLY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    print_measurement(measure(sys.argv[1], Path(sys.argv[2]), Workload.from_argument(sys.argv[3])))
