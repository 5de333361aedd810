"""A kernel of Jupyter with a notebook connected to it, for tests."""

from __future__ import annotations

import queue
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.waiting import FreeSeconds

DEADLINE_S = 100.0  # of a free machine, for programs that start an interpreter or several
_POLL_S = 0.2
_READY_S = 1000.0  # for its start and its end; reached only by a kernel that hangs
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Cell:
    """One execution of a text. printed: its output until now. error: as the notebook shows it; empty if it has none.

    shown: the HTML of its result; empty if it has none.
    """

    def __init__(self, client: BlockingKernelClient, text: str) -> None:
        self.printed = self.error = self.shown = ""
        self._client = client
        self._id = client.execute(text, allow_stdin=False, stop_on_error=False)
        self._is_idle = False

    def wait_for(self, text: str) -> None:
        """Wait until the cell has printed a text. Fails if it ends before."""
        waited = FreeSeconds()
        while text not in self.printed:
            assert not self._is_idle, f"the cell ended without {text!r}: {self.printed}{self.error}"
            self._take(waited)

    def finish(self) -> Self:
        """Wait until the kernel has ended the cell."""
        waited = FreeSeconds()
        while not self._is_idle:
            self._take(waited)
        return self

    def _take(self, waited: FreeSeconds) -> None:
        assert waited.passed() < DEADLINE_S, f"the cell has not ended: {self.printed}{self.error}"
        try:
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=_POLL_S)
        except queue.Empty:
            return
        if message["parent_header"].get("msg_id") != self._id:
            return
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.printed += content["text"]
        elif kind == "execute_result":
            self.shown = content["data"].get("text/html", "")
        elif kind == "error":
            self.error = _COLORS.sub("", "\n".join(content["traceback"]))
        elif kind == "status":
            self._is_idle = content["execution_state"] == "idle"


class NotebookKernel:
    """A kernel in a process of its own, started as notebooks start it."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """home: for the files of IPython. environment: of the kernel."""
        # Local sockets where ZeroMQ has them, with short paths: a free port may be taken before the kernel binds it.
        is_local = zmq.has("ipc")
        self._folder = Path(tempfile.mkdtemp(prefix="nb", dir="/tmp" if is_local else None))
        transport = "ipc" if is_local else "tcp"
        self._manager = KernelManager(transport=transport, connection_file=str(self._folder / "k.json"))
        self._manager.shutdown_wait_time = _READY_S  # a busy machine needs more than 5 s until a kernel has ended
        self._environment = {**environment, "IPYTHONDIR": str(home / "ipython")}
        self._client: BlockingKernelClient | None = None

    def __enter__(self) -> Self:
        try:
            self._manager.start_kernel(env=self._environment)
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()
        if self._manager.has_kernel:
            self._manager.shutdown_kernel(now=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(self, text: str) -> Cell:
        """Start a cell."""
        assert self._client is not None
        return Cell(self._client, text)

    def run(self, text: str) -> str:
        """Run a cell, which must end without an error; what it printed."""
        cell = self.begin(text).finish()
        assert not cell.error, cell.error
        return cell.printed

    def interrupt(self) -> None:
        """As the notebook's button does: SIGINT to the kernel's group of processes."""
        self._manager.interrupt_kernel()

    def restart(self, *, now: bool = False) -> None:
        """As the notebook's button does. now: the kernel is killed, else it is asked to end."""
        self._disconnect()
        self._manager.restart_kernel(now=now)
        self._connect()

    def _connect(self) -> None:
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_READY_S)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.stop_channels()
