"""The view worker: a child process of the daemon that makes all its views and cannot write the log.

`acqstream.daemon.child_process` starts `python -m acqstream.mirrors.view_worker SOCKET PARENT`. The daemon sends lines
of JSON over the socket in this order. A line with "fds" comes with so many descriptors of shared memory; on Windows it
has "handles" instead, a list of handles of this process:

    {"t": "board", "fds": 1}                  the daemon's board (word 0: a log has a backlog)
    {"t": "view", "id", "path", "view",       make this view, a ViewSpec; "live" if frames are arriving; with "fds": 2
     "live", "options", "deaths"}             the table of the acquisition's groups and its memory, of "length" bytes;
                                              "options" are for the view's constructor, "deaths" those of this process
                                              since the view's last progress
    {"t": "lend", "id", "fds": 1, "address",  memory of that acquisition's producer, its address in the daemon, and
     "claims"}                                where the producer states which frames it overwrites, or null
    {"t": "drop", "id"}                       forget this view
    end of file                               save all views and end

The worker sends {"kernels"} first: "compiled" or "numpy". Then it sends a line for each view whose progress has
changed: {"id", "reason"} and the fields of ViewProgress.
"""

from __future__ import annotations

import faulthandler
import gc
import heapq
import itertools
import json
import math
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from acqstream.errors import AcqStreamError
from acqstream.grid.kernels import kernels_name
from acqstream.log.recent_frames import RecentGroups
from acqstream.mirrors.mirror_plan import folder_of, mirror_format, options_of
from acqstream.mirrors.mirror_view import KEPT_BYTES, MirrorView
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.handover import receive_orders
from acqstream.storage.patient_output import never_wait_for_output
from acqstream.storage.platform import child_process, keep_large_blocks
from acqstream.views.base import View
from acqstream.views.frame_feed import DiskAllowance
from acqstream.views.null_view import NullView
from acqstream.views.view_run import ViewProgress, ViewRun, ViewState

_T = TypeVar("_T")


