"""Processes that a benchmark starts: a producer that prints its measurement, and the daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from acqstream.bench.measurement import Measurement, measurement_from
from acqstream.client.status import fetch_status
from acqstream.errors import AcquisitionFailed, DaemonUnavailable

_READY_S = 60.0
_RETRY_S = 0.05
_STOP_S = 60.0
_SLOWEST_BYTES_PER_S = 5e6  # what is slower hangs


def run_measured(module: str, arguments: Sequence[str], payload_bytes: int) -> Measurement:
    """Run `python -m module arguments` and take the measurement that its last line holds."""
    with started_child(module, arguments, timeout_s=timeout_for(payload_bytes)) as child:
        return measurement_from(child.result())


def timeout_for(payload_bytes: int) -> float:
    """After how many seconds a process that writes so much hangs."""
    return 60 + payload_bytes / _SLOWEST_BYTES_PER_S


class Child:
    """A process that prints a JSON document as its last line; one that holds prints a line before, and waits."""

    def __init__(self, module: str, process: subprocess.Popen[str], timeout_s: float) -> None:
        self._module = module
        self._process = process
        self._timeout_s = timeout_s
        self._hangs = False
        self._timer = threading.Timer(timeout_s, self._end_hanging)
        self._timer.name = f"timeout of {module}"
        self._timer.daemon = True  # an interrupt may come before anybody could cancel it
        self._timer.start()

    def _end_hanging(self) -> None:
        self._hangs = True  # first: its end is heard of at once
        self._process.kill()

    def wait_until_ready(self) -> None:
        """Until it has printed its first line. Raises AcquisitionFailed if it ended instead."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.result()

    def go(self) -> None:
        """Let a process that holds go on."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `result` says why
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        """What it printed last, when it has ended. Raises AcquisitionFailed if it failed."""
        out, err = self._process.communicate()
        if self._hangs:
            raise AcquisitionFailed(f"{self._module} did not end within {self._timeout_s:.0f} s")
        lines = out.splitlines()
        if self._process.returncode != 0 or not lines:
            raise AcquisitionFailed(f"{self._module} ended with code {self._process.returncode}: {_last_line(err)}")
        return json.loads(lines[-1])

    def end(self) -> None:
        """Kill it if it still runs."""
        self._timer.cancel()
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def started_child(module: str, arguments: Sequence[str], *, timeout_s: float) -> Iterator[Child]:
    """`python -m module arguments`, which does not outlive the block."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    child = Child(module, process, timeout_s)
    try:
        yield child
    finally:
        child.end()


def hold() -> None:
    """Of the process itself: say that everything is prepared, and wait until the other side lets it go on.

    Ends the process if the other side is gone.
    """
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)


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
    command = [sys.executable, "-m", "acqstream.bench.daemon_process", "serve", "--config", str(config)]
    command += ["--data", str(data), "--endpoint", endpoint]
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        _wait_until_ready(daemon, endpoint, log)
        yield daemon.pid
    finally:
        _stop(daemon)
        assert daemon.stdin is not None
        daemon.stdin.close()


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
            time.sleep(_RETRY_S)  # a refused connection is told at once
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
