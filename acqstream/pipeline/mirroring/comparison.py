"""Whether a mirror has every frame of its dataset: each is read back from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import Position
from acqstream.pipeline.mirroring.container import MirrorNote, read_note
from acqstream.pipeline.mirroring.log_frames import LogFrames
from acqstream.pipeline.mirroring.part import find_format, open_dataset
from acqstream.pipeline.mirroring.part_runner import PartRunner
from acqstream.pipeline.mirroring.slab_grid import slab_grids
from acqstream.pipeline.mirroring.stored_slab import compared_rows

MAX_NAMED = 10
PIECES = 8  # for each process
POLL_S = 0.1

Rows = dict[Position, dict[int, int]]
"""By slab and plane: the latest row that goes there."""


@dataclass(slots=True)
class Comparison:
    """How many frames were compared, how many were different, and which: the first ones."""

    frames: int = 0
    different: int = 0
    named: tuple[str, ...] = ()

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
class _Order:
    """What one process compares: these rows."""

    dataset: str
    note: MirrorNote
    rows: Rows


def compare(
    dataset: Path,
    folder: Path,
    count: int,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    runner: PartRunner | None = None,
) -> Comparison:
    """Compare the first `count` frames of a dataset, the latest of each place, with its mirror.

    folder is the view's own, with the note. on_progress gets how many were compared, of how many. runner: of processes
    that do it. Raises DatasetError and StorageError where either cannot be read.
    """
    note = read_note(folder)
    if note is None or note.plan is None:
        raise DatasetError(f"{folder}: no mirror was made here")
    rows = _rows_by_slab(dataset, note, count)
    total, result = sum(map(len, rows.values())), Comparison()
    if runner is None:
        compare_part(_Order(str(dataset), note, rows), result, lambda done: on_progress(done, total))
        return result
    orders = [_Order(str(dataset.absolute()), note, dict(part)) for part in _pieces(rows, PIECES * runner.width)]
    runner.begin(compare_part, orders)
    while not runner.is_done():
        for _, part in runner.poll(POLL_S):
            result.add(part)
            on_progress(result.frames, total)
    return result


def compare_part(
    order: _Order, result: Comparison | None = None, on_progress: Callable[[int], None] = lambda _done: None
) -> Comparison:
    """Compare some rows; into `result`, if there is one."""
    result = result or Comparison()
    note = order.note
    assert note.plan is not None
    reader = open_dataset(order.dataset)
    try:
        arrays = find_format(note.settings).open(Path(note.container))
        frames = LogFrames(reader, note.plan, arrays[0].spec)
        for row, is_equal in compared_rows(reader, arrays[0], frames, order.rows):
            result.frames += 1
            if not is_equal:
                result.add(Comparison(0, 1, (f"frame {row} ({reader.key(row)})",)))
            on_progress(result.frames)
        for array in arrays:
            array.close()
    finally:
        reader.close()
    return result


def _rows_by_slab(dataset: Path, note: MirrorNote, count: int) -> Rows:
    assert note.plan is not None
    reader = open_dataset(str(dataset))
    try:
        arrays = find_format(note.settings).open(Path(note.container))
        frames = LogFrames(reader, note.plan, arrays[0].spec)
        (grid,) = slab_grids([arrays[0].spec])
        for array in arrays:
            array.close()
        rows: Rows = {}
        for row in range(count):
            key, plane = grid.locate(frames.place(row))
            rows.setdefault(key, {})[plane] = row
    finally:
        reader.close()
    return dict(sorted(rows.items()))


def _pieces(rows: Rows, count: int) -> Iterator[Sequence[tuple[Position, dict[int, int]]]]:
    """About `count` runs of slabs."""
    items = list(rows.items())
    step = max(1, -(-len(items) // count))
    return (items[first : first + step] for first in range(0, len(items), step))
