"""The rows of the table: who writes the frames, and by which way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from acqstream.bench.child_process import run_measured
from acqstream.bench.measurement import Measurement
from acqstream.bench.peers import PEERS
from acqstream.bench.process_usage import UsageMeter
from acqstream.bench.transport import TRANSPORTS, serving, transport_absent
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


def _run_daemon(
    transport: str,
    directory: Path,
    workload: Workload,
    memory_mb: int | None,
    durability: DurabilityMode = DEFAULT_DURABILITY_S,
) -> Measurement:
    with serving(transport, directory, memory_mb) as daemon:
        meter = UsageMeter(daemon.pid)
        arguments = [daemon.endpoint, DATASET, workload.as_argument(), str(durability), transport]
        sent = run_measured("acqstream.bench.producer", arguments, workload.payload_bytes)
        return replace(sent, processes={**sent.processes, "daemon": meter.cost()})


def _usual(transport: str) -> Row:
    return Row(transport, partial(_run_daemon, transport), partial(transport_absent, transport))


def _forced(durability: DurabilityMode) -> Row:
    run = partial(_run_daemon, "ipc", durability=durability)
    return Row(f"ipc-{durability}", run, partial(transport_absent, "ipc"), is_extra=True)


ROWS = {
    row.name: row
    for row in (
        *(Row(name, partial(_run_peer, name), peer.absent) for name, peer in PEERS.items()),
        *(_usual(transport) for transport in TRANSPORTS),
        *(_forced(durability) for durability in ("close", "batch")),
    )
}
USUAL_ROWS = tuple(row.name for row in ROWS.values() if not row.is_extra)
