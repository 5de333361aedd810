"""Child processes of a benchmark, which print their result as JSON: see `acqstream.bench.child`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acqstream.bench.measurement import Measurement, measurement_from
from acqstream.errors import AcquisitionFailed

_MIN_BYTES_PER_S = 5e6  # a slower process hangs


def run_measured(run: str, payload_bytes: int, **arguments: Any) -> Measurement:
    """Run one of `child.RUNS` with these arguments and return the measurement that it prints."""
    with started_child(run, timeout_s=timeout_for(payload_bytes), **arguments) as child:
        return measurement_from(child.result())


def timeout_for(payload_bytes: int) -> float:
    """Seconds after which a process that writes so many bytes is taken to hang."""
    return 60 + payload_bytes / _MIN_BYTES_PER_S


class Child:
    """A process that prints a JSON document as its last line; one that holds prints a line before, and waits."""

    def __init__(self, name: str, process: subprocess.Popen[str], timeout_s: float) -> None:
        self._name = name
        self._process = process
        self._timeout_s = timeout_s
        self._hangs = False
        self._timer = threading.Timer(timeout_s, self._end_hanging)
        self._timer.name = f"timeout of {name}"
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
        """Let a process continue that waits in `hold`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; `result` raises the reason
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        """Wait for its end and return the document of its last line. Raises AcquisitionFailed if it failed."""
        out, err = self._process.communicate()
        if self._hangs:
            raise AcquisitionFailed(f"{self._name} did not end within {self._timeout_s:.0f} s")
        lines = out.splitlines()
        if self._process.returncode != 0 or not lines:
            raise AcquisitionFailed(f"{self._name} ended with code {self._process.returncode}: {last_line(err)}")
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


def child_command(run: str, **arguments: Any) -> list[str]:
    """The command that runs one of `child.RUNS` with these arguments: JSON values, paths or workloads."""
    plan = json.dumps({"run": run, **arguments}, default=lambda one: str(one) if isinstance(one, Path) else asdict(one))
    return [sys.executable, "-m", "acqstream.bench.child", plan]


@contextmanager
def started_child(run: str, *, timeout_s: float, **arguments: Any) -> Iterator[Child]:
    """Start one of `child.RUNS`; it does not outlive the block."""
    with started_process(run, child_command(run, **arguments), timeout_s=timeout_s) as child:
        yield child


@contextmanager
def started_process(name: str, command: Sequence[str], *, timeout_s: float) -> Iterator[Child]:
    """Start a command that prints as a Child does; it does not outlive the block."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    child = Child(name, process, timeout_s)
    try:
        yield child
    finally:
        child.end()


def hold() -> None:
    """Report that this process is prepared, and wait until `Child.go` is called.

    Ends the process if the other side is gone.
    """
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
