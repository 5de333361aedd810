"""A daemon for a benchmark, reached by one transport."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from acqstream.bench.child_process import child_command, last_line
from acqstream.bench.interruption import temporary_folder
from acqstream.client.daemon_requests import fetch_status, shut_down
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable
from acqstream.storage.platform.capabilities import has_memory_files, has_terminate_signal

_READY_S = 60.0
_RETRY_S = 0.05
_STOP_S = 60.0
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
    return "not on this platform" if transport == "shm" and not has_memory_files() else ""


@contextmanager
def serving(
    transport: str, folder: Path, memory_mb: int | None, *, mirrors: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Served]:
    """A fresh daemon that writes to `folder`/data and answers by this transport only. mirrors: of its configuration."""
    data = folder / "data"
    if transport == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        with running_daemon(data, endpoint, memory_mb, mirrors=mirrors) as pid:
            yield Served(endpoint, pid, data)
        return
    # Not below `folder`: the path of a socket has at most 107 bytes.
    with temporary_folder("acqs-") as sockets:
        endpoint, runtime = f"ipc://{sockets}/d.sock", sockets if transport == "shm" else None
        with running_daemon(data, endpoint, memory_mb, runtime=runtime, mirrors=mirrors) as pid:
            yield Served(endpoint, pid, data)


def _toml(value: object) -> str:
    """A value of the options of a mirror. TOML writes strings, numbers and booleans as JSON does."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def running_daemon(
    data: Path,
    endpoint: str,
    memory_mb: int | None = None,
    *,
    runtime: Path | None = None,
    mirrors: Sequence[Mapping[str, Any]] = (),
) -> Iterator[int]:
    """A daemon that writes to `data` and answers at `endpoint` only; its process id. It is stopped at the end.

    runtime: where it takes shared memory, if it is to. mirrors: of its configuration, for which it takes memory.
    """
    data.mkdir()
    config = data.with_suffix(".toml")
    lines = ["ipc = false", "shared_memory = false" if runtime is None else f'runtime = "{runtime}"']
    lines += [f"memory_mb = {memory_mb}"] if memory_mb is not None else []
    lines += [f"mirrors = {_toml(mirrors)}"] if mirrors else []
    config.write_text("\n".join(lines) + "\n", "utf-8")
    arguments = ["serve", "--config", str(config), "--data", str(data), "--endpoint", endpoint]
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            child_command("daemon", arguments=arguments), stdin=subprocess.PIPE, stdout=output, stderr=output
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
            if fetch_status(endpoint, timeout_s=0.5).views.ready_bytes is not None:
                return  # and does not take its memory while something is measured
        except DaemonUnavailable:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise DaemonUnavailable(f"the daemon for the benchmark did not take its memory within {_READY_S:.0f} s")
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
