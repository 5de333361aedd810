"""Supervises the view worker, the one child process that makes all views of a daemon.

Used by the daemon's loop, which no call here blocks. The worker is started when there is a view to make, restarted from
the checkpoints when it dies, and ended when it has been idle for a while.
"""

from __future__ import annotations

import itertools
import logging
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acqstream.daemon.exit_text import exit_text
from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.worker_process import InvalidReport, WorkerProcess
from acqstream.log.recent_groups import GroupTable, address_of
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.status import ViewProcessStatus
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.memory import PageMemory

logger = logging.getLogger("acqstream.daemon")

MAX_DEATHS = 5  # of the worker while a view makes no progress: then the view has failed
MAX_BLOCKED_S = 30.0  # while the worker reads no orders: it hangs
FIRST_PAUSE_S = 0.1  # before a restart; doubled with every death without progress
MAX_PAUSE_S = 10.0
IDLE_S = 5.0  # without a view to make: the worker is ended
END_S = 5.0  # for saving all views when the daemon ends
MAX_ENDED_KEPT = 100
_BOARD_BYTES = 4096
_TURN_S = 0.01  # turns of the loop that follow sooner are skipped


class ViewProcess:
    """All views of one daemon, and the process that makes them. memory is the daemon's frame memory.

    command starts the worker, with the numbers of the socket and of this process added. options: by kind of view, for
    its constructor. mirror_memory_mb is the memory of one mirror, in MiB.
    """

    def __init__(
        self,
        memory: PageMemory,
        command: Sequence[str] = (sys.executable, "-P", "-m", "acqstream.mirrors.view_worker"),
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        mirror_memory_mb: int = 1024,
    ) -> None:
        self._memory = memory
        self._mirror_options = {"memory_mb": mirror_memory_mb}
        self._command = command
        self._options = options or {}
        self._board: PageMemory | None = None
        self._jobs: dict[int, ViewJob] = {}
        self._ended: deque[ViewJob] = deque(maxlen=MAX_ENDED_KEPT)
        self._numbers = itertools.count(1)
        self._worker: WorkerProcess | None = None
        self._start_at_s = 0.0
        self._idle_since_s = 0.0
        self._turn_at_s = 0.0
        self._deaths = 0  # in a row, without progress of any view
        self._restarts = 0
        self._is_stopped = False
        self._is_sharing = False
        self._fault = ""  # of this daemon; it makes no views then

    @property
    def unavailable_reason(self) -> str:
        """Why this system cannot make views beside the log; empty where it can."""
        is_available = hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds")
        return "" if is_available else "this system has no sockets that descriptors can be sent over"

    def make_table(self) -> GroupTable | None:
        """Return a table for a log to fill, None where memory cannot be shared."""
        table = GroupTable() if self._memory.descriptor is not None else None
        return table if table is not None and table.descriptor is not None else None

    def add(
        self,
        path: str,
        spec: ViewSpec,
        *,
        table: GroupTable | None = None,
        start: int = 0,
        length: int = 0,
        lent: ProducerMemory | None = None,
    ) -> ViewJob:
        """Have a view made of the dataset in folder `path`; the other arguments are those of ViewJob."""
        for known in list(self._jobs.values()):
            if (known.path, known.spec.name) == (path, spec.name):
                self._drop(known)
        job = ViewJob(next(self._numbers), path, spec, table, start, length, lent=lent)
        self._jobs[job.number] = job
        if self._fault:
            job.fail(self._fault)
            self._forget(job)
        else:
            self._order_view(job)
        return job

    def lend(self, job: ViewJob, memory: ProducerMemory | None) -> None:
        """Tell the worker that frames of this view's log will arrive in the producer's memory."""
        if job.number in self._jobs:
            job.lent = memory
            self._order_lent(job)

    def look_after(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        """Run one turn of the loop. is_busy returns whether a log has a backlog. Raises nothing."""
        if now_s - self._turn_at_s < _TURN_S:
            return
        self._turn_at_s = now_s
        if self._fault:
            if self._worker is not None and self._worker.exit_code is not None:
                self._release(self._worker)
            return
        try:
            self._turn(now_s, is_busy)
        except Exception as error:
            # The loop serves all acquisitions: an error here ends the views and nothing else.
            logger.exception("internal error while supervising views; no views until the daemon is restarted")
            self._abandon(f"an internal error of the daemon: {type(error).__name__}: {error}")

    def _turn(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        if self._worker is None and self._jobs and now_s >= self._start_at_s and not self._is_stopped:
            self._start()
        worker = self._worker
        if worker is None:
            return
        if self._board is not None:
            self._board.view[0] = is_busy()
        self._receive(worker)
        worker.send()
        if worker.blocked_s > MAX_BLOCKED_S:
            logger.error("view process unresponsive for %.0f s; killing it", worker.blocked_s)
            worker.kill()
        if worker.exit_code is not None:
            self._receive(worker)  # its last reports
            self._release(worker)
            if self._jobs and not self._is_stopped and not worker.is_ending:
                self._note_death(worker.exit_code, now_s)
        elif self._jobs and not worker.is_ending:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s > IDLE_S + END_S:
            worker.kill()
        elif now_s - self._idle_since_s > IDLE_S:
            worker.end()

    def status(self) -> ViewProcessStatus:
        """Return the status of the process and of all views that are not complete."""
        return ViewProcessStatus(
            pid=self._worker.pid if self._worker is not None else None,
            restarts=self._restarts,
            memory=self._memory.private_reason or "shared",
            mirrors=tuple(job.unfinished_status() for job in self._all_jobs()),
        )

    def stop(self) -> None:
        """Have all views saved, as the daemon is ending. Does not wait."""
        self._is_stopped = True
        if self._worker is not None:
            self._worker.end()

    def close(self) -> None:
        """`stop`, and wait up to END_S until the views are saved."""
        self.stop()
        worker = self._worker
        if worker is None:
            return
        if not worker.wait(END_S):
            logger.warning("view process did not end within %s s; killed", END_S)
        self._release(worker)

    def results(self, path: str) -> dict[str, MirrorResult]:
        """By name, the recent views of the dataset in this folder."""
        return {job.spec.name: job.result() for job in (*self._ended, *self._jobs.values()) if job.path == path}

    def _all_jobs(self) -> list[ViewJob]:
        return [*self._jobs.values(), *(job for job in self._ended if job.is_failed)]

    def _drop(self, job: ViewJob) -> None:
        del self._jobs[job.number]
        if self._worker is not None:
            self._worker.order({"t": "drop", "id": job.number})

    def _order_view(self, job: ViewJob) -> None:
        spec = job.spec
        options = self._mirror_options if spec.is_mirror else dict(self._options.get(spec.kind, {}))
        view = {"kind": spec.kind, "settings": dict(spec.settings), "name": spec.name}
        order = {"t": "view", "id": job.number, "path": job.path, "view": view, "options": options, "live": job.is_live}
        descriptor = job.table.descriptor if job.table is not None else None
        shared = {**order, "start": job.start, "length": job.length}
        if descriptor is not None and self._is_sharing and self._order_memory(shared, descriptor):
            self._order_lent(job)
        elif self._worker is not None:
            self._worker.order(order)

    def _order_lent(self, job: ViewJob) -> None:
        if job.lent is not None and self._is_sharing:
            order = {"t": "lend", "id": job.number, "address": address_of(job.lent.view)}
            self._order_memory(order, job.lent.descriptor)

    def _order_memory(self, order: dict[str, Any], *descriptors: int) -> bool:
        """Send an order with memory to map. False if it cannot be sent: frames then come from the stack."""
        if self._worker is None:
            return True
        try:
            self._worker.order(order, *descriptors)
        except OSError as error:
            logger.warning("views read no frames from memory (%s): %s", order["t"], error)
            return False
        return True

    def _start(self) -> None:
        try:
            self._worker = WorkerProcess(self._command)
        except OSError as error:
            logger.error("cannot start the view process: %s", error)  # noqa: TRY400 - retried after a pause
            self._start_at_s = time.monotonic() + MAX_PAUSE_S
            return
        self._idle_since_s = time.monotonic()
        self._share_memory()
        for job in self._jobs.values():
            job.begin()
            self._order_view(job)

    def _share_memory(self) -> None:
        """Send the daemon's memory, and the word that tells of a backlog."""
        self._is_sharing = False
        if self._memory.descriptor is None:
            return
        self._board = self._board or PageMemory(_BOARD_BYTES, shared=True)
        if self._board.descriptor is None:
            logger.warning("views read no frames from memory: %s", self._board.private_reason)
            return
        self._is_sharing = self._order_memory({"t": "memory"}, self._memory.descriptor, self._board.descriptor)

    def _receive(self, worker: WorkerProcess) -> None:
        try:
            for report in worker.reports():
                self._note(report)
        except (InvalidReport, KeyError, ValueError, TypeError) as error:
            logger.error("view process sent an invalid report (%r); killing it", error)  # noqa: TRY400 - not ours
            worker.kill()

    def _note(self, report: dict[str, Any]) -> None:
        job = self._jobs.get(report["id"])
        if job is None:
            return  # dropped meanwhile
        if job.note(report):
            self._deaths = 0
        if job.is_failed:
            logger.error("view %s of %s failed %s", job.spec.name, job.path, job.reason)
            job.record_failure()  # the worker may have been unable to
        elif job.is_ended:
            logger.info("view %s of %s is %s", job.spec.name, job.path, job.state)
        if job.is_ended:
            self._forget(job)

    def _forget(self, job: ViewJob) -> None:
        del self._jobs[job.number]
        job.table = job.lent = None
        self._ended.append(job)

    def _note_death(self, code: int, now_s: float) -> None:
        """Restart after a pause; a view that makes no progress over several deaths has failed."""
        self._restarts += 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._deaths, 10), MAX_PAUSE_S)
        self._deaths += 1
        how = exit_text(code)
        logger.error("view process died (%s); resuming %d views in %.1f s", how, len(self._jobs), pause_s)
        for job in list(self._jobs.values()):
            job.note_death()
            if job.deaths >= MAX_DEATHS:
                job.abandon(f"the process died {job.deaths} times ({how}) and the view made no progress")
                logger.error("view %s of %s abandoned: %s", job.spec.name, job.path, job.reason)
                self._forget(job)
        self._start_at_s = now_s + pause_s

    def _abandon(self, reason: str) -> None:
        """Make no more views in this daemon."""
        self._fault = reason
        for job in list(self._jobs.values()):
            job.abandon(reason)
            self._forget(job)
        if self._worker is not None:
            self._worker.kill()

    def _release(self, worker: WorkerProcess) -> None:
        worker.release()
        self._worker = None
