"""The ways from a producer to a daemon, and a daemon that is reached by one of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zmq

from acqstream.bench.child_process import running_daemon
from acqstream.bench.interruption import temporary_folder
from acqstream.errors import ConfigError

TRANSPORTS = ("shm", "ipc", "tcp")


@dataclass(frozen=True, slots=True)
class Served:
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


def transport_absent(transport: str) -> str:
    """Why this platform does not have it; empty if it does."""
    if transport != "tcp" and not zmq.has("ipc"):
        return "not on this platform"
    return "not on this platform" if transport == "shm" and not hasattr(os, "memfd_create") else ""


@contextmanager
def serving(transport: str, folder: Path, memory_mb: int | None) -> Iterator[Served]:
    """A fresh daemon that writes to `folder`/data and answers by this transport only."""
    data = folder / "data"
    if transport == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        with running_daemon(data, endpoint, memory_mb) as pid:
            yield Served(endpoint, pid, data)
        return
    # Not below `folder`: the path of a socket has at most 107 bytes.
    with temporary_folder("acqs-") as sockets:
        endpoint, runtime = f"ipc://{sockets}/d.sock", sockets if transport == "shm" else None
        with running_daemon(data, endpoint, memory_mb, runtime=runtime) as pid:
            yield Served(endpoint, pid, data)
