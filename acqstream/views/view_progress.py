"""Progress of a view, as its process reports it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ViewState(StrEnum):
    """State of a view."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # it has all frames so far, and more may come
    HELD = "held"  # the log has a backlog: no disk reads; or the disk is full
    LOCKED = "locked"  # another process makes this view
    INTERRUPTED = "interrupted"  # it has all frames of a dataset that may be resumed
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """cursor of count frames are taken; waiting is the number of pieces of the result that are not written yet.

    from_memory, from_stack and overtaken count frames of this process: taken from memory, from stack files, and
    overwritten in memory while they were used. warning is for the operator, about the result, space_warning about a
    disk on which it stores nothing more, restart_warning about a frame for which it is rebuilt when the run ends.
    bytes_per_frame is what the view needs of the disk for each further frame. saved is the cursor in the last
    checkpoint, saved_waiting the pieces that were not written then: what the next process has not to do again.
    """

    state: ViewState = ViewState.STARTING
    cursor: int = 0
    count: int = 0
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    waiting: int = 0
    warning: str = ""
    space_warning: str = ""
    restart_warning: str = ""
    bytes_per_frame: float = 0.0
    saved: int = -1
    saved_waiting: int = 0
