"""One view that the daemon has asked for, as its process reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from acqstream.pipeline.views.recent_groups import GroupTable
from acqstream.pipeline.views.view import ViewState

_ENDED = frozenset({ViewState.COMPLETE, ViewState.INTERRUPTED, ViewState.FAILED})
_BLAMELESS = frozenset({ViewState.WAITING, ViewState.HELD, ViewState.LOCKED})


@dataclass(slots=True, eq=False)
class ViewJob:
    """path is the dataset's folder. table, start and length: see view_host; table is None once the log has ended."""

    number: int
    path: str
    view: str
    table: GroupTable | None
    start: int
    length: int
    state: ViewState = ViewState.STARTING
    cursor: int = 0
    count: int = 0
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    restarts: int = 0
    reason: str = ""
    deaths: int = 0  # of the process, since the view got on
    _best: int = -1  # the farthest cursor so far
    _before: tuple[int, int, int] = (0, 0, 0)  # from_memory, from_stack, overtaken of earlier processes

    @property
    def is_live(self) -> bool:
        """It was asked for while frames were coming."""
        return self.length > 0

    @property
    def is_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def is_failed(self) -> bool:
        return self.state is ViewState.FAILED

    def begin(self) -> None:
        """A process was started, which has not said anything yet."""
        self.state = ViewState.STARTING
        self._before = (self.from_memory, self.from_stack, self.overtaken)

    def note(self, report: dict[str, Any]) -> bool:
        """Take a report; True if the view has got on."""
        self.state = ViewState(report["state"])
        self.cursor, self.count, self.reason = report["cursor"], report["count"], report["reason"]
        self.from_memory = self._before[0] + report["from_memory"]
        self.from_stack = self._before[1] + report["from_stack"]
        self.overtaken = self._before[2] + report["overtaken"]
        if self.cursor <= self._best:
            return False
        self._best = self.cursor
        self.deaths = 0
        return True

    def note_death(self) -> None:
        """The process died; a view that had nothing to do then is not to blame."""
        self.restarts += 1
        if self.state not in _BLAMELESS:
            self.deaths += 1

    def fail(self, reason: str) -> None:
        self.state, self.reason = ViewState.FAILED, reason

    def status(self, stored: int = 0) -> dict[str, Any]:
        """Fields for `status`. stored: frames that the log has published, where it runs."""
        return {
            "cursor": self.cursor,
            "behind": max(self.count, stored) - self.cursor,
            "state": str(self.state),
            "from_memory": self.from_memory,
            "from_stack": self.from_stack,
            "overtaken": self.overtaken,
            "restarts": self.restarts,
            "reason": self.reason,
        }

    def text(self, stored: int = 0) -> str:
        """For the receipt."""
        if self.state is ViewState.FAILED:
            return f"failed {self.reason}"
        count = max(self.count, stored)
        if self.state is ViewState.COMPLETE or (self.state is ViewState.WAITING and self.cursor == count):
            return "complete"
        return f"under way: {self.cursor} of {count} frames"
