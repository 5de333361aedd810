"""Daemons without the half second in which an interpreter loads what they need: forked from one that has it loaded.

Apart from that they are what `python -m acqstream` is: a process of its own, a child of the one that asked for it, with
the arguments, the environment and the log of its own. tests/cli and tests/live/test_service_manager.py start real ones.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

DEATH_S = 60.0  # a disk may keep a killed process
_PR_SET_CHILD_SUBREAPER = 36


class Nursery:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # nobody dies whose children would be adopted, while one is forked
        self._process: subprocess.Popen[str] | None = None
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    @property
    def is_possible(self) -> bool:
        return self._prctl is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def fork(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Forked:
        """`acqstream` with these arguments, as a child of this process."""
        order = json.dumps({"arguments": list(arguments), "log": str(log), "environment": dict(environment)})
        with self.lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            self._adopt(True)
            try:
                process.stdin.write(f"{order}\n")
                process.stdin.flush()
                return Forked(int(process.stdout.readline()))
            finally:
                self._adopt(False)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            more = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
            more["OPENBLAS_NUM_THREADS"] = "1"  # numpy's: none is there when it forks
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.live.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **more},
            )
            atexit.register(self._process.communicate)
        return self._process

    def _adopt(self, adopts: bool) -> None:
        """Whether orphaned grandchildren become children of this process: only those that were just asked for."""
        assert self._prctl is not None
        assert self._prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0) == 0


class Forked:
    """A child of this process: what `subprocess.Popen` offers for one that it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float) -> int:
        if (code := self.poll()) is not None:
            return code
        descriptor = os.pidfd_open(self.pid)
        try:
            select.select([descriptor], [], [], timeout)
        finally:
            os.close(descriptor)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"acqstream, process {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead. Raises TimeoutExpired."""
        with nursery.lock:
            self.send_signal(signal.SIGKILL)
            self.wait(DEATH_S)


nursery = Nursery()


def main() -> None:
    """For each line on stdin a child; its number goes to stdout once this process is not its parent any more."""
    import acqstream.cli.main
    import acqstream.daemon.server  # what `serve` loads when it begins

    for line in sys.stdin:
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            if (child := os.fork()) == 0:
                os.close(reading)
                os.close(writing)
                _become(json.loads(line))
                acqstream.cli.main.main()
                return
            os.write(writing, b"%d" % child)
            os._exit(0)
        os.waitpid(between, 0)
        sys.stdout.write(f"{int(os.read(reading, 20))}\n")
        os.close(reading)
        os.close(writing)


def _become(order: Mapping[str, object]) -> None:
    """This process with other arguments, environment, input and output."""
    arguments, environment = order["arguments"], order["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    sys.argv = ["acqstream", *arguments]
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.close(nothing)
    os.close(log)


if __name__ == "__main__":
    main()
