"""The rows of the table: who writes the frames, and by which way."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import zmq

from acqstream.bench.child_process import run_measured, running_daemon
from acqstream.bench.measurement import Measurement
from acqstream.bench.peers import PEERS
from acqstream.bench.process_usage import UsageMeter
from acqstream.bench.workload import Workload
from acqstream.model.acquisition_spec import DEFAULT_DURABILITY_S, DurabilityMode

PEER = "ndstorage"
DATASET = "bench"


@dataclass(frozen=True, slots=True)
class Row:
    """One way of writing. run writes a workload into an empty directory; absent says why it cannot, or is empty.

    is_extra: only measured when it is asked for.
    """

    name: str
    run: Callable[[Path, Workload, int | None], Measurement]
    absent: Callable[[], str]
    is_extra: bool = False


def _run_peer(name: str, directory: Path, workload: Workload, memory_mb: int | None) -> Measurement:
    del memory_mb  # it has no daemon
    arguments = [name, str(directory), workload.as_argument()]
    return run_measured("acqstream.bench.peer_process", arguments, workload.payload_bytes)


def _run_tcp(directory: Path, workload: Workload, memory_mb: int | None) -> Measurement:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return _run_daemon(directory, f"tcp://127.0.0.1:{port}", workload, memory_mb)


def _run_ipc(
    directory: Path,
    workload: Workload,
    memory_mb: int | None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    *,
    is_shared: bool = False,
) -> Measurement:
    # Not below `directory`: the path of a socket has at most 107 bytes.
    sockets = tempfile.mkdtemp(prefix="acqs-")
    runtime = Path(sockets) if is_shared else None
    try:
        return _run_daemon(directory, f"ipc://{sockets}/d.sock", workload, memory_mb, durability, runtime=runtime)
    finally:
        shutil.rmtree(sockets)


def _run_daemon(
    directory: Path,
    endpoint: str,
    workload: Workload,
    memory_mb: int | None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
    *,
    runtime: Path | None = None,
) -> Measurement:
    transport = "shm" if runtime is not None else endpoint.partition(":")[0]
    with running_daemon(directory / "data", endpoint, memory_mb, runtime=runtime) as pid:
        meter = UsageMeter(pid)
        arguments = [endpoint, DATASET, workload.as_argument(), str(durability), transport]
        sent = run_measured("acqstream.bench.producer", arguments, workload.payload_bytes)
        return replace(sent, processes={**sent.processes, "daemon": meter.cost()})


def _ipc_absent() -> str:
    return "" if zmq.has("ipc") else "not on this platform"


def _shm_absent() -> str:
    return _ipc_absent() or ("" if hasattr(os, "memfd_create") else "not on this platform")


ROWS = {
    row.name: row
    for row in (
        *(Row(name, partial(_run_peer, name), peer.absent) for name, peer in PEERS.items()),
        Row("shm", partial(_run_ipc, is_shared=True), _shm_absent),
        Row("ipc", _run_ipc, _ipc_absent),
        Row("tcp", _run_tcp, lambda: ""),
        Row("ipc-close", partial(_run_ipc, durability="close"), _ipc_absent, is_extra=True),
        Row("ipc-batch", partial(_run_ipc, durability="batch"), _ipc_absent, is_extra=True),
    )
}
USUAL_ROWS = tuple(row.name for row in ROWS.values() if not row.is_extra)
