"""The readers and the registry entry of a frame format, which keeps each frame as it came: NDTiff."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.model.axes import Axes, AxisValue
from acqstream.model.state import AcquisitionState


class FrameReader(Protocol):
    """Reads one frame-format dataset (or one level of it), finished or growing."""

    @property
    def path(self) -> Path: ...
    @property
    def container(self) -> Path:
        """The folder of the whole dataset, with all levels."""

    @property
    def level(self) -> int:
        """Resolution level n: reduced 2^n times, 0 is the full resolution."""

    @property
    def tile_overlap(self) -> tuple[int, int] | None:
        """Pixels (y, x) that a stored frame shares with its neighbours in `row` and `column`; None without tiles."""

    @property
    def summary_metadata(self) -> Mapping[str, Any]: ...
    @property
    def declared_axes(self) -> Sequence[Mapping[str, Any]]:
        """The axes that the producer declared when it opened the acquisition, as in the request; empty: it did not."""

    @property
    def declared_order(self) -> Sequence[str]:
        """The order of axes that the producer asked for, slowest first; empty: it asked for none."""

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """Display settings of the channels; empty if unknown."""

    @property
    def complete(self) -> bool:
        """Nothing will be added any more."""

    @property
    def writing(self) -> bool:
        """True while frames may come. An interrupted acquisition is neither writing nor complete."""

    @property
    def making_levels(self) -> bool:
        """True while lower levels are still made from frames that are all there."""

    @property
    def levels_failure(self) -> str:
        """Reason why lower levels were abandoned unfinished; empty if they were not."""

    @property
    def state(self) -> AcquisitionState | None:
        """State file of our own writer; None in a dataset of another writer."""

    def __len__(self) -> int: ...
    def next_level(self) -> FrameReader | None:
        """A reader of the next lower resolution level; None while there is none."""

    def refresh(self) -> range:
        """Look for newly published frames; their rows, in order of arrival."""

    def key(self, row: int) -> dict[str, AxisValue]: ...
    def keys(self, rows: range | None = None) -> Iterator[dict[str, AxisValue]]:
        """Every distinct key once, in order of first arrival; of these rows only, where given."""

    def row(self, axes: Axes) -> int:
        """The row of the frame with exactly these axes. Raises FrameNotFound."""

    def find(self, axes: Axes) -> int | None:
        """As `row`; None if the frame is missing."""

    def count_full_keys(self) -> int:
        """Number of distinct keys that have a value on every axis seen so far."""

    def axis_values(self) -> dict[str, list[AxisValue]]:
        """Values seen so far, axes as they appeared; integers ascending, then names as they appeared."""

    def key_kinds(self) -> list[tuple[str, ...]]:
        """The sets of axes that frames have, each once."""

    def frame_shape(self, row: int) -> tuple[int, ...]: ...
    def frame_dtype(self, row: int) -> np.dtype[np.generic]: ...
    def read_pixels(self, row: int) -> NDArray[np.generic]: ...
    def read_rows(self, row: int, first: int, stop: int) -> NDArray[np.generic]:
        """The rows first .. stop - 1 of the pixels of a frame."""

    def read_in_order(self) -> Iterator[tuple[int, NDArray[np.generic]]]:
        """The rows with their frames, in order of arrival; the latest of rows with equal axes."""

    def read_metadata(self, row: int) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFormat:
    """Registry entry of a frame format.

    detect is cheap and true when `path` (container, level, or file in it) is of this format; looked_for tells users
    what it looks for. open returns the readers of all levels, the full resolution first. folder is the container of the
    dataset at `path`. check reports whatever breaks the format in a dataset's container, all levels, and returns the
    frames of the full resolution; while the dataset is growing its unfinished end is not a problem.
    """

    name: str
    looked_for: str
    detect: Callable[[Path], bool]
    open: Callable[[Path], Sequence[FrameReader]]
    folder: Callable[[Path], Path]
    check: Callable[[Path, CheckReport, bool], FrameColumns]
