"""What is asked of a check: a data directory, and perhaps a camera that will be used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from acqstream.daemon.config import DaemonConfig
from acqstream.model.status import DaemonStatus


@dataclass(frozen=True, slots=True)
class PlannedCamera:
    """Frames of `shape` (Y, X) or (Y, X, 3), each pixel value of itemsize bytes, fps of them in a second."""

    shape: tuple[int, ...]
    itemsize: int
    fps: float

    @property
    def bytes_per_s(self) -> float:
        return math.prod(self.shape) * self.itemsize * self.fps


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """data: the data directory; camera: None if none is planned; config: of a daemon here.

    status: of the daemon that has the directory, else of the default one; None if none answers.
    """

    data: Path
    camera: PlannedCamera | None
    config: DaemonConfig
    status: DaemonStatus | None

    @property
    def running(self) -> tuple[str, ...]:
        """Names of the acquisitions that are open now: nothing may disturb them."""
        return tuple(one.name for one in self.status.acquisitions) if self.status is not None else ()
