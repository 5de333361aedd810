"""Proves the lower levels of a dataset: each tile is made again from the tiles below it, and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.ndtiff.completion import levels_folder
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.grid.reduction import quadrant
from acqstream.log.state_file import STATE_NAME
from acqstream.views.pyramid_tiles import TileKey, leaf_key
from acqstream.views.tile_painter import FullResolution

_MAX_PROBLEMS = 10_000  # kept; all are counted
_STACK_BYTES = 2**32


@dataclass(slots=True)
class LevelProof:
    """Tiles of lower levels that are what the rule makes of those below. problems are folder and text, the first ones
    of problem_count; reason: why nothing was compared, "" if all was.
    """

    tiles: int = 0
    levels: int = 0
    problem_count: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    reason: str = ""

    def add(self, reader: NDTiffReader, text: str) -> None:
        """Count a problem of a level, and keep it while there is space."""
        self.problem_count += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append((os.fspath(reader.path), text))


def check_levels(dataset: Path, on_progress: Callable[[int, int], None] = lambda _done, _total: None) -> LevelProof:
    """Compare all tiles of all lower levels. Memory is that of a few tiles. Never raises for what cannot be read."""
    proof, readers = LevelProof(), []
    try:
        readers = open_readers(dataset)
        if len(readers) < 2 or not len(readers[0]):
            return proof
        if not ((dataset / STATE_NAME).exists() or levels_folder(dataset).exists()):
            proof.reason = "another program made them"
        elif not readers[0].levels_state.is_finished or readers[0].writing:
            proof.reason = "they are not complete"
        else:
            _Check(dataset, readers, proof).run(on_progress)
    except (DatasetError, StorageError) as error:
        proof.reason = str(error)
    finally:
        for reader in readers:
            reader.close()
    return proof


class _Check:
    """rank: the latest frame below each tile of the level below; of tiles that share pixels the later one has them."""

    def __init__(self, dataset: Path, readers: list[NDTiffReader], proof: LevelProof) -> None:
        self._readers = readers
        self._proof = proof
        self._full = FullResolution(dataset, readers[0], 0, limit_bytes=_STACK_BYTES)
        self._expected = np.empty(self._full.shape.shape, self._full.shape.pixel_type.numpy_dtype)
        self._rank: dict[TileKey, int] = {}

    def run(self, on_progress: Callable[[int, int], None]) -> None:
        total, done = sum(map(len, self._readers[1:])), 0
        try:
            for level, reader in enumerate(self._readers[1:], 1):
                self._proof.levels += 1
                below, rank = self._readers[level - 1], {}
                for key in _tiles(reader, level):
                    on_progress(done, total)
                    done += 1
                    children = self._children(below, key)
                    rank[key] = max((order for order, _, _ in children), default=-1)
                    self._compare(reader, key, children)
                for key in _tiles(below, level - 1):
                    if reader.find(key.parent.axes()) is None:
                        self._proof.add(reader, f"tile {_named(key.parent)} is missing: {_named(key)} is below it")
                self._rank = rank if self._full.shape.is_odd else {}
        finally:
            self._full.close()

    def _children(self, below: NDTiffReader, key: TileKey) -> list[tuple[int, TileKey, int]]:
        """Rank, key and row of the tiles below, in the order in which they were painted."""
        found = ((child, below.find(child.axes())) for child in key.children())
        return sorted((self._rank.get(child, row), child, row) for child, row in found if row is not None)

    def _compare(self, reader: NDTiffReader, key: TileKey, children: list[tuple[int, TileKey, int]]) -> None:
        expected, shape = self._expected, self._full.shape
        expected[:] = 0
        try:
            for _, child, row in children:
                pixels = self._readers[child.level].read_pixels(row)
                out = expected[quadrant(child.row, child.column, *shape.inner)]
                if child.level == 0:
                    self._full.check(row)
                    self._full.halve(pixels, out)
                elif pixels.shape == expected.shape and pixels.dtype == expected.dtype:
                    self._full.halving.halve(pixels, out)
            is_same = np.array_equal(reader.read_pixels(reader.row(key.axes())), expected)
        except DatasetError as error:
            self._proof.add(reader, f"tile {_named(key)} cannot be compared: {error}")
            return
        self._proof.tiles += is_same
        if not is_same:
            self._proof.add(reader, f"tile {_named(key)} is not what the level below makes of it")


def _tiles(reader: NDTiffReader, level: int) -> Iterator[TileKey]:
    for row, axes in enumerate(reader.keys()):
        yield leaf_key(axes, row)._replace(level=level)


def _named(key: TileKey) -> str:
    return ", ".join(f"{name} {value}" for name, value in key.axes().items())
