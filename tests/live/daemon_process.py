"""A real daemon in a process of its own, on loopback, for tests."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

import psutil
import pytest
import zmq

from acqstream.client.daemon_requests import fetch_status, shut_down
from acqstream.errors import DaemonUnavailable
from acqstream.storage.platform.capabilities import has_terminate_signal
from tests.live.nursery import Forked, nursery
from tests.waiting import SLICE_S, FreeSeconds

FIRST_PORT, PORTS_OF_A_WORKER = 20_000, 1_000
_port_numbers = itertools.count(random.randrange(PORTS_OF_A_WORKER))  # other runs of tests may be under way

START_S = 30.0
FIRST_ANSWER_S = 0.05
RETRY_S = 0.01
END_S = 30.0

_MAIN = "from acqstream.cli.main import main; main()"  # as acqstream/__main__.py


def free_port() -> int:
    """A loopback port that no other test process is given.

    Below those of outgoing connections: one of these could take it while its daemon is restarted, or be made to itself.
    """
    first = FIRST_PORT + PORTS_OF_A_WORKER * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    for _ in range(PORTS_OF_A_WORKER):
        port = first + next(_port_numbers) % PORTS_OF_A_WORKER
        with socket.socket() as one, contextlib.suppress(OSError):  # somebody else has it
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port is free from {first} on")


class DaemonProcess:
    """`acqstream serve` on `data`, started by `start` (or `with`), ended by `stop` or `kill`.

    options are further keys of the configuration file. Without one for it, no warning depends on how long the space
    on the disk will last, as other tests take some, and no memory is taken ahead, as there are hundreds of daemons.
    Most are started again after a stop, so their producers wait.
    home is where that file, the log and the sockets lie, beside `data` if not given. prelude is Python that runs in
    the daemon's process first. Where it can be, a daemon is forked
    from a process that has loaded all it needs (nursery); is_fresh: not this one, nor one with a prelude.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        home: Path | None = None,
        prelude: str = "",
        is_fresh: bool = False,
        **options: object,
    ) -> None:
        self.data = data
        self.home = home or data.parent
        self.port = port or free_port()
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self.log_path = self.home / f"daemon-{self.port}.log"
        self.config_path = self.home / f"daemon-{self.port}.toml"
        self.runtime = self.home / "run"
        self._prelude = prelude
        self._is_forked = nursery.is_possible and not is_fresh and not prelude
        own = {"memory_mb": 64, "low_space_minutes": 0.0, "restarts": True}
        settings = {**own, "runtime": str(self.runtime), **options}
        lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
        self.config_path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ipc(self) -> str:
        """The ipc endpoint beside tcp; skips the test where ZeroMQ has none."""
        if not zmq.has("ipc"):
            pytest.skip("this ZeroMQ is built without ipc")
        return f"ipc://{self.runtime / f'{self.port}.sock'}"

    def start(self) -> DaemonProcess:
        """Start it and wait until it answers."""
        self.launch()
        assert self._process is not None
        waited = FreeSeconds()
        answer_s = FIRST_ANSWER_S  # a question that is put before it listens is lost
        while True:
            assert self._process.poll() is None, f"the daemon ended at once: {self.output()}"
            try:
                fetch_status(self.endpoint, timeout_s=answer_s)
            except DaemonUnavailable:
                answer_s = min(1.1 * answer_s, 1.0)
                assert waited.passed() < START_S, f"the daemon does not answer: {self.output()}"
                time.sleep(RETRY_S)  # a refused connection is told at once
            else:
                return self

    def launch(self) -> None:
        """Start it and do not wait: it may end at once."""
        self.data.mkdir(exist_ok=True)
        self.launch_on(self.data)

    def launch_on(self, data: Path) -> None:
        """As `launch`, on a data directory that may not be one."""
        arguments = ["serve", "--config", str(self.config_path), "--data", str(data), "--endpoint", self.endpoint]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self._is_forked:
            self._process = nursery.fork(arguments, self.log_path, environment)
            return
        program = ["-c", f"{self._prelude}\n{_MAIN}"] if self._prelude else ["-m", "acqstream"]
        with self.log_path.open("ab") as log:
            command = [sys.executable, *program, *arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def stop(self) -> int:
        """End it in order; the exit code."""
        self.begin_stop()
        return self.wait()

    def begin_stop(self) -> None:
        """SIGTERM, or a shutdown request where that would kill it; returns at once."""
        if has_terminate_signal():
            self.signal(signal.SIGTERM)
        else:
            threading.Thread(target=self._request_stop, daemon=True).start()

    def _request_stop(self) -> None:
        with contextlib.suppress(DaemonUnavailable):  # it ended before it could answer; `wait` has its exit code
            shut_down(self.endpoint)

    def wait(self) -> int:
        """Wait until it ends by itself; the exit code."""
        process, waited = self._process, FreeSeconds()
        assert process is not None
        while True:
            try:
                code = process.wait(SLICE_S)
            except subprocess.TimeoutExpired:
                assert waited.passed() < END_S, f"the daemon does not end: {self.output()}"
            else:
                self._process = None
                return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_S)
        self._process = None

    def kill_if_running(self) -> None:
        """As `kill`; nothing if it was stopped or killed before."""
        if self._process is not None:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP, or each thread suspended: alive, but silent."""
        psutil.Process(self.pid).suspend()

    def go_on(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended meanwhile
            psutil.Process(self.pid).resume()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def rss_bytes(self) -> int:
        """Resident memory of the daemon now."""
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def output(self) -> str:
        """What it printed so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> DaemonProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if value is not None:
            value.add_note(f"the daemon said:\n{self.output()}")
            self.go_on()
            self.kill()
            return
        code = self.stop()
        assert code == 0, f"the daemon ended with {code}: {self.output()}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else str(value)
