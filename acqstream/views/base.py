"""The interface of a view, as `acqstream.views.view_run.ViewRun` drives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.storage.files.disk import Disk
from acqstream.views.frame_feed import Lease, Waiting


@dataclass(frozen=True, slots=True)
class ViewSource:
    """The source of a view, and its folder.

    dataset is the container, folder the view's own one beside it; reader is of the full resolution. request and
    dataset_id are those of acqstream.json. In datasets of other programs request is empty, and dataset_id is made from
    their summary. is_ours: an earlier run has started with this dataset. may_use_disk is for threads of the view: it
    returns False while a log has a backlog.
    """

    dataset: Path
    folder: Path
    reader: NDTiffReader
    disk: Disk
    request: Mapping[str, Any] = field(default_factory=dict)
    is_ours: bool = False
    dataset_id: str = ""
    may_use_disk: Callable[[], bool] = lambda: True


class View(ABC):
    """A function of the frames. Used by one thread at a time; errors of all methods end the view, except DiskFull.

    A frame's pixels may prove overwritten after they were used. So `take` works on them and changes nothing; `keep`
    adds its outcome. The disk is used only in the methods that name it, and these are not called while the log has a
    backlog. After DiskFull they are called again once space may be free, so they must leave a state to continue from.

    Called once, in this order: `open`; `restore` if an earlier run left a usable checkpoint, `clear` if its checkpoint
    is unusable; at the end `close`.
    """

    marks_first = False
    """A checkpoint must exist before anything else is written: it names the dataset that the files belong to."""

    @property
    def made(self) -> Path | None:
        """The folder that it fills besides its own, once that was begun."""
        return None

    def open(self, source: ViewSource) -> None:  # noqa: B027
        """Uses the disk. Raises DatasetError if no view can be made of this dataset."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        """Resume from the state that `save` returned after `cursor` frames. Uses the disk.

        Files may have more frames than the state: frames from `cursor` on come again. Raises CannotResume if the state
        is invalid or the view's files were changed: only then the view is cleared and restarted. Any other error fails
        the view and leaves its files as they are.
        """

    def clear(self) -> None:  # noqa: B027
        """Remove the files of an earlier run, also those of another dataset. Uses the disk."""

    def is_ready(self, row: int) -> bool:
        """Return whether the frame in this row can be taken with the memory at hand, and without the disk."""
        del row
        return True

    def make_ready(self, row: int) -> Waiting | None:
        """Prepare for the frame in this row; if it has to wait, it is called again. Uses the disk."""
        del row
        return None

    def take_range(self, cursor: int, count: int) -> int | Waiting | None:
        """Take all frames from `cursor` up to `count` by other processes, and return the new cursor. Uses the disk.

        If it has to wait, it is called again. None: the frames have to come one by one, or by rows.
        """
        del cursor, count
        return None

    @property
    def frames_ahead(self) -> int:
        """Number of frames that were taken beyond the cursor; worth a checkpoint."""
        return 0

    def take_rows(self, cursor: int, count: int) -> int | None:
        """Take rows of the index from `cursor` up to `count`, at least one, without their pixels; the new cursor.

        Called after `make_ready` of the frame at the cursor. Uses no disk. None: the frames have to come one by one.
        """
        del cursor, count
        return None

    def take(self, lease: Lease) -> Any:
        """Work on one frame and return the outcome. The view itself does not change."""
        raise TypeError(f"{type(self).__name__} takes rows, not frame {lease.row}")

    def keep(self, taken: Any) -> None:
        """Add an outcome of `take`."""
        raise TypeError(f"{type(self).__name__} takes rows, not {taken!r}")

    @property
    def max_digests(self) -> int:
        """Number of digests that may exist at once."""
        return 0

    def digest(self, pixels: NDArray[Any]) -> Any:
        """Work on the pixels of a frame that is not published yet; `take` gets the outcome in the lease.

        None: no digest can be made now. A digest may never come back. The view itself does not change.
        """
        del pixels

    def is_nearly_ready(self, row: int) -> bool:
        """Return whether `make_ready` needs only a few small files and frames: then a backlog does not prevent it."""
        del row
        return False

    @property
    def warning(self) -> str:
        """A warning to the operator about the result, once it is certain; else empty."""
        return ""

    @property
    def space_warning(self) -> str:
        """A warning to the operator that it stores nothing for want of space, from the first time on; else empty."""
        return ""

    @property
    def restart_reason(self) -> str:
        """Why it takes no more frames, and is rebuilt when the log is no longer written; else empty.

        Then `make_ready` waits for the end, and raises CannotResume once the log is no longer written.
        """
        return ""

    @property
    def restart_warning(self) -> str:
        """Why it will be rebuilt when the log is no longer written, also while it takes frames; else empty."""
        return self.restart_reason

    @property
    def bytes_per_frame(self) -> float:
        """Bytes of disk that it needs for each further frame, by what is known so far; 0 while nothing is."""
        return 0.0

    @property
    def waiting(self) -> int:
        """Number of pieces of the result that are started and cannot be written before more frames come, or the end."""
        return 0

    def work(self, now_s: float, *, is_idle: bool) -> None:  # noqa: B027
        """Write what is due. is_idle: all published frames are taken. Uses the disk."""

    def settle(self) -> Waiting | None:
        """Write all frames taken, as they are; if it has to wait, it is called again. Uses the disk."""
        return None

    def finish(self) -> Waiting | None:
        """Write the remainder: all frames are taken, and for now none will come. As `settle`."""
        return None

    @abstractmethod
    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        """Return the state for `restore`, as JSON values, and a function that forces all that it names to the disk.

        The function is called in another thread, while frames are taken.
        """

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return the contents of the result, for people."""

    def close(self) -> None:  # noqa: B027
        """Close all files, as they are. Repeating it changes nothing."""
