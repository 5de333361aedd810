"""What a format gives to the writing side and to the reading side.

Two kinds of format: a frame format (NDTiff) keeps each frame as it came; a chunk format is an array cut into chunks.
This module holds the frame format's two faces: `FrameLayout`, pure, for the log; `FrameReader` for datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import Axes, AxisValue
from acqstream.model.frame_header import FrameHeader
from acqstream.model.state import AcquisitionState

BLOCK_BYTES = 4096
"""Commits and groups start and end on this boundary: the unit of direct I/O and of what survives a torn write."""


def align_up(offset: int, step: int = BLOCK_BYTES) -> int:
    """The smallest multiple of `step` that is not below `offset`."""
    return -(-offset // step) * step


class Placement(NamedTuple):
    """Where one frame lies in a stack file. All offsets are bytes from the start of the file.

    Frames are placed in groups: a group starts and ends on a block boundary and is written as one run of bytes. The
    offsets of directory and metadata of a packed frame are known when its group is closed (`FrameLayout.close`).
    """

    header: FrameHeader
    group_start: int
    position: int  # in the group, from 0
    pixels: int
    tail_bytes: int  # what directories and metadata behind the pixels of the group take, this frame included
    group_end: int  # block boundary where the group ends if this frame is its last
    packed: bool  # more frames of the same kind may follow in the group

    @property
    def pixels_end(self) -> int:
        return self.pixels + self.header.payload_bytes


@dataclass(frozen=True, slots=True)
class RollOver:
    """The frame does not fit into this stack file any more."""


class Page(NamedTuple):
    """One frame of a closed group: all offsets in the stack file, in bytes."""

    header: FrameHeader
    directory: int
    pixels: int
    metadata: int


class FrameLayout(Protocol):
    """Places frames in stack files and makes the bytes around their pixels. Pure: no I/O, no clock."""

    def stack_name(self, stack: int) -> str:
        """File name of stack number `stack`, from 0."""

    def stack_header(self, axis_order: Sequence[str]) -> bytes:
        """First bytes of every stack file, a whole number of blocks. axis_order names the axes of the frames."""

    def check(self, header: FrameHeader) -> None:
        """Raise FrameRefused if no stack file can hold this frame."""

    def place(self, header: FrameHeader, end: int, previous: Placement | None) -> Placement | RollOver:
        """Where the frame goes: behind `previous` in its group, or as a new group at `end` (a block boundary)."""

    def close(self, group: Sequence[Placement]) -> list[Page]:
        """Offsets of directories and metadata of a group that gets no more frames."""

    def fill(self, block: memoryview, group: Sequence[Placement], pages: Sequence[Page]) -> None:
        """Write directories, metadata and gaps of a closed group into `block`, its bytes from group_start on."""

    def index_entries(self, pages: Sequence[Page], stack_name: str) -> bytes:
        """The index entries that publish these frames."""

    def finish(self, last: Page | None) -> tuple[Sequence[tuple[int, bytes]], int | None]:
        """What is patched when a stack file is finished, as (offset, bytes), and its exact length.

        last is the last published page; without one the length is None: nothing but the header stays.
        """


class FrameReader(Protocol):
    """Reads one frame-format dataset (or one level of it), finished or growing."""

    @property
    def path(self) -> Path: ...
    @property
    def summary_metadata(self) -> Mapping[str, Any]: ...
    @property
    def complete(self) -> bool:
        """Nothing will be added any more."""

    @property
    def writing(self) -> bool:
        """True while frames may come. An interrupted acquisition is neither writing nor complete."""

    @property
    def state(self) -> AcquisitionState | None:
        """What our own writer noted; None in a dataset of another writer."""

    def __len__(self) -> int: ...
    def refresh(self) -> range:
        """Look for newly published frames; their rows, in order of arrival."""

    def key(self, row: int) -> dict[str, AxisValue]: ...
    def keys(self, rows: range | None = None) -> Iterator[dict[str, AxisValue]]:
        """Every distinct key once, in order of first arrival; of these rows only, where given."""

    def row(self, axes: Axes) -> int:
        """The row of the frame with exactly these axes. Raises FrameNotFound."""

    def axis_values(self) -> dict[str, list[AxisValue]]: ...
    def frame_shape(self, row: int) -> tuple[int, ...]: ...
    def frame_dtype(self, row: int) -> np.dtype[np.generic]: ...
    def read_pixels(self, row: int) -> NDArray[np.generic]: ...
    def read_metadata(self, row: int) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFormat:
    """Registry entry of a frame format.

    detect is cheap and true when `path` (container, level, or file in it) is of this format; looked_for tells users
    what it looks for. open returns the readers of all levels, the full resolution first.
    """

    name: str
    looked_for: str
    detect: Callable[[Path], bool]
    open: Callable[[Path], Sequence[FrameReader]]
