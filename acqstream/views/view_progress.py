"""How far a view is, and how it is: what the process that makes it tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ViewState(StrEnum):
    """How a view is."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # it has all frames, and more may come
    HELD = "held"  # the log has a backlog: no disk reads; or the disk is full
    LOCKED = "locked"  # another process makes this view
    INTERRUPTED = "interrupted"  # it has all frames of a dataset that may be gone on with
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """How far a view is. cursor of count frames are taken, waiting pieces of the result are not written yet; the other
    counts are of this process. warning: what the operator should know of the result."""

    state: ViewState = ViewState.STARTING
    cursor: int = 0
    count: int = 0
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    waiting: int = 0
    warning: str = ""
