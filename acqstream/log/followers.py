"""The log's export for followers of its dataset: the recent frames in memory. By default nothing follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from acqstream.log.recent_groups import GroupTable


def _no_texts(_stored: int) -> Mapping[str, str]:
    return {}


def _ignore(_folder: Path) -> None:
    return


@dataclass(frozen=True, slots=True)
class Followers:
    """table gets the groups that are in memory; followers read it as `recent_groups.RecentGroups`. texts returns, for
    the receipt, how far each follower is, by name, given the number of frames stored. begin is called with the folder
    once its files exist. Both are called in the log's own threads.
    """

    table: GroupTable | None = None
    texts: Callable[[int], Mapping[str, str]] = _no_texts
    begin: Callable[[Path], None] = _ignore


NO_FOLLOWERS = Followers()
