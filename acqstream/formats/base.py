"""What a format gives to the writing side and to the reading side.

Two kinds of format: a frame format (NDTiff) keeps each frame as it came; a chunk format is an array cut into chunks.
This module holds the frame format's faces: `FrameLayout`, pure, for the log; `FrameReader` for datasets; and what its
check gives to `verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.model.axes import Axes, AxisValue
from acqstream.model.frame_header import FrameHeader
from acqstream.model.frame_run import FrameRun
from acqstream.model.state import AcquisitionState

BLOCK_BYTES = 4096
"""Commits and groups start and end on this boundary: the unit of direct I/O and of what survives a torn write."""


def align_up(offset: int, step: int = BLOCK_BYTES) -> int:
    """The smallest multiple of `step` that is not below `offset`."""
    return -(-offset // step) * step


class Placement(NamedTuple):
    """Where a frame, or several back to back, lie in a stack file. All offsets are bytes from the start of the file.

    Frames are placed in groups: a group starts and ends on a block boundary and is written as one run of bytes. The
    offsets of directory and metadata of a packed frame are known when its group is closed (`FrameLayout.close`).
    """

    frames: FrameRun
    group_start: int
    position: int  # of the first frame in the group, from 0
    pixels: int  # of the first frame
    tail_bytes: int  # what directories and metadata behind the pixels of the group take, these frames included
    group_end: int  # block boundary where the group ends if these frames are its last
    packed: bool  # more frames of the same kind may follow in the group

    @property
    def pixels_end(self) -> int:
        return self.pixels + self.frames.payload_bytes


@dataclass(frozen=True, slots=True)
class RollOver:
    """The frames do not fit into this stack file any more."""


class Page(NamedTuple):
    """One frame of a closed group: all offsets in the stack file, in bytes."""

    header: FrameHeader
    directory: int
    pixels: int
    metadata: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The frames of a closed group: an offset per frame, as in `Page`, which it gives as a sequence."""

    frames: FrameRun
    directories: NDArray[np.int64]
    pixels: NDArray[np.int64]
    metadata: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, position: int) -> Page:
        offsets = (self.directories[position], self.pixels[position], self.metadata[position])
        return Page(self.frames[position], *map(int, offsets))

    def first(self, count: int) -> Pages:
        """The first `count` of them."""
        columns = (self.directories[:count], self.pixels[:count], self.metadata[:count])
        return Pages(self.frames.first(count), *columns)


class FrameLayout(Protocol):
    """Places frames in stack files and makes the bytes around their pixels. Pure: no I/O, no clock."""

    def stack_name(self, stack: int) -> str:
        """File name of stack number `stack`, from 0."""

    def stack_header(self, axis_order: Sequence[str]) -> bytes:
        """First bytes of every stack file, a whole number of blocks. axis_order names the axes of the frames."""

    def check(self, header: FrameHeader) -> None:
        """Raise FrameRefused if no stack file can hold this frame."""

    def place(self, frames: FrameRun, end: int, previous: Placement | None) -> Placement | RollOver:
        """Where a frame goes: behind `previous` in its group, or as a new group at `end` (a block boundary)."""

    def place_run(self, frames: FrameRun, end: int, previous: Placement | None) -> Placement | None:
        """As `place`, for frames back to back in one group; None where they cannot lie so. Raises as `check`."""

    def fits(self, end: int) -> bool:
        """Whether a stack file may have a group that ends at byte `end`."""

    def close(self, group: Sequence[Placement]) -> Pages:
        """Offsets of directories and metadata of a group that gets no more frames."""

    def fill(self, block: memoryview, group: Sequence[Placement], pages: Pages) -> None:
        """Write directories, metadata and gaps of a closed group into `block`, its bytes from group_start on.

        The block of a group that is one large frame may end where its pixels begin.
        """

    def index_entries(self, pages: Pages, stack_name: str) -> bytes:
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
    def container(self) -> Path:
        """The folder of the whole dataset, with all levels."""

    @property
    def level(self) -> int:
        """Resolution level n: reduced 2^n times, 0 is the full resolution."""

    @property
    def tile_overlap(self) -> tuple[int, int] | None:
        """How many pixels (y, x) a stored frame shares with its neighbours in `row` and `column`; None: no tiles."""

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
        """How viewers showed the channels; empty where nothing is known."""

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
        """Why lower levels were given up unfinished; empty where they were not."""

    @property
    def state(self) -> AcquisitionState | None:
        """What our own writer noted; None in a dataset of another writer."""

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
        """As `row`, None if there is no such frame."""

    def count_full_keys(self) -> int:
        """How many distinct keys have a value on every axis seen so far."""

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
        """The rows that are there, with their frames, in order of arrival; the latest where axes come again."""

    def read_metadata(self, row: int) -> dict[str, Any]: ...
    def close(self) -> None: ...


