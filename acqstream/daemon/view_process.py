"""Supervises the view worker, the one child process that makes all views of a daemon.

Used by the daemon's loop, which no call here blocks. The worker is started when there is a view to make, and ended when
it has been idle for a while: then its memory goes back to the system. It is restarted from the checkpoints when it
dies. Orders and reports are described in `acqstream.mirrors.view_worker`.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.daemon.child_process import ChildSupervisor, InvalidReport, WorkerProcess, exit_text, replaced_hint
from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.daemon.view_job import ViewJob
from acqstream.log.recent_frames import GroupTable, address_of
from acqstream.model.status import ViewProcessStatus
from acqstream.model.view_spec import PYRAMID_KIND, MirrorResult, ViewSpec
from acqstream.storage.handover import orders_unavailable_reason
from acqstream.storage.page_memory import PageMemory, sharing_unavailable_reason

logger = logging.getLogger("acqstream.daemon")

MAX_DEATHS = 5  # of the worker while a view makes no progress: then the view has failed
MAX_BLOCKED_S = 30.0  # while the worker reads no orders: it hangs
FIRST_PAUSE_S = 0.1  # before a restart; doubled with every death without progress
MAX_PAUSE_S = 10.0
IDLE_S = 5.0  # without a view to make: the worker is ended
END_S = 5.0  # for saving all views when the daemon ends
MAX_ENDED_KEPT = 100
_TURN_S = 0.01  # turns of the loop that follow sooner are skipped
_BOARD_BYTES = 4096


class ViewProcess:
    """All views of one daemon, and the process that makes them.

    command starts the worker, with the numbers of the socket and of this process added. options: by kind of view, for
    its constructor. mirror_memory_mb is the memory of one mirror, keep_free_mb the free space that mirrors and
    levels leave to the logs, in MiB.
    """

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-P", "-m", "acqstream.mirrors.view_worker"),
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        mirror_memory_mb: int = 1024,
        keep_free_mb: int = 0,
    ) -> None:
        mirror_options = {"memory_mb": mirror_memory_mb, "keep_free_mb": keep_free_mb}
        given = dict(options or {})
        given[PYRAMID_KIND] = {"keep_free_mb": keep_free_mb, **given.get(PYRAMID_KIND, {})}
        self._orders = ViewOrders(given, mirror_options)
        self._child = ChildSupervisor(
            "view process", lambda: WorkerProcess(command), first_pause_s=FIRST_PAUSE_S, max_pause_s=MAX_PAUSE_S
        )
        self._jobs: dict[int, ViewJob] = {}
        self._newest: dict[tuple[str, str], ViewJob] = {}  # of `_jobs`, by dataset and name of the view
        self._search: threading.Thread | None = None  # for what earlier daemons left
        self._left_over: deque[tuple[str, ViewSpec]] = deque()  # what it found, for the loop
        self._ended: deque[ViewJob] = deque(maxlen=MAX_ENDED_KEPT)
        self._numbers = itertools.count(1)
        self._idle_since_s = 0.0
        self._turn_at_s = 0.0
        self._restarts = 0
        self._is_stopped = False
        self._kernels = ""  # of the last worker that reported them
        self._fault = ""  # of this daemon; it makes no views then

    @property
    def unavailable_reason(self) -> str:
        """Why this system cannot make views beside the log; empty where it can."""
        return orders_unavailable_reason()

    @property
    def is_busy(self) -> bool:
        """True while a view is not complete, also one that waits for space or for its process, or may be found."""
        is_searching = self._search is not None and self._search.is_alive()  # first: what it found comes before its end
        return is_searching or bool(self._left_over or self._jobs)

    @property
    def _worker(self) -> WorkerProcess | None:
        return self._child.process

    def make_table(self) -> GroupTable | None:
        """Return a table for a log to fill, None where memory cannot be shared."""
        table = GroupTable()
        return table if table.descriptor is not None else None

    def add(
        self,
        path: str,
        spec: ViewSpec,
        *,
        table: GroupTable | None = None,
        memory: PageMemory | None = None,
        lent: ProducerMemory | None = None,
    ) -> ViewJob:
        """Have a view made of the dataset in folder `path`; the other arguments are those of ViewJob."""
        earlier = self._newest.get((path, spec.name))
        if earlier is not None:
            del self._jobs[earlier.number]
            if self._worker is not None:
                self._worker.order({"t": "drop", "id": earlier.number})
        job = ViewJob(next(self._numbers), path, spec, table, memory, lent=lent)
        self._jobs[job.number] = self._newest[path, spec.name] = job
        if self._fault:
            job.fail(self._fault)
            self._forget(job)
        elif self._worker is not None:
            self._orders.make_view(self._worker, job)
        return job

    def resume(self, unfinished: Iterable[tuple[Path, ViewSpec]]) -> None:
        """Have views made that an earlier daemon left, once. `unfinished` may read the disk: a thread iterates it."""
        if not self.unavailable_reason:
            self._search = threading.Thread(target=self._find, args=(unfinished,), name="unfinished-views", daemon=True)
            self._search.start()

    def _find(self, unfinished: Iterable[tuple[Path, ViewSpec]]) -> None:
        for folder, spec in unfinished:
            if self._is_stopped:
                return
            self._left_over.append((str(folder), spec))

    def _add_left_over(self) -> None:
        """Add the views that were found, except those of acquisitions that were resumed meanwhile."""
        while self._left_over and not self._is_stopped:
            path, spec = self._left_over.popleft()
            if (path, spec.name) not in self._newest:
                self.add(path, spec)

    def lend(self, job: ViewJob, memory: ProducerMemory | None) -> None:
        """Tell the worker that frames of this view's log will arrive in the producer's memory."""
        if job.number in self._jobs:
            job.lent = memory
            if self._worker is not None:
                self._orders.lend(self._worker, job)

    def tick(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        """Run one turn of the loop. is_busy returns whether a log has a backlog. Raises nothing."""
        if now_s - self._turn_at_s < _TURN_S:
            return
        self._turn_at_s = now_s
        self._add_left_over()
        if self._fault:
            if self._worker is not None and self._worker.poll() is not None:
                self._child.release()
            return
        try:
            self._turn(now_s, is_busy)
        except Exception as error:
            # The loop serves all acquisitions: an error here ends the views and nothing else.
            logger.exception("internal error while supervising views; no views until the daemon is restarted")
            self._abandon(f"an internal error of the daemon: {type(error).__name__}: {error}")

    def _turn(self, now_s: float, is_busy: Callable[[], bool]) -> None:
        if self._jobs and not self._is_stopped and self._child.start_if_due(now_s):
            self._begin(now_s)
        worker = self._worker
        if worker is None:
            return
        self._orders.show_backlog(is_busy)
        self._receive(worker)
        worker.send()
        if worker.blocked_s > MAX_BLOCKED_S:
            logger.error("view process unresponsive for %.0f s; killing it", worker.blocked_s)
            worker.kill()
        if (code := worker.poll()) is not None:
            self._receive(worker)  # its last reports
            self._child.release()
            if self._jobs and not self._is_stopped and not worker.is_ending:
                self._note_death(code, now_s)
        elif self._jobs and not worker.is_ending:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s > IDLE_S + END_S:
            worker.kill()
        elif now_s - self._idle_since_s > IDLE_S:
            worker.end()

    def status(self) -> ViewProcessStatus:
        """Return the status of the process and of all views that are not complete."""
        failed = [job for job in self._ended if job.is_failed]
        return ViewProcessStatus(
            pid=self._child.pid,
            restarts=self._restarts,
            memory=sharing_unavailable_reason() or "shared",
            kernels=self._kernels,
            mirrors=tuple(job.unfinished_status() for job in (*self._jobs.values(), *failed)),
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
        self._child.release()

    def results(self, path: str) -> dict[str, MirrorResult]:
        """Return the recent views of the dataset in this folder, by name."""
        return {job.spec.name: job.result() for job in (*self._ended, *self._jobs.values()) if job.path == path}

    def _begin(self, now_s: float) -> None:
        """Give all orders to a worker that was started."""
        worker = self._worker
        assert worker is not None
        self._idle_since_s = now_s
        self._orders.begin(worker)
        for job in self._jobs.values():
            job.begin()
            self._orders.make_view(worker, job)

    def _receive(self, worker: WorkerProcess) -> None:
        try:
            for report in worker.reports():
                self._note(report)
        except (InvalidReport, KeyError, ValueError, TypeError) as error:
            logger.error("view process sent an invalid report (%r); killing it", error)  # noqa: TRY400 - not ours
            worker.kill()

    def _note(self, report: dict[str, Any]) -> None:
        if "kernels" in report:
            self._kernels = str(report["kernels"])
            return
        job = self._jobs.get(report["id"])
        if job is None:
            return  # dropped meanwhile
        if job.note(report):
            self._child.deaths = 0
        if job.is_failed:
            logger.error("view %s of %s failed %s", job.spec.name, job.path, job.reason)
            job.record_failure()  # the worker may have been unable to
        elif job.is_ended:
            logger.info("view %s of %s is %s", job.spec.name, job.path, job.progress.state)
        if job.is_ended:
            self._forget(job)

    def _forget(self, job: ViewJob) -> None:
        del self._jobs[job.number], self._newest[job.path, job.spec.name]
        job.forget_memory()
        self._ended.append(job)

    def _note_death(self, code: int, now_s: float) -> None:
        """Restart after a pause; a view that makes no progress over several deaths has failed."""
        self._restarts += 1
        pause_s = self._child.note_death(now_s)
        how = "; ".join(filter(None, (exit_text(code), replaced_hint())))
        logger.error("view process died (%s); resuming %d views in %.1f s", how, len(self._jobs), pause_s)
        for job in list(self._jobs.values()):
            job.note_death()
            if job.deaths >= MAX_DEATHS:
                job.abandon(f"the process died {job.deaths} times ({how}) and the view made no progress")
                logger.error("view %s of %s abandoned: %s", job.spec.name, job.path, job.reason)
                self._forget(job)

    def _abandon(self, reason: str) -> None:
        """Make no more views in this daemon."""
        self._fault = reason
        for job in list(self._jobs.values()):
            job.abandon(reason)
            self._forget(job)
        if self._worker is not None:
            self._worker.kill()


class ViewOrders:
    """options: by kind of view, for its constructor; mirror_options: for that of
    all mirrors.
    """

    def __init__(self, options: Mapping[str, Mapping[str, Any]], mirror_options: Mapping[str, Any]) -> None:
        self._options = options
        self._mirror_options = mirror_options
        self._board: PageMemory | None = None  # its first byte reports a backlog of a log
        self._is_sharing = False

    def begin(self, worker: WorkerProcess) -> None:
        """Send the first order of a worker: the board."""
        self._is_sharing = False
        if sharing_unavailable_reason():
            return
        self._board = self._board or PageMemory(_BOARD_BYTES, shared=True)
        if self._board.descriptor is None:
            logger.warning("views read no frames from memory: %s", self._board.private_reason)
            return
        self._is_sharing = _send_memory(worker, {"t": "board"}, self._board.descriptor)

    def show_backlog(self, is_busy: Callable[[], bool]) -> None:
        """Show the worker on the board whether a log has a backlog. Costs no message."""
        if self._board is not None:
            self._board.view[0] = is_busy()

    def make_view(self, worker: WorkerProcess, job: ViewJob) -> None:
        """Order a view, with the memory of its frames where that can be shared."""
        spec = job.spec
        options = dict(self._mirror_options) if spec.is_mirror else dict(self._options.get(spec.kind, {}))
        view = {"kind": spec.kind, "settings": dict(spec.settings), "name": spec.name}
        order = {
            "t": "view",
            "id": job.number,
            "path": job.path,
            "view": view,
            "options": options,
            "live": job.is_live,
            "deaths": job.deaths,
        }
        both = [one.descriptor for one in (job.table, job.memory) if one is not None and one.descriptor is not None]
        length = len(job.memory) if job.memory is not None else 0
        if self._is_sharing and job.memory is not None and job.memory.descriptor is None:
            logger.warning("views of %s read no frames from memory: %s", job.path, job.memory.private_reason)
        if len(both) == 2 and self._is_sharing and _send_memory(worker, {**order, "length": length}, *both):
            self.lend(worker, job)
        else:
            worker.order(order)

    def lend(self, worker: WorkerProcess, job: ViewJob) -> None:
        """Send the producer's memory, if the job has one."""
        if job.lent is not None and self._is_sharing:
            lent = job.lent
            order = {"t": "lend", "id": job.number, "address": address_of(lent.view), "claims": lent.claims}
            _send_memory(worker, order, lent.handle)


def _send_memory(worker: WorkerProcess, order: dict[str, Any], *descriptors: int) -> bool:
    """Send an order with memory to map. False if it cannot be sent: frames then come from the stack."""
    try:
        worker.order(order, *descriptors)
    except OSError as error:
        logger.warning("views read no frames from memory (%s): %s", order["t"], error)
        return False
    return True
