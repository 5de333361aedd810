"""The view worker as a child process: its start, the socket to it, and its end.

No call here waits for the child: orders that cannot be sent now are sent by a later `send`. The messages are described
in `acqstream.mirrors.view_worker`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import acqstream
from acqstream.storage.handover import OrderSender
from acqstream.storage.platform import child_process

_READ_BYTES = 65536
_MAX_READS = 16  # in one call of `reports`


class InvalidReport(Exception):
    """The worker sent a line that is not a report."""


class WorkerProcess:
    """One running view worker. is_ending: it was asked to end and takes no more orders."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start `command` with two arguments added, see `storage.platform`. Raises OSError."""
        self.is_ending = False
        # Called by the daemon's loop: Linux ends the child with the thread that started it.
        self._process = child_process.ChildProcess(command, child_environment())
        self._connection = self._process.connection
        self._connection.setblocking(False)
        self._orders = OrderSender(self._connection, self._process.pid)
        self._pending = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def blocked_s(self) -> float:
        """Seconds for which the worker has not read an order that waits to be sent."""
        since_s = self._orders.blocked_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def order(self, order: dict[str, Any], *handles: int) -> None:
        """Queue an order. Handles are duplicated, as they may be closed before it is sent. Raises OSError."""
        if self.is_ending:
            return
        self._orders.add(order, *handles)

    def send(self) -> None:
        """Send the queued orders, as far as the socket takes them now."""
        with contextlib.suppress(OSError):  # the worker is dying; `exit_code` reports it
            self._orders.send()

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield the reports that have arrived. Raises InvalidReport."""
        for _ in range(_MAX_READS):
            try:
                data = self._connection.recv(_READ_BYTES)
            except OSError:
                return  # no data now, or the worker is dying
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                try:
                    report = json.loads(line)
                except ValueError as error:
                    raise InvalidReport(f"{line!r:.80} is not JSON") from error
                if not isinstance(report, dict):
                    raise InvalidReport(f"{line!r:.80} is not an object")
                yield report
            if len(self._pending) > _READ_BYTES:
                raise InvalidReport(f"a line of more than {_READ_BYTES} bytes")
            if not data:
                return

    def end(self) -> None:
        """Close the sending side: the worker saves all views and ends."""
        if not self.is_ending:
            self.is_ending = True
            with contextlib.suppress(OSError):  # it is dying already
                self._connection.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> bool:
        """After `end`: wait until the worker has ended. Returns False if it had to be killed."""
        self._connection.settimeout(timeout_s)
        try:
            while data := self._connection.recv(_READ_BYTES):
                del data  # no reader is left, but the worker must not block on a full socket
            self._process.wait(timeout_s)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
            return False
        return True

    def release(self) -> None:
        """Close the socket and the handles of orders that were not sent."""
        self._connection.close()
        self._orders.close()
        self._process.release()


def child_environment() -> dict[str, str]:
    """This process's environment, with the folder of this package first in the child's module path."""
    root = os.path.dirname(os.path.dirname(acqstream.__file__))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
