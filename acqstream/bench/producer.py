"""Producers of the benchmarks, as fast as they can or at a steady rate, with mirrors; and the daemon that they need."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from numpy.typing import NDArray

from acqstream.bench.child_process import child_command, hold, last_line, serve, temporary_folder
from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload, run_workload
from acqstream.client.connector import Transport
from acqstream.client.daemon_requests import fetch_status, shut_down
from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, DurabilityMode
from acqstream.model.view_spec import ViewSpec
from acqstream.protocol.requests import parse_views
from acqstream.storage.platform.capabilities import has_memory_files, has_terminate_signal
from acqstream.views.checkpoint import Checkpoint, read_checkpoint

_PATIENCE_S = 120.0  # a slow disk is measured, not reported as an error
_READY_S = _STOP_S = 60.0
_RETRY_S, _POLL_S = 0.05, 0.01
TRANSPORTS = ("shm", "ipc", "tcp")
_SPACE = {"PixelSizeUm": 0.325, "z-step_um": 1.0}  # common values: levels are halved in the plane twice before in z


@contextmanager
def open_run(endpoint: str, name: str, workload: Workload, transport: Transport, **more: Any) -> Iterator[Run]:
    """A run of these frames; it aborts if the block fails."""
    frame = (workload.shape, workload.dtype)
    with create(name, endpoint=endpoint, frame=frame, patience_s=_PATIENCE_S, transport=transport, **more) as run:
        yield run


def close_complete(run: Run, workload: Workload) -> None:
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
    together: int | None = None,
) -> Measurement:
    """Send the workload; the time ends with the receipt, when every frame is durable.

    is_held: wait when the frames are prepared, so that several producers start at the same time. together: frames of
    each `put_many`; None for `put`.
    """
    with open_run(endpoint, name, workload, transport, expect=workload.frames, durability=durability) as run:

        def put(image: NDArray[Any], number: int) -> None:
            run.put(image, time=number)

        def put_many(images: NDArray[Any], number: int) -> None:
            run.put_many(images, time=range(number, number + len(images)))

        return run_workload(
            workload,
            put if together is None else put_many,
            lambda: close_complete(run, workload),
            prepared=hold if is_held else None,
            together=together,
        )


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
    with open_run(endpoint, name, workload, transport, summary=_SPACE, axes=axes, mirrors=mirrors) as run:
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
            close_complete(run, workload)

        log = run_workload(workload, put, finish)
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


@dataclass(frozen=True, slots=True)
class BenchDaemon:
    """A daemon that runs: where it answers, its process id, and the folder of its datasets."""

    endpoint: str
    pid: int
    data: Path


def transports_of(rows: Sequence[str], option: str) -> list[str]:
    """Those of `rows` that are transports. Raises ConfigError if there is none."""
    found = [name for name in TRANSPORTS if name in rows]
    if not found:
        raise ConfigError(f"{option} needs one of the rows {', '.join(TRANSPORTS)}")
    return found


def transport_for(rows: Sequence[str], option: str) -> str:
    """The first transport of `rows` that this platform has. Raises ConfigError if there is none."""
    for name in transports_of(rows, option):
        if not transport_absent(name):
            return name
    raise ConfigError(f"{option} needs a transport that this platform has")


def transport_absent(transport: str) -> str:
    """Why this platform does not have it; empty if it does."""
    if transport != "tcp" and not zmq.has("ipc"):
        return "not on this platform"
    return "not on this platform" if transport == "shm" and not has_memory_files() else ""


@contextmanager
def serving(transport: str, folder: Path, memory_mb: int | None) -> Iterator[BenchDaemon]:
    """A fresh daemon that writes to `folder`/data and answers by this transport only."""
    data = folder / "data"
    if transport == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        with running_daemon(data, endpoint, memory_mb) as pid:
            yield BenchDaemon(endpoint, pid, data)
        return
    # Not below `folder`: the path of a socket has at most 107 bytes.
    with temporary_folder("acqs-") as sockets:
        endpoint, runtime = f"ipc://{sockets}/d.sock", sockets if transport == "shm" else None
        with running_daemon(data, endpoint, memory_mb, runtime=runtime) as pid:
            yield BenchDaemon(endpoint, pid, data)


@contextmanager
def running_daemon(
    data: Path,
    endpoint: str,
    memory_mb: int | None = None,
    *,
    runtime: Path | None = None,
) -> Iterator[int]:
    """A daemon that writes to `data` and answers at `endpoint` only; its process id. It is stopped at the end.

    runtime: where it takes shared memory, if it is to.
    """
    data.mkdir()
    config = data.with_suffix(".toml")
    lines = ["ipc = false", "shared_memory = false" if runtime is None else f'runtime = "{runtime}"']
    lines += [f"memory_mb = {memory_mb}"] if memory_mb is not None else []
    config.write_text("\n".join(lines) + "\n", "utf-8")
    arguments = ["serve", "--config", str(config), "--data", str(data), "--endpoint", endpoint]
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            child_command(serve, arguments=arguments), stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    try:
        _wait_until_ready(daemon, endpoint, log)
        yield daemon.pid
    finally:
        try:
            _stop(daemon, endpoint)
        finally:
            assert daemon.stdin is not None
            daemon.stdin.close()


def _wait_until_ready(daemon: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        if daemon.poll() is not None:
            last = last_line(log.read_text(encoding="utf-8", errors="replace"))
            raise DaemonUnavailable(f"the daemon for the benchmark ended with code {daemon.returncode}: {last}")
        try:
            fetch_status(endpoint, timeout_s=0.5)
            return
        except DaemonUnavailable:
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)  # a refused connection is reported at once


def _stop(daemon: subprocess.Popen[bytes], endpoint: str) -> None:
    """End the daemon in order. Raises AcquisitionFailed if that takes too long; then it is killed."""
    try:
        if has_terminate_signal():
            daemon.terminate()
        elif daemon.poll() is None:
            shut_down(endpoint, timeout_s=_STOP_S)
        daemon.wait(_STOP_S)
    except (subprocess.TimeoutExpired, AcqStreamError) as error:
        daemon.kill()
        daemon.wait()
        text = f"the daemon for the benchmark did not stop within {_STOP_S:.0f} s: {error}"
        raise AcquisitionFailed(text) from None
