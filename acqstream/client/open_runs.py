"""Registry of open runs, which ends them at interpreter exit."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Protocol

# Imported for its own exit hook: hooks run in reverse, and zero-copy sending must work until ours has run.
import zmq.utils.garbage  # noqa: F401

from acqstream.errors import AcqStreamError
from acqstream.storage.platform.capabilities import can_fork

EXIT_PATIENCE_S = 5.0
EXIT_REASON = "interpreter exit"

log = logging.getLogger(__name__)


class OpenRun(Protocol):
    is_closing: bool

    @property
    def name(self) -> str: ...

    @property
    def is_abandoned(self) -> bool: ...

    def end_at_exit(self, timeout_s: float) -> None:
        """Close as an error, waiting at most timeout_s. Raises the error of the run."""


_open: set[OpenRun] = set()
_lock = threading.RLock()  # a signal handler may close a run while its thread has it
if can_fork():
    os.register_at_fork(after_in_child=_open.clear)  # they are the parent's


def enter(run: OpenRun) -> None:
    """Keep `run` until `leave`, so that a run without any other reference is closed too."""
    with _lock:
        _open.add(run)


def leave(run: OpenRun) -> None:
    with _lock:
        _open.discard(run)


@atexit.register
def _end_all() -> None:
    with _lock:
        unfinished = [run for run in _open if not run.is_abandoned]
    for run in unfinished:
        what = "its close was interrupted; waiting for it" if run.is_closing else "never closed; ending it as an error"
        log.warning("run %s: %s", run.name, what)
        try:
            run.end_at_exit(EXIT_PATIENCE_S / len(unfinished))
        except AcqStreamError as error:
            log.error("run %s could not be ended in order: %s", run.name, error)  # noqa: TRY400 - the text is complete
        except Exception:
            log.exception("run %s could not be ended in order", run.name)
