"""Tiled datasets to make pyramids of, and what must come out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.formats.ndtiff.reader import open_readers
from acqstream.log.log import Log
from acqstream.log.state_file import DatasetState
from acqstream.model.acquisition_spec import TileSpec
from acqstream.views import level_check
from acqstream.views.pyramid_view import PyramidView
from acqstream.views.view_run import ViewRun
from tests.grid.reference_pyramid import key_of, reference_of
from tests.log.make_frames import Axes, Frame, frame_of, memory_of, spec_of

Place = tuple[int, int]


def grid(rows: int, columns: int, *, top: int = 0, left: int = 0) -> list[Place]:
    return [(top + row, left + column) for row in range(rows) for column in range(columns)]


def snake(rows: int, columns: int) -> list[Place]:
    return [(row, column if row % 2 == 0 else columns - 1 - column) for row, column in grid(rows, columns)]


def shuffled(places: Sequence[Place], seed: int) -> list[Place]:
    return random.Random(seed).sample(places, len(places))


def tiles_of(
    places: Iterable[Place],
    shape: Sequence[int] = (16, 24),
    dtype: str = "<u2",
    *,
    others: Sequence[Axes] = ({},),
    first: int = 0,
) -> list[Frame]:
    """A tile at each place, for each combination of other axes; numbers from `first` on."""
    wanted: list[Axes] = [{**more, "row": row, "column": column} for row, column in places for more in others]
    return [
        frame_of(number, shape, dtype, axes=axes, metadata={"tile": number})
        for number, axes in enumerate(wanted, first)
    ]


def start_tiled(
    folder: Path, overlap: Place = (0, 0), disk: Any = None, *, resume: DatasetState | None = None, **spec: Any
) -> Log:
    more = {name: spec.pop(name) for name in ("levels", "wait_s") if name in spec}
    tiles = TileSpec(overlap, **more)
    wanted = spec_of(tiles=tiles, replace_duplicates=True, **spec)
    return Log(folder, wanted, memory=memory_of(), disk=disk, resume=resume)


def write_tiled(folder: Path, frames: Iterable[Frame], overlap: Place = (0, 0), **more: Any) -> Path:
    """A finished dataset with these tiles."""
    with start_tiled(folder, overlap, **more) as log:
        for frame in frames:
            log.append(frame.header, frame.image)
    return folder


def pyramid_of(folder: Path, **more: Any) -> ViewRun:
    settings = {name: more.pop(name) for name in ("memory_bytes", "stack_limit_bytes", "is_remade") if name in more}
    return ViewRun(folder, "pyramid", lambda: PyramidView(**settings), **more)


def finish(run: ViewRun, most: int = 10_000) -> ViewRun:
    """Step until nothing is left to do."""
    try:
        for _ in range(most):
            if run.step() is None:
                return run
    finally:
        run.close()
    raise AssertionError(f"still {run.progress()} after {most} steps")


def level_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("Downsampled_x*"))


def check_levels(folder: Path, frames: Iterable[Frame], levels: int, overlap: Place = (0, 0)) -> None:
    """Every level has the tiles of the reference, and no others."""
    assert level_names(folder) == sorted(f"Downsampled_x{2**level}" for level in range(1, levels + 1))
    right = reference_of([(frame.axes, frame.image) for frame in frames], levels, overlap)
    readers = open_readers(folder)
    try:
        for reader, tiles in zip(readers, right, strict=True):
            keys = list(reader.keys())
            assert {key_of(key) for key in keys} == set(tiles), reader.path
            for key in keys:
                assert np.array_equal(reader.read_pixels(reader.row(key)), tiles[key_of(key)]), (reader.path, key)
    finally:
        for reader in readers:
            reader.close()
    proof = level_check.check_levels(folder)
    assert proof.problems == []
    assert proof.reason or proof.tiles == sum(map(len, right[1:]))
