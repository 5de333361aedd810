"""Compares a mirror with its dataset: each frame of both, or chunk table and index; and finds that dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import Position
from acqstream.errors import ConfigError, DatasetError, StorageError
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.formats.hsds.reference_reader import ReferenceLevel
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import LogFrames
from acqstream.mirrors.mirror_container import MirrorNote, opened, read_note
from acqstream.mirrors.mirror_plan import options_of
from acqstream.mirrors.mirror_tasks import find_format, open_dataset
from acqstream.mirrors.row_table import NO_ROW, PlaceTable, table_grid
from acqstream.mirrors.slab_comparison import compared_rows, compared_tiles
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.model.units import count_text
from acqstream.storage.stores.data_path import data_path_of
from acqstream.views.checkpoint import read_checkpoint, view_folder
from acqstream.views.view_folder import id_of_summary, open_full, state_of

_MAX_ROWS = 65_536


def compared_entries(
    reader: NDTiffReader, container: Path, plan: ArrayPlan, count: int, on_progress: Callable[[int], None]
) -> Iterator[int]:
    """Compare the latest frame of each place among the first `count` ones; yield the rows whose entries differ.

    on_progress gets the number of frames compared. Raises DatasetError, CorruptDataset, StorageError.
    """
    mirror = ReferenceLevel(data_path_of(container), follows_links=False)
    note = mirror.layout.note
    frames = LogFrames(reader, plan, note.spec)
    frames.taken = count
    grid = table_grid(note.spec, steps=note.steps)
    if grid.axes != tuple(axis.name for axis in plan.axes):
        planned = ", ".join(axis.name for axis in plan.axes)
        raise DatasetError(f"{container} has the axes {', '.join(grid.axes)}, the note about it {planned}")
    table = PlaceTable(grid, frames.row)
    for start in range(0, count, _MAX_ROWS):
        rows = range(start, min(start + _MAX_ROWS, count))
        table.add(frames.places.take_columns(reader.key_columns(rows), len(rows)), start)
    compared = 0
    for chunk in list(table.changed):
        flat = table.chunk(chunk).reshape(-1)
        here = flat[flat != NO_ROW]
        found = mirror.table.rows(chunk).reshape(-1)[flat != NO_ROW]
        is_equal = _equal(reader, mirror, here, found)
        yield from here[~is_equal].tolist()
        compared += len(here)
        on_progress(compared)


def _equal(
    reader: NDTiffReader, mirror: ReferenceLevel, rows: NDArray[np.int32], found: NDArray[np.void]
) -> NDArray[np.bool_]:
    entries = reader.entry_columns(rows.astype(np.int64))
    uris = np.array([mirror.layout.note.uri(name).encode() for name in entries.stack_names])
    is_equal = (found["offset"] == entries.numbers["pixel_offset"]) & (found["size"] == entries.payload_bytes)
    is_equal &= found["file_uri"] == uris[entries.stacks]
    same: NDArray[np.bool_] = is_equal
    return same


MAX_NAMED = 10
LOSSY_TEXT = "its encoding loses detail, so its pixels differ. `acqstream verify` proves its chunks by their checksums"
TASKS_PER_PROCESS = 8  # for each process
POLL_S = 0.1

Rows = dict[Position, dict[int, int]]
"""The latest row at each place, by slab and plane; of a mosaic by place, and 0."""


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
    if container is not None:
        note = replace(note, container=str(container))
    found = find_format(note.settings)
    if found.is_lossy(options_of(found, note.settings)):
        return Comparison(reason=LOSSY_TEXT)
    if found.is_by_reference(options_of(found, note.settings)):
        return _compare_references(dataset, note, count, on_progress)
    whole = ComparisonTask(str(dataset.absolute()), note, _rows_by_slab(str(dataset), note, count))
    total, result = sum(map(len, whole.rows.values())), Comparison()
    if runner is None or _walk_of(note) is compared_tiles:
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
        for row, is_equal in _walk_of(part.note)(reader, array, frames, part.rows):
            result.frames += 1
            if not is_equal:
                result.add(Comparison(0, 1, (f"frame {row} ({reader.key(row)})",)))
            on_progress(result.frames)
    return result


def _walk_of(note: MirrorNote) -> Callable[..., Iterator[tuple[int, bool]]]:
    return compared_rows if note.plan is None or note.plan.mosaic is None else compared_tiles


def _compare_references(
    dataset: Path, note: MirrorNote, count: int, on_progress: Callable[[int, int], None]
) -> Comparison:
    """The pixels are those of the dataset: the entries of the chunk table are compared with its index."""
    assert note.plan is not None
    result = Comparison(claim="lie in the stacks where the index has them, in")

    def show(done: int) -> None:
        result.frames = done
        on_progress(done, count)

    with closing(open_dataset(str(dataset))) as reader:
        for row in compared_entries(reader, Path(note.container), note.plan, count, show):
            result.add(Comparison(0, 1, (f"frame {row} ({reader.key(row)})",)))
    return result


@contextmanager
def _opened(dataset: str, note: MirrorNote) -> Iterator[tuple[NDTiffReader, ChunkReader, LogFrames]]:
    """Open the dataset, level 0 of the mirror, and the places of frames in it."""
    assert note.plan is not None
    with (
        closing(open_dataset(dataset)) as reader,
        opened(find_format(note.settings), Path(note.container)) as arrays,
    ):
        yield reader, arrays[0], LogFrames(reader, note.plan, arrays[0].spec)


def _rows_by_slab(dataset: str, note: MirrorNote, count: int) -> Rows:
    rows: Rows = {}
    with _opened(dataset, note) as (_, array, frames):
        (grid,) = slab_grids([array.spec])
        is_mosaic = _walk_of(note) is compared_tiles
        for row in range(count):
            place = frames.place(row)
            key, plane = (place, 0) if is_mosaic else grid.locate(place)
            rows.setdefault(key, {})[plane] = row
    return dict(sorted(rows.items()))


def _parts(whole: ComparisonTask, count: int) -> Iterator[ComparisonTask]:
    """About `count` runs of slabs."""
    items: Sequence[tuple[Position, dict[int, int]]] = list(whole.rows.items())
    step = max(1, -(-len(items) // count))
    for first in range(0, len(items), step):
        yield ComparisonTask(whole.dataset, whole.note, dict(items[first : first + step]))


_CLAIM = "that its pixels are those of the dataset"


@dataclass(frozen=True, slots=True)
class LogProof:
    """What the frames of a dataset show of its mirror. dataset: None if it is not there; reason: why nothing was
    compared, or not all; failure: why the mirror failed, "" if it did not."""

    dataset: Path | None = None
    compared: Comparison = field(default_factory=Comparison)
    reason: str = ""
    failure: str = ""

    @property
    def proved(self) -> list[str]:
        """Sentences for the report."""
        if self.dataset is None or not self.compared.frames or self.compared.different:
            return []
        return [f"{count_text(self.compared.frames, 'frame')} {self.compared.claim} {self.dataset}"]

    @property
    def not_proved(self) -> list[str]:
        """Sentences for the report."""
        return [f"{_CLAIM}: {self.reason}"] if self.reason else []


def prove_by_log(container: Path, on_progress: Callable[[int, int], None] = lambda _done, _total: None) -> LogProof:
    """Compare the mirror in this folder with its dataset, if both are complete and lie in one folder.

    A dataset is recognised by its id; nothing is claimed of what is no mirror. What cannot be read, or is missing, is
    the `reason`; nothing is raised for it.
    """
    try:
        return _prove(container, on_progress)
    except (ConfigError, DatasetError, StorageError) as error:
        return LogProof(reason=f"it cannot be read: {error}")


def _prove(container: Path, on_progress: Callable[[int, int], None]) -> LogProof:
    folder = view_folder(container, "view")
    note, saved = read_note(folder), read_checkpoint(folder)
    if note is None or note.plan is None or saved is None:
        return LogProof()  # no mirror of a dataset, or a copy without the folder of its making
    if saved.failed:
        return LogProof(reason="the mirror is not complete", failure=saved.failed)
    dataset = _dataset_of(container, note)
    if dataset is None:
        return LogProof(reason="the dataset is not beside its mirror")
    if not saved.is_complete:
        return LogProof(dataset, reason="the mirror is not complete")
    more = _frames(dataset) - saved.cursor
    if more < 0:
        return LogProof(dataset, reason=f"{dataset} has fewer frames than the {saved.cursor:,} that were mirrored")
    compared = compare(dataset, folder, saved.cursor, on_progress, container=container)
    return LogProof(dataset, compared, compared.reason or (f"{dataset} has {more:,} more" if more else ""))


def _dataset_of(container: Path, note: MirrorNote) -> Path | None:
    """The dataset beside its mirror: `cells` for `cells.n5` or `cells.second.n5`, if its id is the one of the note."""
    for candidate in _candidates(container.absolute()):
        if not candidate.is_dir():
            continue
        state = state_of(candidate)
        if state is not None:
            if state.dataset_id == note.dataset_id:
                return candidate
            continue
        try:
            reader = open_full(candidate)
        except DatasetError:
            continue  # no dataset
        with closing(reader):
            if id_of_summary(reader.summary_metadata) == note.dataset_id:
                return candidate
    return None


def _candidates(container: Path) -> Iterator[Path]:
    name = container.name
    while "." in name:
        name = name.rpartition(".")[0]
        if name:
            yield container.with_name(name)


def _frames(dataset: Path) -> int:
    with closing(open_full(dataset)) as reader:
        return len(reader)
