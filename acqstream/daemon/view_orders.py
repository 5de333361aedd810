"""Orders of the daemon to its view worker, with the memory that the worker maps.

`acqstream.mirrors.view_worker` describes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.worker_process import WorkerProcess
from acqstream.log.recent_frames import address_of
from acqstream.storage.memory import PageMemory

logger = logging.getLogger("acqstream.daemon")

_BOARD_BYTES = 4096


class ViewOrders:
    """memory is the daemon's frame memory. options: by kind of view, for its constructor; mirror_options: for that of
    all mirrors.
    """

    def __init__(
        self, memory: PageMemory, options: Mapping[str, Mapping[str, Any]], mirror_options: Mapping[str, Any]
    ) -> None:
        self._memory = memory
        self._options = options
        self._mirror_options = mirror_options
        self._board: PageMemory | None = None  # its first byte reports a backlog of a log
        self._is_sharing = False

    def begin(self, worker: WorkerProcess, ready_bytes: int) -> None:
        """Send the first orders of a worker: the daemon's memory and the board, and how much memory to keep ready."""
        if ready_bytes:
            worker.order({"t": "prepare", "bytes": ready_bytes})
        self._is_sharing = False
        if self._memory.descriptor is None:
            return
        self._board = self._board or PageMemory(_BOARD_BYTES, shared=True)
        if self._board.descriptor is None:
            logger.warning("views read no frames from memory: %s", self._board.private_reason)
            return
        self._is_sharing = _send_memory(worker, {"t": "memory"}, self._memory.descriptor, self._board.descriptor)

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
        descriptor = job.table.descriptor if job.table is not None else None
        shared = {**order, "start": job.start, "length": job.length}
        if descriptor is not None and self._is_sharing and _send_memory(worker, shared, descriptor):
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
