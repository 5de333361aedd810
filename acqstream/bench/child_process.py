"""Processes that a benchmark starts: a producer that prints its measurement, and the daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from acqstream.bench.measurement import Measurement, measurement_from
from acqstream.client.status import fetch_status
from acqstream.errors import AcquisitionFailed, DaemonUnavailable

_READY_S = 60.0
_STOP_S = 60.0
_SLOWEST_BYTES_PER_S = 5e6  # what is slower hangs


def run_measured(module: str, arguments: Sequence[str], payload_bytes: int) -> Measurement:
    """Run `python -m module arguments` and take the measurement that its last line holds."""
    command = [sys.executable, "-m", module, *arguments]
    timeout_s = 60 + payload_bytes / _SLOWEST_BYTES_PER_S
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise AcquisitionFailed(f"{module} did not end within {timeout_s:.0f} s") from error
    lines = ended.stdout.splitlines()
    if ended.returncode != 0 or not lines:
        raise AcquisitionFailed(f"{module} ended with code {ended.returncode}: {_last_line(ended.stderr)}")
    return measurement_from(json.loads(lines[-1]))


@contextmanager
def running_daemon(
    data: Path, endpoint: str, memory_mb: int | None = None, *, runtime: Path | None = None
) -> Iterator[int]:
    """A daemon that writes to `data` and answers at `endpoint` only; its process id. It is stopped at the end.

    runtime: where it takes shared memory, if it is to.
    """
    data.mkdir()
    config = data.with_suffix(".toml")
    lines = ["ipc = false", "shared_memory = false" if runtime is None else f'runtime = "{runtime}"']
    lines += [f"memory_mb = {memory_mb}"] if memory_mb is not None else []
    config.write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "acqstream", "serve", "--config", str(config)]
    command += ["--data", str(data), "--endpoint", endpoint]
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_until_ready(daemon, endpoint, log)
        yield daemon.pid
    finally:
        _stop(daemon)


def _wait_until_ready(daemon: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        if daemon.poll() is not None:
            last = _last_line(log.read_text(encoding="utf-8", errors="replace"))
            raise DaemonUnavailable(f"the daemon for the benchmark ended with code {daemon.returncode}: {last}")
        try:
            fetch_status(endpoint, timeout_s=0.5)
        except DaemonUnavailable:
            if time.monotonic() > deadline:
                raise
        else:
            return


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        daemon.terminate()
    else:
        daemon.kill()  # no signal that asks politely; every frame is durable by now
    try:
        daemon.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
        raise AcquisitionFailed(f"the daemon for the benchmark did not stop within {_STOP_S:.0f} s") from None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
