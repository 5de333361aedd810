"""What a log does for the views of its dataset: by default nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acqstream.pipeline.views.recent_groups import GroupTable


def _none(_stored: int) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class LogViews:
    """table takes the groups that are in memory. texts says for the receipt, given the number of frames stored, how far
    each view is, by name; called from the log's own threads."""

    table: GroupTable | None = None
    texts: Callable[[int], Mapping[str, str]] = _none


NO_VIEWS = LogViews()
