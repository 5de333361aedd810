"""Units hold whole slabs of all levels, and whole files; runs of numbers are cut, joined and left out."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.mirror_tasks import joined_runs, runs_of, subtract_runs, unit_depth, unit_of
from acqstream.mirrors.slab_grid import slab_grids


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("n5", {"blocks": [3, 8, 8], "levels": 4}),
        ("n5", {"layout": "array", "blocks": [5, 16, 16], "levels": 3}),
        ("n5", {"blocks": [1, 8, 8], "levels": 3, "downsample": "xy"}),
        ("wkw", {"cube": 64, "levels": 3}),
        ("wkw", {"cube": 32, "levels": 2, "compression": "lz4"}),
    ],
)
def test_no_slab_and_no_file_lies_in_two_units(name: str, options: dict[str, object]) -> None:
    found = chunk_format(name)
    chosen = found.parse_options(options)
    spec = ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(3, 200, 40, 50),
        dtype=np.dtype("uint16"),
        units=("", "um", "um", "um"),
    )
    grids = slab_grids(found.plan(spec, chosen).levels)
    depth = unit_depth(grids)
    for number, grid in enumerate(grids):
        shape = grid.spec.object_shape
        outer = [grid.spec.shape[axis] for axis in grid.outer]
        files: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for place in itertools.product(*map(range, outer)):
            key, _ = grid.locate(place)
            unit = unit_of(grids, depth, number, key)
            item = [at * grid.spec.factors[axis] for at, axis in zip(place, grid.outer, strict=True)]
            assert unit == tuple(at // size for at, size in zip(item, depth, strict=True))
            file = tuple(at // shape[axis] for at, axis in zip(place, grid.outer, strict=True))
            files.setdefault(file, set()).add(unit)
        assert all(len(units) == 1 for units in files.values())


def numbers(runs: list[tuple[int, int]]) -> list[int]:
    return sorted(number for first, stop in runs for number in range(first, stop))


@pytest.mark.parametrize("seed", range(5))
def test_runs_of_numbers(seed: int) -> None:
    chance = random.Random(seed)
    weights = [chance.randrange(10) for _ in range(40)]
    runs = runs_of(weights, 20)
    assert numbers(runs) == list(range(40))
    assert all(sum(weights[first:stop]) >= 20 for first, stop in runs[:-1])
    done = joined_runs(chance.sample(runs, len(runs) // 2))
    left = subtract_runs(runs, done)
    assert numbers(left) == [number for number in range(40) if number not in numbers(done)]
    assert joined_runs([*left, *done]) == [(0, 40)]
    assert subtract_runs(runs, []) == runs


def test_of_nothing_there_are_no_runs() -> None:
    assert runs_of([], 5) == joined_runs([]) == subtract_runs([], [(0, 3)]) == []
