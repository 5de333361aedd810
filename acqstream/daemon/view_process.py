"""The daemon's side of the views: one child process makes them all, watched and started again when it dies.

Used by the loop only, which it never keeps waiting: what cannot be sent now is sent on another turn. What the two say
to each other: `acqstream.mirrors.view_worker`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import acqstream
from acqstream.daemon.exit_text import exit_text
from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.log.recent_groups import GroupTable, address_of
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.status import ViewProcessStatus
from acqstream.storage.memory import PageMemory

logger = logging.getLogger("acqstream.daemon")

MAX_DEATHS = 5  # of the process without a view getting on: then it is the view's fault
MAX_BLOCKED_S = 30.0  # while the process takes no orders: it is stuck
FIRST_PAUSE_S = 0.1  # before it is started again; doubled at every death without any progress
LONGEST_PAUSE_S = 10.0
IDLE_S = 5.0  # without a view to make: the process is ended
END_S = 5.0  # for saving all views when the daemon ends
MAX_ENDED_KEPT = 100
_BOARD_BYTES = 4096
_READ_BYTES = 65536
_MAX_READS = 16  # in one turn
_TURN_S = 0.01  # turns of the loop that come sooner are left out


@dataclass(slots=True, eq=False)
class _Child:
    """A running process and what is on its way to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    orders: deque[tuple[bytes, list[int]]]
    pending: bytes = b""
    blocked_since_s: float | None = None  # since when it takes no orders
    is_ending: bool = False  # was told to end, and takes no more orders


