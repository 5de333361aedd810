"""A few numbers that a producer tells its parent, and that outlive the producer's own death: a mapped file."""

from __future__ import annotations

import enum
from pathlib import Path

import numpy as np


class Phase(enum.IntEnum):
    """How far a producer is."""

    STARTING = 0
    OPENING = 1
    RUNNING = 2
    CLOSING = 3
    CLOSED = 4
    FAILED = 5


_FIELDS = ("phase", "stop", "next", "received", "published", "durable", "warned")


class ProgressBoard:
    """Integers in a file, written by one process and read by another; each is one aligned word."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self._words = np.memmap(path, np.int64, "w+" if create else "r+", shape=(len(_FIELDS),))

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self._words[_FIELDS.index(name)] = value

    def _get(self, name: str) -> int:
        return int(self._words[_FIELDS.index(name)])

    @property
    def phase(self) -> Phase:
        return Phase(self._get("phase"))

    @property
    def is_live(self) -> bool:
        """The run has been asked for and has not ended."""
        return Phase.OPENING <= self.phase <= Phase.CLOSING

    @property
    def stop(self) -> bool:
        """The parent wants the run closed."""
        return bool(self._get("stop"))

    @property
    def next(self) -> int:
        """The first frame number that was not given out yet."""
        return self._get("next")

    @property
    def received(self) -> int:
        return self._get("received")

    @property
    def published(self) -> int:
        """What the daemon acknowledged as published, the most there was."""
        return self._get("published")

    @property
    def durable(self) -> int:
        """What it acknowledged as durable, the most there was."""
        return self._get("durable")

    @property
    def warned(self) -> int:
        """How many warnings the run has had that say that the disk is full."""
        return self._get("warned")
