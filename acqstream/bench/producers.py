"""Producers of the benchmarks: as fast as it goes, at a steady rate, of tiles, and with mirrors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.bench.child_process import hold
from acqstream.bench.measurement import Measurement, measurement_from
from acqstream.bench.workload import Workload, run_workload
from acqstream.client.connector import Transport
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import AcquisitionFailed
from acqstream.mirrors.view_kinds import folder_of
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, DurabilityMode
from acqstream.model.view_spec import PYRAMID_KIND, ViewSpec
from acqstream.protocol.mirrors import parse_views
from acqstream.views.checkpoint import Checkpoint, read_checkpoint

_PATIENCE_S = 120.0  # a slow disk is measured, not reported as an error
_PACED_BUFFER_MB = 256
_POLL_S = 0.01
_SPACE = {"PixelSizeUm": 0.325, "z-step_um": 1.0}  # common values: levels are halved in the plane twice before in z


@contextmanager
def _run_of(endpoint: str, name: str, workload: Workload, transport: Transport, **more: Any) -> Iterator[Run]:
    frame = (workload.shape, workload.dtype)
    with create(name, endpoint=endpoint, frame=frame, patience_s=_PATIENCE_S, transport=transport, **more) as run:
        yield run


def _close(run: Run, workload: Workload) -> None:
    """Close the run. Raises AcquisitionFailed unless every frame is stored."""
    receipt = run.close()
    if not receipt.complete or receipt.stored != workload.frames:
        stored = f"{receipt.stored} of {workload.frames} frames stored in {receipt.path}"
        raise AcquisitionFailed(f"{stored}: {receipt.status} {receipt.reason}")


def send(
    endpoint: str,
    name: str,
    workload: Workload,
    transport: Transport,
    *,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    is_held: bool = False,
) -> Measurement:
    """Send the workload; the time ends with the receipt, when every frame is durable.

    is_held: wait when the frames are prepared, so that several producers start at the same time.
    """
    with _run_of(endpoint, name, workload, transport, expect=workload.frames, durability=durability) as run:

        def put(image: NDArray[Any], number: int) -> None:
            run.put(image, time=number)

        prepared = hold if is_held else None
        return run_workload(workload, put, lambda: _close(run, workload), role="producer", prepared=prepared)


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

    @staticmethod
    def from_document(document: dict[str, Any]) -> PacedTimes:
        return PacedTimes(**document)


def send_paced(endpoint: str, name: str, workload: Workload, transport: Transport, frames_per_s: float) -> PacedTimes:
    """Put a frame whenever one is due; after a slow `put` the next ones follow at once.

    Waits when it is prepared: the dataset exists then.
    """
    images = workload.pool()
    times = PacedTimes([], [], [], [None] * workload.frames)
    more = {"expect": workload.frames, "buffer_mb": _PACED_BUFFER_MB}
    with _run_of(endpoint, name, workload, transport, **more) as run:
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
        _close(run, workload)
    return times


def send_tiled(
    endpoint: str, name: str, workload: Workload, transport: Transport, *, side: int, levels: str | int
) -> dict[str, Any]:
    """Send scans of side x side tiles, one time point after the other; levels is "auto" or a number.

    Returns the measurement until the receipt as "log", and the seconds until the levels are durable as "all_seconds".
    """
    more = {"tiles": {"overlap": (0, 0)}, "levels": levels, "expect": workload.frames}
    with _run_of(endpoint, name, workload, transport, **more) as run:

        def put(image: NDArray[Any], number: int) -> None:
            scan, place = divmod(number, side * side)
            run.put(image, time=scan, row=place // side, column=place % side)

        log = run_workload(workload, put, lambda: _close(run, workload), role="producer")
        if not levels:
            return {"log": log, "all_seconds": log.seconds}
        durable_s = time.perf_counter()
        wait_for_view(Path(run.path), ViewSpec(PYRAMID_KIND))
        return {"log": log, "all_seconds": log.seconds + time.perf_counter() - durable_s}


def wait_for_view(dataset: Path, spec: ViewSpec) -> Checkpoint:
    """Wait until a view is complete and return its last checkpoint. Raises AcquisitionFailed if it failed."""
    folder = folder_of(dataset, spec)
    while True:
        saved = read_checkpoint(folder)
        if saved is not None and saved.failed:
            raise AcquisitionFailed(f"view {spec.name} of {dataset} failed {saved.failed}")
        if saved is not None and saved.is_complete:
            return saved
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class MirroredRun:
    """log: until the receipt. finish_s: from the last `put` until all mirrors are durable; all_s: from the first.

    behind_frames: frames that the slowest mirror had not taken at the last `put`. memory_bytes: the computed memory of
    all mirrors.
    """

    log: Measurement
    finish_s: float
    all_s: float
    behind_frames: int
    memory_bytes: int

    @staticmethod
    def from_document(values: Mapping[str, Any]) -> MirroredRun:
        return MirroredRun(**{**values, "log": measurement_from(values["log"])})


def send_mirrored(
    endpoint: str,
    name: str,
    workload: Workload,
    transport: Transport,
    *,
    z: int,
    mirrors: Sequence[Mapping[str, Any]],
    frames_per_s: float | None = None,
) -> MirroredRun:
    """Put stacks of z frames and wait for the mirrors; frames_per_s: None is as fast as it goes.

    Raises AcquisitionFailed if a frame is missing or a mirror failed.
    """
    axes = [{"name": "time", "size": -(-workload.frames // z)}, {"name": "z", "size": z}]
    with _run_of(endpoint, name, workload, transport, summary=_SPACE, axes=axes, mirrors=mirrors) as run:
        started_s = last_put_s = 0.0
        behind = 0

        def put(image: NDArray[Any], number: int) -> None:
            nonlocal started_s
            started_s = started_s or time.perf_counter()
            if frames_per_s is not None:
                early_s = started_s + number / frames_per_s - time.perf_counter()
                if early_s > 0:
                    time.sleep(early_s)
            run.put(image, time=number // z, z=number % z)

        def finish() -> None:
            nonlocal last_put_s, behind
            last_put_s = time.perf_counter()
            behind = _frames_behind(endpoint, name, workload.frames) if frames_per_s is not None else 0
            _close(run, workload)

        log = run_workload(workload, put, finish, role="producer")
        memory_bytes = 0
        for spec in parse_views(mirrors):
            saved = wait_for_view(Path(run.path), spec)
            memory_bytes += int(saved.state["summary"].get("memory_bytes", 0))  # none by reference
        done_s = time.perf_counter()
    return MirroredRun(log, done_s - last_put_s, done_s - started_s, behind, memory_bytes)


def _frames_behind(endpoint: str, name: str, sent: int) -> int:
    """Number of sent frames that the slowest mirror has not taken; from the daemon, a tenth of a second old."""
    for acquisition in fetch_status(endpoint).acquisitions:
        if acquisition.name == name:
            return max((sent - mirror.cursor for mirror in acquisition.mirrors.values()), default=0)
    return sent
