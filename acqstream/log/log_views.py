"""What a log does for the views of its dataset: by default nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from acqstream.log.recent_groups import GroupTable


def _none(_stored: int) -> Mapping[str, str]:
    return {}


def _nothing(_folder: Path) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogViews:
    """table takes the groups that are in memory. texts says for the receipt, given the number of frames stored, how far
    each view is, by name. begin is told the folder once its files are there. Called from the log's own threads."""

    table: GroupTable | None = None
    texts: Callable[[int], Mapping[str, str]] = _none
    begin: Callable[[Path], None] = _nothing


NO_VIEWS = LogViews()
