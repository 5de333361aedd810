"""One mirror by itself, as `acqstream mirror` makes it: `python -m acqstream.bench.mirror_process DATASET OUT HOW`.

HOW is JSON: "settings" with the format and its options, and "memory_mb". Nothing of the dataset is in the page cache.
Prints an `AloneRun`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench.direct_reads import forget
from acqstream.bench.measurement import Measurement, ProcessCost, latency_of, measurement_from
from acqstream.bench.process_usage import UsageMeter, reset_peak_memory
from acqstream.errors import AcquisitionFailed
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_view import KEPT_BYTES
from acqstream.mirrors.view_maker import view_maker
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.allocator import keep_large_blocks
from acqstream.views.checkpoint import view_folder
from acqstream.views.view import ViewRun
from acqstream.views.view_progress import ViewState


@dataclass(frozen=True, slots=True)
class AloneRun:
    """mirror: until all of it is durable, role "mirror"; the peak is beyond what the process had before. check_s: for
    comparing every frame after, with check_cpu_s of processor time. memory_bytes: what it had computed to take."""

    mirror: Measurement
    check_s: float
    check_cpu_s: float
    memory_bytes: int

    @staticmethod
    def from_document(values: Mapping[str, Any]) -> AloneRun:
        return AloneRun(**{**values, "mirror": measurement_from(values["mirror"])})


def measure(dataset: Path, out: Path, settings: Mapping[str, Any], memory_mb: float) -> AloneRun:
    """Raises AcquisitionFailed if a frame of the mirror is not that of the dataset."""
    reader, *_ = open_readers(dataset)
    count, frame_bytes = len(reader), reader.stored_frame(0)[1].payload_bytes
    reader.close()
    for stack in dataset.glob("*.tif"):
        forget(stack)
    name = str(settings["format"])
    make = view_maker(ViewSpec(name, settings), container=out, memory_mb=memory_mb)
    reset_peak_memory()
    before = psutil.Process().memory_info().rss
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    run = ViewRun(dataset, name, make, folder=view_folder(out, "view"))
    _finish(run)
    seconds, cost = time.perf_counter() - started, meter.cost()
    peak = None if cost.peak_bytes is None else max(0, cost.peak_bytes - before)
    measured = Measurement(
        payload_bytes=count * frame_bytes,
        frames=count,
        seconds=seconds,
        latency=latency_of([int(seconds * 1e9)]),
        processes={"mirror": ProcessCost(cost.cpu_s, peak)},
    )
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    found = compare(dataset, run.folder, count)
    if found.different or found.frames != count:
        raise AcquisitionFailed(f"{out}: of {count} frames {found.frames} were compared, {found.text}")
    check_s, check_cpu_s = time.perf_counter() - started, meter.cost().cpu_s
    return AloneRun(measured, check_s, check_cpu_s, int(run.view.summary()["memory_bytes"]))


def _finish(run: ViewRun) -> None:
    try:
        while (wait_s := run.step()) is not None:
            time.sleep(wait_s)
        if run.progress().state is not ViewState.COMPLETE:
            raise AcquisitionFailed(f"{run.folder}: is {run.progress().state} {run.reason}")
    finally:
        run.close()


if __name__ == "__main__":
    keep_large_blocks(KEPT_BYTES)
    _how = json.loads(sys.argv[3])
    print(json.dumps(asdict(measure(Path(sys.argv[1]), Path(sys.argv[2]), **_how))), flush=True)
