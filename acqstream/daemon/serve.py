"""Runs a daemon in this process: limits of the process, signals, and the edge of every thread."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.descriptors import raise_descriptor_limit
from acqstream.daemon.exit_status import ExitStatus
from acqstream.daemon.resources import fitting
from acqstream.daemon.server import Server
from acqstream.storage.memory_limit import memory_limit_bytes
from acqstream.storage.platform import STOP_SIGNALS, console_watch, keep_large_blocks, session_signals

logger = logging.getLogger("acqstream.daemon")

KEPT_HEAP_BYTES = 256 * 2**20  # frames in the sockets, between the kernel and the log


def serve(config: DaemonConfig, *, log: Path | None = None) -> ExitStatus:
    """Run a daemon until a signal, a shutdown request, the end of its console, or its configured idle time.

    log: the file that this process logs to, which the daemon names in its data directory.

    Raises ConfigError or DatasetLocked before it starts.
    """
    keep_large_blocks(KEPT_HEAP_BYTES)
    config = fitting(config, raise_descriptor_limit())
    start = _Start()
    hangups = session_signals()
    for number in (*STOP_SIGNALS, *hangups):
        signal.signal(number, start.cancel)
    server = Server(config, on_recovered=start.note_recovered, log=log)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: server.stop())
    for number in hangups:
        signal.signal(number, lambda _number, _frame: server.stop(is_hasty=False))
    if start.is_canceled:
        server.stop()
    threading.excepthook = partial(_note_thread_error, server)
    limit_bytes = memory_limit_bytes()
    if limit_bytes is not None and limit_bytes < config.max_memory_mb * 2**20:
        text = "MemoryMax of this service is %d MiB; its configuration needs at least %d MiB: raise MemoryMax"
        logger.warning(text, limit_bytes // 2**20, config.max_memory_mb)
    logger.info("listening on %s, data in %s", ", ".join(server.endpoints.all), server.directory.path)
    with console_watch(server.stop):
        return server.run()


class _Start:
    """A signal to end before the daemon is ready: recovery may be interrupted anywhere, making sockets may not."""

    def __init__(self) -> None:
        self.is_canceled = self._is_recovered = False

    def note_recovered(self) -> None:
        self._is_recovered = True

    def cancel(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_recovered:
            sys.exit()
        self.is_canceled = True


def _note_thread_error(server: Server, fault: threading.ExceptHookArgs) -> None:
    """Log an error that ended a thread; only bugs get this far."""
    name = fault.thread.name if fault.thread is not None else "a thread"
    details = (fault.exc_type, fault.exc_value or fault.exc_type(), fault.exc_traceback)
    logger.error("thread %s ended with an unexpected error", name, exc_info=details)
    server.note_fault()
