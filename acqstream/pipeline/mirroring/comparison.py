"""Whether a mirror has every frame of its dataset: each is read back from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkArrayReader, Position
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.formats.registry import chunk_formats
from acqstream.pipeline.mirroring.container import MirrorNote, read_note
from acqstream.pipeline.mirroring.log_frames import LogFrames
from acqstream.pipeline.mirroring.slab_grid import slab_grids
from acqstream.pipeline.mirroring.stored_slab import compared_rows

MAX_NAMED = 10


@dataclass(slots=True)
class Comparison:
    """How many frames were compared, how many were different, and which: the first ones."""

    frames: int = 0
    different: int = 0
    named: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if not self.different:
            return "all equal"
        return (
            f"{self.different} DIFFERENT: {'; '.join(self.named)}{' ...' if self.different > len(self.named) else ''}"
        )


def compare(
    dataset: Path, folder: Path, count: int, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Comparison:
    """Compare the first `count` frames of a dataset, the latest of each place, with its mirror.

    folder is the view's own, with the note. on_progress gets how many were compared, of how many. Raises DatasetError
    and StorageError where either cannot be read.
    """
    note = read_note(folder)
    if note is None or note.plan is None:
        raise DatasetError(f"{folder}: no mirror was made here")
    levels = open_readers(dataset)
    arrays = chunk_formats()[str(note.settings["format"])].open(Path(note.container))
    try:
        return _compare(levels[0], arrays[0], note, count, on_progress)
    finally:
        for level in levels:
            level.close()
        for array in arrays:
            array.close()


def _compare(
    reader: NDTiffReader, array: ChunkArrayReader, note: MirrorNote, count: int, on_progress: Callable[[int, int], None]
) -> Comparison:
    assert note.plan is not None
    frames = LogFrames(reader, note.plan, array.spec)
    (grid,) = slab_grids([array.spec])
    slabs: dict[Position, dict[int, int]] = {}  # by plane the latest row
    for row in range(count):
        key, plane = grid.locate(frames.place(row))
        slabs.setdefault(key, {})[plane] = row
    result, total = Comparison(), sum(map(len, slabs.values()))
    for row, is_equal in compared_rows(reader, array, frames, dict(sorted(slabs.items()))):
        result.frames += 1
        if not is_equal:
            result.different += 1
            if len(result.named) < MAX_NAMED:
                result.named = (*result.named, f"frame {row} ({reader.key(row)})")
        on_progress(result.frames, total)
    return result