MAX_PROBLEMS = 10_000  # kept by a report; all are counted
MAX_NOTES = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a check found wrong. offset is bytes from the start of the file `path`; frame a frame number."""

    path: str
    text: str
    offset: int | None = None
    frame: int | None = None


@dataclass(slots=True)
class CheckReport:
    """Collects what a check finds. Kept problems and notes are bounded, their counts are not.

    frame_numbers are the frame numbers by row (order of arrival); empty: they are the same. on_progress gets what is
    being done, how much of it is done and how much there is: bytes, a total of 0 where that is not known. own_files are
    the files that belong to the dataset.
    """

    on_progress: Callable[[str, int, int], None] = lambda _phase, _done, _total: None
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    notes: list[str] = field(default_factory=list)
    note_count: int = 0
    frame_numbers: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    own_files: set[Path] = field(default_factory=set)

    def add_problem(self, path: Path | str, text: str, *, offset: int | None = None, row: int | None = None) -> None:
        """One more problem; row is that of the frame it concerns."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            frame = row
            if row is not None and len(self.frame_numbers):
                frame = int(self.frame_numbers[row]) if row < len(self.frame_numbers) else None
            self.problems.append(Problem(str(path), text, offset, frame))

    def add_error(self, error: CorruptDataset, row: int | None = None) -> None:
        """An error as a problem: its path and offset stand beside the text."""
        text = str(error).removeprefix(f"{error.path}: ")
        if error.offset is not None:
            text = text.removesuffix(f" (at byte {error.offset})")
        self.add_problem(error.path, text, offset=error.offset, row=row)

    def add_problems(
        self,
        path: Path | str,
        wrong: NDArray[np.bool_],
        rows: NDArray[Any],
        text: Callable[[int], tuple[str, int | None]],
    ) -> None:
        """A problem wherever `wrong` is true; rows are those of the frames, -1 for none.

        text(position in `wrong`) gives what is wrong and the offset.
        """
        positions = np.flatnonzero(wrong)
        kept = max(0, MAX_PROBLEMS - len(self.problems))
        for position in positions[:kept].tolist():
            words, offset = text(position)
            row = int(rows[position])
            self.add_problem(path, words, offset=offset, row=row if row >= 0 else None)
        self.problem_count += len(positions[kept:])

    def add_note(self, text: str) -> None:
        """Something that is worth knowing and no problem."""
        self.note_count += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameColumns:
    """Where the frames of a dataset lie, as its index says: an item per frame, in order of arrival.

    files are its data files, file_numbers their numbers as a journal counts them (-1: none). Per frame: position in
    files, offset and length of the stored pixels and offset of the directory (-1 where none was found) in bytes, pixel
    type as in the index, XXH3-64 of the metadata, whether it holds the axes. levels counts the resolution levels that
    were checked.
    """

    files: Sequence[Path]
    file_numbers: Sequence[int]
    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    directory: NDArray[np.int64]
    pixel_type: NDArray[np.int32]
    metadata_checksum: NDArray[np.uint64]
    has_axes: NDArray[np.bool_]
    levels: int

    def __len__(self) -> int:
        return len(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFormat:
    """Registry entry of a frame format.

    detect is cheap and true when `path` (container, level, or file in it) is of this format; looked_for tells users
    what it looks for. open returns the readers of all levels, the full resolution first. folder is the container of the
    dataset at `path`. check reports whatever breaks the format in a dataset's container, all levels, and returns the
    frames of the full resolution; while the dataset is growing its unfinished end is no problem.
    """

    name: str
    looked_for: str
    detect: Callable[[Path], bool]
    open: Callable[[Path], Sequence[FrameReader]]
    folder: Callable[[Path], Path]
    check: Callable[[Path, CheckReport, bool], FrameColumns]
