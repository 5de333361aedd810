"""The findings and actions of a repair, done or planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_FINDINGS = 10_000  # kept of each kind; all are counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One frame or place. offset is bytes from the start of `file`, a name in the level's folder."""

    file: str
    offset: int
    text: str


@dataclass(slots=True)
class Findings:
    """Findings of one kind: how many, and the first of them."""

    count: int = 0
    first: list[Finding] = field(default_factory=list)

    def add(self, file: str, offset: int, text: str) -> None:
        self.count += 1
        if len(self.first) < MAX_FINDINGS:
            self.first.append(Finding(file, offset, text))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.first)

    def __len__(self) -> int:
        return self.count


@dataclass(slots=True)
class LevelReport:
    """One folder with an index.

    kept counts entries that stay byte for byte, recovered those rebuilt; guessed are frames of these two about which
    something is not certain. lost are frames that cannot be had back, dropped old entries that are left out, each with
    its reason. changed: the index is another one now; backup is the name under which the old one was kept.
    """

    folder: str
    kept: int = 0
    recovered: int = 0
    guessed: Findings = field(default_factory=Findings)
    lost: Findings = field(default_factory=Findings)
    dropped: Findings = field(default_factory=Findings)
    finished_stacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: bool = False
    backup: str = ""


@dataclass(slots=True)
class RepairReport:
    """The whole dataset, level by level, full resolution first. With dry_run nothing was written."""

    path: str
    dry_run: bool
    levels: list[LevelReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state_changed: bool = False

    @property
    def lost(self) -> int:
        """Frames lost in all levels."""
        return sum(level.lost.count for level in self.levels)

    @property
    def is_whole(self) -> bool:
        """Nothing was to be done."""
        return not self.state_changed and not any(level.changed or level.finished_stacks for level in self.levels)
