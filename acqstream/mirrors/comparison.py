"""Compares a mirror with its dataset: reads every frame from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from acqstream.arrays.array_spec import Position
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors.chunk_plan import options_of
from acqstream.mirrors.container import MirrorNote, read_note
from acqstream.mirrors.log_frames import LogFrames
from acqstream.mirrors.mirror_task import find_format, open_dataset
from acqstream.mirrors.mosaic_comparison import compared_tiles
from acqstream.mirrors.reference_comparison import compared_entries
from acqstream.mirrors.slab_comparison import compared_rows
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.storage.stores.data_path import place_of

MAX_NAMED = 10
LOSSY_TEXT = "its encoding loses detail, so its pixels differ. `acqstream verify` proves its chunks by their checksums"
TASKS_PER_PROCESS = 8  # for each process
POLL_S = 0.1

Rows = dict[Position, dict[int, int]]
"""The latest row at each place, by slab and plane."""


@dataclass(slots=True)
class Comparison:
    """Numbers of frames compared and different, and the names of the first different ones; reason: why none were.

    claim: what is equal, before the name of the dataset.
    """

    frames: int = 0
    different: int = 0
    named: tuple[str, ...] = ()
    reason: str = ""
    claim: str = "have the pixels that they have in"

    def add(self, other: Comparison) -> None:
        self.frames += other.frames
        self.different += other.different
        self.named = (*self.named, *other.named)[:MAX_NAMED]

    @property
    def text(self) -> str:
        if not self.different:
            return "all equal"
        return (
            f"{self.different} DIFFERENT: {'; '.join(self.named)}{' ...' if self.different > len(self.named) else ''}"
        )


@dataclass(frozen=True, slots=True)
class ComparisonTask:
    """Rows that one process compares."""

    dataset: str
    note: MirrorNote
    rows: Rows


def compare(
    dataset: Path,
    folder: Path,
    count: int,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    runner: TaskRunner | None = None,
    *,
    container: Path | None = None,
) -> Comparison:
    """Compare the first `count` frames of a dataset, the latest of each place, with its mirror.

    folder is the view's own, with the note. on_progress gets the number of frames compared and their total. runner: of
    processes that do it. container: where the mirror lies now, if it was moved. Of a mirror in an encoding that loses
    detail no frame is compared, for that reason. Raises DatasetError and StorageError where either cannot be read.
    """
    note = read_note(folder)
    if note is None or note.plan is None:
        raise DatasetError(f"{folder}: no mirror was made here")
    is_mosaic = note.plan.mosaic is not None
    if container is not None:
        note = replace(note, container=str(container))
    found = find_format(note.settings)
    if found.is_lossy(options_of(found, note.settings)):
        return Comparison(reason=LOSSY_TEXT)
    if found.is_by_reference(options_of(found, note.settings)):
        return _compare_references(dataset, note, count, on_progress)
    if is_mosaic:
        return _compare_tiles(dataset, note, count, on_progress)
    whole = ComparisonTask(str(dataset.absolute()), note, _rows_by_slab(str(dataset), note, count))
    total, result = sum(map(len, whole.rows.values())), Comparison()
    if runner is None:
        return compare_rows(whole, lambda done: on_progress(done, total))
    runner.begin(compare_rows, list(_parts(whole, TASKS_PER_PROCESS * runner.width)))
    while not runner.is_done():
        for _, part in runner.poll(POLL_S):
            result.add(part)
            on_progress(result.frames, total)
    return result


def compare_rows(part: ComparisonTask, on_progress: Callable[[int], None] = lambda _done: None) -> Comparison:
    """Compare some rows, in this process."""
    result = Comparison()
    with _opened(part.dataset, part.note) as (reader, array, frames):
        for row, is_equal in compared_rows(reader, array, frames, part.rows):
            result.frames += 1
            if not is_equal:
                result.add(Comparison(0, 1, (f"frame {row} ({reader.key(row)})",)))
            on_progress(result.frames)
    return result


def _compare_tiles(dataset: Path, note: MirrorNote, count: int, on_progress: Callable[[int, int], None]) -> Comparison:
    result = Comparison()
    with _opened(str(dataset), note) as (reader, array, frames):
        rows = {frames.place(row): row for row in range(count)}
        for row, is_equal in compared_tiles(reader, array, frames, rows):
            result.add(Comparison(1, 0 if is_equal else 1, () if is_equal else (f"frame {row} ({reader.key(row)})",)))
            on_progress(result.frames, len(rows))
    return result


def _compare_references(
    dataset: Path, note: MirrorNote, count: int, on_progress: Callable[[int, int], None]
) -> Comparison:
    """The pixels are those of the dataset: the entries of the chunk table are compared with its index."""
    assert note.plan is not None
    result, compared = Comparison(claim="lie in the stacks where the index has them, in"), 0

    def show(done: int) -> None:
        nonlocal compared
        compared = done
        on_progress(done, count)

    reader = open_dataset(str(dataset))
    try:
        for row in compared_entries(reader, Path(note.container), note.plan, count, show):
            result.add(Comparison(0, 1, (f"frame {row} ({reader.key(row)})",)))
    finally:
        reader.close()
    result.frames = compared
    return result


@contextmanager
def _opened(dataset: str, note: MirrorNote) -> Iterator[tuple[NDTiffReader, ChunkArrayReader, LogFrames]]:
    """Open the dataset, level 0 of the mirror, and the places of frames in it."""
    assert note.plan is not None
    reader = open_dataset(dataset)
    try:
        arrays = find_format(note.settings).open(place_of(note.container))
        try:
            yield reader, arrays[0], LogFrames(reader, note.plan, arrays[0].spec)
        finally:
            for array in arrays:
                array.close()
    finally:
        reader.close()


def _rows_by_slab(dataset: str, note: MirrorNote, count: int) -> Rows:
    rows: Rows = {}
    with _opened(dataset, note) as (_, array, frames):
        (grid,) = slab_grids([array.spec])
        for row in range(count):
            key, plane = grid.locate(frames.place(row))
            rows.setdefault(key, {})[plane] = row
    return dict(sorted(rows.items()))


def _parts(whole: ComparisonTask, count: int) -> Iterator[ComparisonTask]:
    """About `count` runs of slabs."""
    items: Sequence[tuple[Position, dict[int, int]]] = list(whole.rows.items())
    step = max(1, -(-len(items) // count))
    for first in range(0, len(items), step):
        yield ComparisonTask(whole.dataset, whole.note, dict(items[first : first + step]))