class ViewProcess:
    """All views of one daemon, and the process that makes them while there are any. memory: the daemon's.

    command is what is started, with the number of the socket and of this process added. settings: by view, for its
    constructor. mirror_memory_mb is what one mirror may take, in MiB.
    """

    def __init__(
        self,
        memory: PageMemory,
        command: Sequence[str] = (sys.executable, "-P", "-m", "acqstream.mirrors.view_worker"),
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        mirror_memory_mb: int = 1024,
    ) -> None:
        self._memory = memory
        self._mirror_memory_mb = mirror_memory_mb
        self._command = command
        self._settings = settings or {}
        self._board: PageMemory | None = None
        self._jobs: dict[int, ViewJob] = {}
        self._ended: deque[ViewJob] = deque(maxlen=MAX_ENDED_KEPT)
        self._numbers = itertools.count(1)
        self._child: _Child | None = None
        self._start_at_s = 0.0
        self._idle_since_s = 0.0
        self._turn_at_s = 0.0
        self._deaths = 0  # in a row, without any view getting on
        self._restarts = 0
        self._is_stopped = False
        self._is_sharing = False
        self._fault = ""  # of this daemon; there are no views then

    @property
    def unavailable_reason(self) -> str:
        """Why this system cannot make views beside the log; empty where it can."""
        is_there = hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds")
        return "" if is_there else "this system has no sockets that descriptors can be sent over"

    def make_table(self) -> GroupTable | None:
        """A table for a log to fill, None where memory cannot be shared."""
        table = GroupTable() if self._memory.descriptor is not None else None
        return table if table is not None and table.descriptor is not None else None

    def add(
        self,
        path: str,
        view: str,
        *,
        settings: Mapping[str, Any] | None = None,
        table: GroupTable | None = None,
        start: int = 0,
        length: int = 0,
        lent: ProducerMemory | None = None,
    ) -> ViewJob:
        """Have a view made of the dataset in folder `path`. settings: of a mirror. The others: see ViewJob."""
        for known in list(self._jobs.values()):
            if (known.path, known.view) == (path, view):
                self._drop(known)
        job = ViewJob(next(self._numbers), path, view, table, start, length, settings=dict(settings or {}), lent=lent)
        self._jobs[job.number] = job
        if self._fault:
            job.fail(self._fault)
            self._forget(job)
        else:
            self._order_view(job)
        return job

    def lend(self, job: ViewJob, memory: ProducerMemory | None) -> None:
        """Frames of this view's log will come in this memory of the producer's, if any."""
        if job.number in self._jobs:
            job.lent = memory
            self._order_lent(job)

    def look_after(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        """One turn of the loop. is_busy tells whether a log has a backlog. Raises nothing."""
        if now_s - self._turn_at_s < _TURN_S:
            return
        self._turn_at_s = now_s
        if self._fault:
            if self._child is not None and self._child.process.poll() is not None:
                self._release(self._child)
            return
        try:
            self._turn(now_s, is_busy)
        except Exception as error:
            # The loop carries everybody's acquisitions: a fault here ends the views and nothing else.
            logger.exception("a fault in looking after the views; there will be none until the daemon is started again")
            self._abandon(f"a fault in the daemon: {type(error).__name__}: {error}")

    def _turn(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        if self._child is None and self._jobs and now_s >= self._start_at_s and not self._is_stopped:
            self._start()
        child = self._child
        if child is None:
            return
        if self._board is not None:
            self._board.view[0] = is_busy()
        self._receive(child)
        self._send(child)
        if child.blocked_since_s is not None and now_s - child.blocked_since_s > MAX_BLOCKED_S:
            logger.error("the views' process takes no orders; it is killed")
            child.process.kill()
        if child.process.poll() is not None:
            self._receive(child)  # what it said last
            self._release(child)
            if self._jobs and not self._is_stopped and not child.is_ending:
                self._note_death(child.process.returncode, now_s)
        elif self._jobs and not child.is_ending:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s > IDLE_S + END_S:
            child.process.kill()
        elif now_s - self._idle_since_s > IDLE_S:
            self._tell_end(child)

    def status(self) -> ViewProcessStatus:
        """Return the status of the process and of all views that are not complete."""
        return ViewProcessStatus(
            pid=self._child.process.pid if self._child is not None else None,
            restarts=self._restarts,
            memory=self._memory.private_reason or "shared",
            mirrors=tuple(job.unfinished_status() for job in self._all_jobs()),
        )

    def stop(self) -> None:
        """The daemon is ending: have all views saved. Does not wait."""
        self._is_stopped = True
        if self._child is not None:
            self._tell_end(self._child)

    def close(self) -> None:
        """`stop`, and wait until it is done, but not for long."""
        self.stop()
        child = self._child
        if child is None:
            return
        child.connection.settimeout(END_S)
        try:
            while data := child.connection.recv(_READ_BYTES):
                del data  # nobody asks any more, but it must not wait for us
            child.process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            logger.warning("the views' process did not end within %s s; it is killed", END_S)
            child.process.kill()
            child.process.wait()
        self._release(child)

    def results(self, path: str) -> dict[str, MirrorResult]:
        """By name, how the views of the dataset in this folder stand that were made lately."""
        return {job.view: job.result() for job in (*self._ended, *self._jobs.values()) if job.path == path}

    def _all_jobs(self) -> list[ViewJob]:
        return [*self._jobs.values(), *(job for job in self._ended if job.is_failed)]

    def _drop(self, job: ViewJob) -> None:
        del self._jobs[job.number]
        self._order({"t": "drop", "id": job.number})

    def _order_view(self, job: ViewJob) -> None:
        order: dict[str, Any] = {"t": "view", "id": job.number, "path": job.path, "view": job.view, "live": job.is_live}
        order["settings"] = dict(self._settings.get(job.view, {}))
        order["mirror"] = {"settings": job.settings, "memory_mb": self._mirror_memory_mb}
        descriptor = job.table.descriptor if job.table is not None else None
        shared = {**order, "start": job.start, "length": job.length}
        if descriptor is not None and self._is_sharing and self._order_memory(shared, descriptor):
            self._order_lent(job)
        else:
            self._order(order)

    def _order_lent(self, job: ViewJob) -> None:
        if job.lent is not None and self._is_sharing:
            order = {"t": "lend", "id": job.number, "address": address_of(job.lent.view)}
            self._order_memory(order, job.lent.descriptor)

    def _order_memory(self, order: dict[str, Any], *descriptors: int) -> bool:
        """An order with memory to map; False if it cannot be sent: frames then come from the stack."""
        try:
            self._order({**order, "fds": len(descriptors)}, *descriptors)
        except OSError as error:
            logger.warning("views get no frames from memory (%s): %s", order["t"], error)
            return False
        return True

    def _order(self, order: dict[str, Any], *descriptors: int) -> None:
        """Descriptors are copied: what they belong to may be gone when the order leaves. Raises OSError."""
        if self._child is None or self._child.is_ending:
            return
        copies: list[int] = []
        try:
            for descriptor in descriptors:
                copies.append(os.dup(descriptor))
        except OSError:
            for copy in copies:
                os.close(copy)
            raise
        self._child.orders.append((json.dumps(order).encode() + b"\n", copies))

    def _start(self) -> None:
        try:
            self._child = self._spawn()
        except OSError as error:
            logger.error("cannot start the views' process: %s", error)  # noqa: TRY400 - tried again, with a pause
            self._start_at_s = time.monotonic() + LONGEST_PAUSE_S
            return
        self._idle_since_s = time.monotonic()
        self._share_memory()
        for job in self._jobs.values():
            job.begin()
            self._order_view(job)

    def _spawn(self) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        arguments = [*self._command, str(theirs.fileno()), str(os.getpid())]
        with theirs:
            try:
                # From the loop's own thread: the system ends the child with the thread that started it.
                process = subprocess.Popen(
                    arguments, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_environment()
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return _Child(process, ours, deque())

    def _share_memory(self) -> None:
        """The daemon's memory, and the word that tells of a backlog."""
        self._is_sharing = False
        if self._memory.descriptor is None:
            return
        self._board = self._board or PageMemory(_BOARD_BYTES, shared=True)
        if self._board.descriptor is None:
            logger.warning("views get no frames from memory: %s", self._board.private_reason)
            return
        self._is_sharing = self._order_memory({"t": "memory"}, self._memory.descriptor, self._board.descriptor)

    def _send(self, child: _Child) -> None:
        while child.orders:
            line, descriptors = child.orders[0]
            try:
                count = socket.send_fds(child.connection, [line], descriptors)
            except BlockingIOError:
                child.blocked_since_s = child.blocked_since_s or time.monotonic()
                return
            except OSError:
                return  # it is dying: seen by its end
            child.blocked_since_s = None
            for descriptor in descriptors:
                os.close(descriptor)
            if count < len(line):
                child.orders[0] = (line[count:], [])
                return
            child.orders.popleft()

    def _receive(self, child: _Child) -> None:
        for _ in range(_MAX_READS):
            try:
                data = child.connection.recv(_READ_BYTES)
            except OSError:
                return  # nothing now, or it is dying
            *lines, child.pending = (child.pending + data).split(b"\n")
            try:
                for line in lines:
                    self._note(json.loads(line))
                if len(child.pending) > _READ_BYTES:
                    raise ValueError(f"a line of more than {len(child.pending)} bytes")
            except (ValueError, KeyError, TypeError) as error:
                logger.error("the views' process says what cannot be understood (%r); it is killed", error)  # noqa: TRY400
                child.process.kill()
                return
            if not data:
                return

    def _note(self, report: dict[str, Any]) -> None:
        job = self._jobs.get(report["id"])
        if job is None:
            return  # dropped meanwhile
        if job.note(report):
            self._deaths = 0
        if job.is_failed:
            logger.error("view %s of %s failed %s", job.view, job.path, job.reason)
            job.record_failure()  # where the process could not
        elif job.is_ended:
            logger.info("view %s of %s is %s", job.view, job.path, job.state)
        if job.is_ended:
            self._forget(job)

    def _forget(self, job: ViewJob) -> None:
        del self._jobs[job.number]
        job.table = job.lent = None
        self._ended.append(job)

    def _note_death(self, code: int, now_s: float) -> None:
        """Start again after a pause; a view that never gets on is given up."""
        self._restarts += 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._deaths, 10), LONGEST_PAUSE_S)
        self._deaths += 1
        how = exit_text(code)
        logger.error("the views' process died (%s); %d views go on in %.1f s", how, len(self._jobs), pause_s)
        for job in list(self._jobs.values()):
            job.note_death()
            if job.deaths >= MAX_DEATHS:
                job.give_up(f"the process died {job.deaths} times ({how}) and the view did not get on")
                logger.error("view %s of %s is given up: %s", job.view, job.path, job.reason)
                self._forget(job)
        self._start_at_s = now_s + pause_s

    def _abandon(self, reason: str) -> None:
        """No more views from this daemon."""
        self._fault = reason
        for job in list(self._jobs.values()):
            job.give_up(reason)
            self._forget(job)
        if self._child is not None:
            self._child.process.kill()

    def _tell_end(self, child: _Child) -> None:
        """End of file: it saves all views and ends."""
        if not child.is_ending:
            child.is_ending = True
            with contextlib.suppress(OSError):  # it is dying already
                child.connection.shutdown(socket.SHUT_WR)

    def _release(self, child: _Child) -> None:
        child.connection.close()
        for _, descriptors in child.orders:
            for descriptor in descriptors:
                os.close(descriptor)
        self._child = None


def _environment() -> dict[str, str]:
    """This process's, and where this package is: the child looks for modules there, not in its working directory."""
    root = os.path.dirname(os.path.dirname(acqstream.__file__))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
