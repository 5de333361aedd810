"""The result of a format's check: problems, notes and where the frames lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetError
from acqstream.storage.stores.data_path import DataPath

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
    the files that belong to the dataset. refused_places: number of the stack file and offset of the pixels of frames
    that were refused after they had been written; no index entry names them.
    """

    on_progress: Callable[[str, int, int], None] = lambda _phase, _done, _total: None
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    notes: list[str] = field(default_factory=list)
    note_count: int = 0
    frame_numbers: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    own_files: set[Path] = field(default_factory=set)
    refused_places: set[tuple[int, int]] = field(default_factory=set)

    def add_problem(
        self, path: Path | DataPath | str, text: str, *, offset: int | None = None, row: int | None = None
    ) -> None:
        """One more problem; row is that of the frame it concerns."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            frame = row
            # Rows count entries of the index; people and journals count frame numbers, with gaps.
            if row is not None and len(self.frame_numbers):
                frame = int(self.frame_numbers[row]) if row < len(self.frame_numbers) else None
            self.problems.append(Problem(str(path), text, offset, frame))

    def add_error(self, error: DatasetError, path: Path | DataPath | str = "", row: int | None = None) -> None:
        """An error as a problem: its path and offset stand beside the text. path: of one that has none."""
        if not isinstance(error, CorruptDataset):
            self.add_problem(path, str(error).removeprefix(f"{path}: "), row=row)
            return
        text = str(error).removeprefix(f"{error.path}: ")
        # The report prints path and offset in columns of their own.
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
        # Texts are made for the problems that are kept only: a damaged index may have millions.
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
    """Places of the frames of a dataset in its index, with an item per frame, in order of arrival.

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
