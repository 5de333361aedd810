"""The daemon's loop, one thread that serves sockets, sessions and logs and does nothing slow; `serve` runs it.

`serve` also sets limits of the process, takes its signals, and logs errors that end a thread.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

import zmq

from acqstream import __version__
from acqstream.daemon.acquisition import AcquisitionRegistry
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.child_process import WEB_END_S, notifier_process, web_process
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.connection_guard import ConnectionGuard
from acqstream.daemon.crash_recovery import earlier_runs, growing_datasets, recover_all, unfinished_views
from acqstream.daemon.data_directory import DataDirectory, boot_id
from acqstream.daemon.endpoints import SHUTDOWN_SUFFIX, Endpoints
from acqstream.daemon.reception import MessageReceiver, Reception
from acqstream.daemon.request_handler import RequestHandler
from acqstream.daemon.resources import Resources, fitting, raise_descriptor_limit
from acqstream.daemon.runtime_folder import ShutdownFile, marked_start
from acqstream.daemon.service import Service
from acqstream.daemon.supervisor import ExitStatus, Supervisor
from acqstream.model.daemon_note import DaemonNote
from acqstream.model.status import DaemonStatus
from acqstream.protocol.encoding import MAX_HEADER_BYTES, MAX_PART_BYTES
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.memory_limit import memory_limit_bytes
from acqstream.storage.platform import STOP_SIGNALS, console_watch, keep_large_blocks, session_signals
from acqstream.storage.waker import Waker

logger = logging.getLogger("acqstream.daemon")

MAX_SUBSCRIPTIONS_BYTES = 2**16  # of one reader of events, in all
IDLE_POLL_MS = 250
QUIET_MS = 50  # without a message before the daemon ends
FAREWELL_MS = 1000  # for last replies to leave when the daemon ends
KEPT_HEAP_BYTES = 256 * 2**20  # frames in the sockets, between the kernel and the log


class Server:
    """One daemon. `run` until `stop` (any thread, or a signal handler). log: the file that it logs to, if any."""

    def __init__(
        self,
        config: DaemonConfig,
        disk: Disk | None = None,
        *,
        on_recovered: Callable[[], None] = lambda: None,
        log: Path | None = None,
    ) -> None:
        with ExitStack() as undo, marked_start(config.runtime, config.endpoints[0]):
            self.directory = DataDirectory(config.data)
            undo.callback(self.directory.close)
            self._service = Service()
            undo.callback(self._service.close)
            earlier = earlier_runs(self._service.starting(self.directory.folders()))
            growing = set() if self.directory.is_predecessor_dead else growing_datasets(earlier.crashed)
            recover_all(self._service.starting(one for one in earlier.crashed if one not in growing))
            on_recovered()
            self.endpoints = Endpoints(config)
            undo.callback(self.endpoints.close)
            self._shutdown_file = ShutdownFile(self.endpoints.local_path(config, SHUTDOWN_SUFFIX))
            undo.callback(self._shutdown_file.close)
            self._waker = Waker()
            undo.callback(self._waker.close)
            self._resources = Resources(config, disk or LocalDisk(), self._waker.wake)
            undo.callback(self._resources.space.close, is_disk_well=True)
            self._resources.space.start()
            undo.callback(self._resources.load.close)
            self._resources.load.start()
            self._resources.views.resume(unfinished_views(earlier.viewed))
            self._web = web_process(config, self.endpoints.bound)
            self._wire(config)
            log_path = "" if log is None else str(log.absolute())
            self.directory.announce(DaemonNote(endpoints=tuple(self.endpoints.all), boot=boot_id(), log=log_path))
            self._notifier = notifier_process(config.notify, config.notify_no_frames_s, self.endpoints.all[0])
            undo.pop_all()  # from here on `close` does it
        self._started_s = time.monotonic()
        self._stop_timeout_s = config.stop_timeout_s
        self._stops: list[bool] = []  # is_hasty of each call of `stop`
        self._stop_by_s = float("inf")

    def _wire(self, config: DaemonConfig) -> None:
        """Make the parts that handle messages."""
        producers, endpoints, resources = self.endpoints.producers, self.endpoints, self._resources
        max_payload_bytes = config.max_payload_mb * 2**20
        self._guard = ConnectionGuard(
            producers,
            max_connections=config.max_connections,
            max_message_bytes=max(max_payload_bytes, MAX_PART_BYTES) + MAX_HEADER_BYTES,
        )
        # Readers send subscriptions only. None of these is noted, so the limit holds for the life of a connection.
        self._events_guard = ConnectionGuard(
            endpoints.events,
            max_connections=config.max_connections,
            max_message_bytes=0,
            unopened_bytes=MAX_SUBSCRIPTIONS_BYTES,
            measures=False,
        )
        self._registry = registry = AcquisitionRegistry()
        announcer = Announcer(endpoints, config.grace_s)
        self._supervisor = Supervisor(
            registry, announcer, resources, idle_exit_s=config.idle_exit_s, restarts=config.restarts
        )
        self._handler = RequestHandler(
            config,
            self.directory,
            endpoints,
            resources,
            registry,
            announcer=announcer,
            shutdown_file=self._shutdown_file,
            stop=self.stop,
            daemon_status=self._daemon_status,
        )
        reception = Reception(producers, registry, announcer, max_payload_bytes=max_payload_bytes)
        self._receiver = MessageReceiver(producers, self._guard, self._handler, reception)

    def stop(self, max_s: float | None = None, *, is_hasty: bool = True) -> None:
        """Finish all acquisitions, then leave `run`, after at most max_s seconds; a second call leaves it at once.

        max_s: by default that of the configuration. is_hasty=False: the second call of those that count for that may
        still come. The end of a session brings several signals.
        """
        timeout_s = self._stop_timeout_s if max_s is None else min(max_s, self._stop_timeout_s)
        is_second = is_hasty and any(self._stops)
        self._stop_by_s = min(self._stop_by_s, time.monotonic() + (0.0 if is_second else timeout_s))
        self._handler.stop()
        self._stops.append(is_hasty)
        self._waker.wake()

    @property
    def _is_stopping(self) -> bool:
        return bool(self._stops)

    def note_fault(self) -> None:
        """Note that an unexpected error ended a thread: the daemon continues, and reports it by its exit status."""
        self._supervisor.exit_status = ExitStatus.FAULT

    def run(self) -> ExitStatus:
        """Serve until stopped."""
        poller = self._make_poller()
        supervisor, resources = self._supervisor, self._resources
        memory_server = self.endpoints.memory_server
        try:
            while True:
                ready = dict(poller.poll(self._poll_ms()))
                is_stopping = self._is_stopping  # one answer for this turn: requests that wait are refused in it
                if self._waker.fileno() in ready:
                    self._waker.clear()
                if memory_server is not None:
                    memory_server.serve(time.monotonic())  # before messages: an `open` may name what has just come
                is_drained = self.endpoints.producers not in ready or self._receiver.receive_turn()
                self._handler.tick(time.monotonic())
                self._guard.check(time.monotonic(), is_drained=is_drained, lent_bytes=resources.budget.used_bytes)
                self._events_guard.check(time.monotonic(), is_drained=True)
                if self.endpoints.events in ready:
                    self.endpoints.events.recv()  # a subscription
                if is_stopping:
                    supervisor.stop_all()
                supervisor.tick(time.monotonic())
                if supervisor.is_idle_over and not self._is_stopping:
                    self.stop()
                self.endpoints.tick(self._shutdown_file, time.monotonic())
                self._notifier.tick(time.monotonic())
                self._web.tick(time.monotonic())
                self._service.tick(
                    tuple(self._registry),
                    time.monotonic(),
                    is_stopping=is_stopping,
                    daemon_status=self._daemon_status,
                )
                if is_stopping and not self._registry:
                    self._receive_last(poller)
                    return supervisor.exit_status
                if time.monotonic() >= self._stop_by_s:
                    supervisor.abandon_all()
                    return supervisor.exit_status
        finally:
            self.close()

    def close(self) -> None:
        """Close sockets and lock; acquisitions must have ended."""
        self._web.close(WEB_END_S)
        self._guard.close()
        self._events_guard.close()
        self._resources.views.close()
        self._resources.reads.close()
        self._resources.preparations.close()
        self._resources.load.close()
        self._resources.space.close(is_disk_well=not self._registry)
        self._shutdown_file.close()  # first: once tcp is closed, the next daemon may write its own
        self.endpoints.close(FAREWELL_MS)
        self._waker.close()
        self._service.close()
        self._notifier.close()
        self.directory.close()

    def _make_poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        poller.register(self.endpoints.producers, zmq.POLLIN)
        poller.register(self.endpoints.events, zmq.POLLIN)
        poller.register(self._waker.fileno(), zmq.POLLIN)
        if self.endpoints.memory_server is not None:
            self.endpoints.memory_server.register_with(lambda one: poller.register(one, zmq.POLLIN), poller.unregister)
        for guard in (self._guard, self._events_guard):
            if guard.monitor is not None:
                poller.register(guard.monitor, zmq.POLLIN)  # a new connection is watched from its first byte
        return poller

    def _poll_ms(self) -> int:
        return self._events_guard.poll_ms(self._guard.poll_ms(self._supervisor.poll_ms(IDLE_POLL_MS)))

    def _receive_last(self, poller: zmq.Poller) -> None:
        """Take late messages: a tcp connection that is closed with unread input loses the last replies."""
        until_s = time.monotonic() + FAREWELL_MS / 1000
        while time.monotonic() < until_s and self.endpoints.producers in dict(poller.poll(QUIET_MS)):
            self._receiver.receive_turn()

    def _daemon_status(self) -> DaemonStatus:
        budget, space = self._resources.budget, self._resources.space
        return DaemonStatus(
            version=__version__,
            boot=boot_id(),
            data=str(self.directory.path),
            endpoints=tuple(self.endpoints.all),
            uptime_s=round(time.monotonic() - self._started_s, 1),
            memory_budget_bytes=budget.budget_bytes,
            memory_used_bytes=budget.used_bytes,
            memory_peak_bytes=budget.peak_bytes,
            free_bytes=space.free_bytes,
            reserve_bytes=space.reserve_bytes,
            space=str(space.level),
            load=self._resources.load.status,
            views=self._resources.views.status(),
            totals=self._supervisor.totals(),
            ended=self._supervisor.just_ended(),
            acquisitions=tuple(one.status(space) for one in self._registry),
        )


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
        gc.freeze()  # what was loaded stays, so that a collection at the end of a run is short
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