class DueQueue(Generic[_T]):
    """From any thread. Times are those of time.monotonic."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # for all that follows
        self._due: list[tuple[float, int, _T]] = []  # a heap: when, tie-breaker, what
        self._tie = itertools.count()
        self._awaited_s = math.inf  # the earliest time for which a thread waits
        self._is_closed = False

    def push(self, item: _T, due_s: float, *, is_own: bool = False) -> None:
        """Have an item served. is_own: this thread calls `next` at once, so none is woken for it."""
        with self._changed:
            heapq.heappush(self._due, (due_s, next(self._tie), item))
            if not is_own:
                self._wake_one()

    def next(self) -> _T | None:
        """Wait for an item that is due, and take it. None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                due_s = self._due[0][0] if self._due else math.inf
                wait_s = due_s - time.monotonic()
                if wait_s <= 0:
                    item = heapq.heappop(self._due)[2]
                    self._wake_one()
                    return item
                if due_s < self._awaited_s:
                    self._awaited_s = due_s
                    self._changed.wait(wait_s)
                    if self._awaited_s == due_s:  # else another thread waits for an earlier one
                        self._awaited_s = math.inf
                else:
                    self._changed.wait()
            return None

    def close(self) -> None:
        """End all waiting; what is left is not served any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def left(self) -> list[_T]:
        """The items that were not taken."""
        with self._changed:
            return [item for _, _, item in self._due]

    def _wake_one(self) -> None:
        """Have a thread wait for the next item, unless one does: whichever is woken looks again."""
        if self._due and self._due[0][0] < self._awaited_s:
            self._changed.notify()


def view_maker(spec: ViewSpec, **options: Any) -> Callable[[], View]:
    """Return a function that makes an empty view. options are for its constructor: see MirrorView, PyramidView.

    Raises ConfigError for an unknown format or settings that the format refuses.
    """
    # Two kinds are loaded when they are asked for: this process starts with each run that has views.
    if spec.is_pyramid:
        from acqstream.views.pyramid_view import PyramidView

        return partial(PyramidView, **options)
    if not spec.is_mirror:
        return partial(NullView, **options)
    found, settings = mirror_format(spec), spec.mirror_settings
    make: Callable[[], View] = partial(MirrorView, found, settings, **options)
    if found.is_by_reference(options_of(found, settings)):
        from acqstream.mirrors.reference_view import ReferenceView

        make = partial(ReferenceView, found, settings, **options)
    make()  # raises for settings that the format refuses
    return make


THREADS = 4
MAX_CATCHING_UP = 8  # finished datasets at once: the index of each takes memory
REPORT_INTERVAL_S = 0.1
_PASSING = frozenset({ViewState.RUNNING, ViewState.WAITING, ViewState.HELD})


class WorkerJob:
    """One view being made: its run, and its last report."""

    def __init__(self, number: int, run: ViewRun, *, is_live: bool) -> None:
        self.number = number
        self.run = run
        self.is_live = is_live
        self.is_dropped = False
        self._reported: tuple[ViewProgress, str] | None = None
        self._reported_at_s = self._looked_at_s = 0.0

    def is_report_due(self) -> bool:
        """False while a report is recent or nothing urgent has changed, without the cost of a progress."""
        last, run = self._reported, self.run
        if last is None or last[1] != run.reason or run.state not in _PASSING:
            return True
        now_s = time.monotonic()
        if now_s - max(self._reported_at_s, self._looked_at_s) < REPORT_INTERVAL_S:
            return False
        self._looked_at_s = now_s  # nothing may have changed: then no report renews the other time
        return True

    def report(self, progress: ViewProgress, reason: str = "") -> bytes | None:
        """Return a line for the daemon, or None while nothing has changed."""
        if self._reported == (progress, reason):
            return None
        self._reported, self._reported_at_s = (progress, reason), time.monotonic()
        return _report(self.number, progress, reason)


def _report(number: int, progress: ViewProgress, reason: str) -> bytes:
    return json.dumps({"id": number, "reason": reason, **asdict(progress)}).encode() + b"\n"


class ViewWorker:
    """Takes orders from one socket; a few threads advance all views, one step at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._due: DueQueue[WorkerJob] = DueQueue()
        self._lock = threading.Lock()  # for the jobs below
        self._jobs: dict[int, WorkerJob] = {}
        self._queued: deque[WorkerJob] = deque()  # not started yet
        self._catching_up = 0  # jobs that were queued, and have started and not ended
        self._is_stopping = False
        self._board: memoryview | None = None
        self._allowance = DiskAllowance(lambda: not self._may_read())
        self._threads = [threading.Thread(target=self._work, name=f"view-{n}") for n in range(THREADS)]

    def run(self) -> None:
        """Serve until the daemon closes the connection, then save all views."""
        self._send(json.dumps({"kernels": kernels_name()}).encode() + b"\n")
        for thread in self._threads:
            thread.start()
        try:
            self._listen()
        finally:
            self._is_stopping = True
            self._due.close()
            for thread in self._threads:
                thread.join()
            for job in self._due.left():
                self._end(job)

    def _listen(self) -> None:
        for order, maps in receive_orders(self._connection):
            self._obey(order, maps)
            maps.clear()  # the view alone keeps what it uses

    def _obey(self, order: dict[str, Any], maps: list[memoryview]) -> None:
        if order["t"] == "board":
            self._board = maps[0].cast("q")
            return
        with self._lock:
            if order["t"] == "view":
                try:
                    run = self._make_run(order, maps)
                except AcqStreamError as error:  # of this view: the others continue
                    self._send(_report(order["id"], ViewProgress(ViewState.FAILED), str(error)))
                    return
                job = self._jobs[order["id"]] = WorkerJob(order["id"], run, is_live=order["live"])
                if job.is_live:
                    self._due.push(job, 0.0)
                else:
                    self._queued.append(job)
                    self._admit()
            elif (known := self._jobs.get(order["id"])) is None:
                return  # the view has ended meanwhile
            elif order["t"] == "lend":
                if known.run.recent is not None:
                    known.run.recent.lend(order["address"], maps[0], order["claims"])
            else:
                known.is_dropped = True

    def _make_run(self, order: dict[str, Any], maps: list[memoryview]) -> ViewRun:
        recent = None
        if maps:
            recent = RecentGroups(maps[0], maps[1][: order["length"]])
        path, spec = Path(order["path"]), ViewSpec(**order["view"])
        return ViewRun(
            path,
            spec.name,
            view_maker(spec, **order["options"]),
            folder=folder_of(path, spec),
            recent=recent,
            may_read=self._may_read,
            deaths=order["deaths"],
            allowance=self._allowance if recent is not None else None,  # a view that catches up can wait
        )

    def _may_read(self) -> bool:
        return self._board is None or not self._board[0]

    def _work(self) -> None:
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Advance the view that is due, once it is; False at the end. While it waits it keeps none, nor its memory."""
        job = self._due.next()
        if job is None:
            return False
        wait_s = self._step(job)
        if wait_s is not None:
            self._due.push(job, time.monotonic() + wait_s, is_own=True)
            return True
        with self._lock:
            del self._jobs[job.number]
            self._catching_up -= not job.is_live
            self._admit()
        return True

    def _admit(self) -> None:
        """Start queued jobs, up to MAX_CATCHING_UP at once."""
        while self._queued and self._catching_up < MAX_CATCHING_UP:
            self._catching_up += 1
            self._due.push(self._queued.popleft(), 0.0)

    def _step(self, job: WorkerJob) -> float | None:
        """As ViewRun.step. An error ends the view and nothing else."""
        if job.is_dropped:
            self._end(job)
            return None
        try:
            wait_s = job.run.step()
        except Exception as error:  # noqa: BLE001 - the thread's edge: it reaches the daemon's log and status
            self._fail(job, error)
            return None
        if wait_s is None or job.is_report_due():
            self._send(job.report(job.run.progress(), job.run.reason))
        if wait_s is None:
            _close(job.run)
        return wait_s

    def _fail(self, job: WorkerJob, error: Exception) -> None:
        if not isinstance(error, AcqStreamError):
            traceback.print_exception(error)  # an error of ours: the traceback goes to the daemon's stderr
        progress = replace(job.run.progress(), state=ViewState.FAILED)
        _close(job.run)
        self._send(job.report(progress, job.run.failure_text(error)))

    def _end(self, job: WorkerJob) -> None:
        """Save the view: a later process resumes it."""
        try:
            job.run.save()
        except Exception as error:  # noqa: BLE001 - the process ends: all others are saved too
            sys.stderr.write(f"acqstream: cannot save view {job.run.folder}: {error}\n")
        self._send(job.report(job.run.progress(), job.run.reason))
        _close(job.run)

    def _send(self, line: bytes | None) -> None:
        if line is None:
            return
        with self._send_lock:
            try:
                self._connection.sendall(line)
            except OSError:
                return  # the daemon has ended: the end of file ends this process


def _close(run: ViewRun) -> None:
    """Close the files of a view. An error is logged only: all that matters was forced before."""
    try:
        run.close()
    except (OSError, AcqStreamError) as error:
        sys.stderr.write(f"acqstream: cannot close the files of view {run.folder}: {error}\n")


def main() -> None:
    """Run the process. Ctrl-C and SIGTERM go to the whole process group, but the daemon decides when to end."""
    for number in child_process.ignored_signals():
        signal.signal(number, signal.SIG_IGN)
    never_wait_for_output()
    faulthandler.enable()
    keep_large_blocks(KEPT_BYTES)
    child_process.follow_parent(sys.argv[2])
    child_process.yield_to_parent()
    gc.freeze()  # what was loaded stays: no collection looks at it again
    with child_process.adopt_connection(sys.argv[1]) as connection:
        ViewWorker(connection).run()


if __name__ == "__main__":
    main()
