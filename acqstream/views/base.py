"""What a view is, to those who move it on: `acqstream.views.view.ViewRun`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.storage.disk import Disk
from acqstream.views.feed import Lease


@dataclass(frozen=True, slots=True)
class ViewSource:
    """What a view is made from, and where. dataset is the container, folder the view's own one beside it; reader is of
    the full resolution; request and dataset_id are those of acqstream.json; in datasets of other writers the one is
    empty, the other made from their summary. is_ours: an earlier run has begun with this dataset. may_use_disk is for
    threads of the view's own: it says whether a log has a backlog."""

    dataset: Path
    folder: Path
    reader: NDTiffReader
    disk: Disk
    request: Mapping[str, Any] = field(default_factory=dict)
    is_ours: bool = False
    dataset_id: str = ""
    may_use_disk: Callable[[], bool] = lambda: True


class View(ABC):
    """What is made of the frames. Used by one thread at a time; errors of all methods end the view, except DiskFull.

    A frame's pixels may prove overwritten after they were used: so `take` works on them and keeps nothing, `keep` adds
    what came of it. The disk is used only in the methods that say so: they are not called while the log has a backlog.
    After DiskFull those are called again, once there may be room: they must leave behind what they can go on with.

    Called once, in this order: `open`; `restore` where an earlier run left a checkpoint, `clear` where it is of no use;
    at the end `close`.
    """

    marks_first = False
    """There must be a checkpoint before anything else is written: it says whose the files are."""

    def open(self, source: ViewSource) -> None:  # noqa: B027
        """Uses the disk. Raises DatasetError if no view can be made of this dataset."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        """Resume from what `save` returned after `cursor` frames. Uses the disk.

        Files may hold more frames than the state: frames from `cursor` on come again. Raises CannotResume if the state
        is invalid or the view's files were changed: only then the view is cleared and restarted. Any other error fails
        the view and leaves its files as they are.
        """

    def clear(self) -> None:  # noqa: B027
        """Remove what an earlier run has made, also of another dataset. Uses the disk."""

    @property
    def most_digests(self) -> int:
        """How many there may be at once."""
        return 0

    def digest(self, pixels: NDArray[Any]) -> Any:
        """Do the work on the pixels of a frame that is not published yet; `take` gets what came of it with the lease.

        None: nothing can be done. What is returned may never come back. As `take` it changes nothing.
        """
        del pixels
        return None

    def take_together(self, cursor: int, count: int) -> int | None:
        """Take all frames from `cursor` up to `count` by means of its own; the cursor now, the old one while that takes
        a while: it is called again. None: they come one by one. Uses the disk.
        """
        del cursor, count
        return None

    def is_ready(self, row: int) -> bool:
        """Whether the frame in this row can be taken with the memory there is, and without the disk."""
        del row
        return True

    def is_nearly_ready(self, row: int) -> bool:
        """Whether `make_ready` needs but a few small files and frames: then it may be called during a backlog."""
        del row
        return False

    def make_ready(self, row: int) -> bool:
        """Make it so; False where that takes a while: it is called again. Uses the disk."""
        del row
        return True

    @abstractmethod
    def take(self, lease: Lease) -> Any:
        """Work on one frame; what comes of it. The view itself does not change."""

    @abstractmethod
    def keep(self, taken: Any) -> None:
        """Add what `take` returned."""

    @property
    def taken_ahead(self) -> int:
        """How many frames behind the cursor are taken, too: worth saving."""
        return 0

    @property
    def warning(self) -> str:
        """What the operator should know of the result, once it is sure."""
        return ""

    @property
    def waiting(self) -> int:
        """How many pieces of the result are begun, and cannot be written before more frames come, or the end."""
        return 0

    def work(self, now_s: float, *, is_idle: bool) -> None:  # noqa: B027
        """Write what is due. is_idle: all published frames are taken. Uses the disk."""

    def settle(self) -> bool:
        """Write all that was taken, as it is; False where that takes a while: it is called again. Uses the disk."""
        return True

    def finish(self) -> bool:
        """All frames are taken, and for now none will come: write the rest. As `settle`."""
        return True

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """What `restore` takes, as JSON values, with everything that it names forced to the disk."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """What it has made, for people."""

    def close(self) -> None:  # noqa: B027
        """Close all files, as they are. Repeating it changes nothing."""
