"""The Java reference library opens our tiled datasets and their levels: the same tiles at every level."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.grid.reference_pyramid import reference_of
from tests.log.make_frames import LEAST_LIMIT_BYTES, Axes, Frame
from tests.oracles import java_reader
from tests.oracles.java_reader import JavaDataset
from tests.oracles.sample_datasets import key_of
from tests.views.pyramid_cases import Place, finish, grid, pyramid_of, shuffled, tiles_of, write_tiled

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first one may fetch the library

CHANNELS: list[Axes] = [{"channel": "DAPI", "time": 0}, {"channel": "GFP", "time": 0}]


class Case(NamedTuple):
    """Tiles to write, overlap, levels that must come of them, and the limit of level files."""

    frames: Sequence[Frame]
    overlap: Place
    levels: int
    limit: int = 2**32


CASES = {
    "one": Case(tiles_of([(0, 0)], (40, 48)), (4, 6), 0),
    "overlap": Case(tiles_of(grid(7, 5), (40, 48), others=CHANNELS), (4, 6), 3),
    "odd": Case(tiles_of(shuffled(grid(4, 4), 1), (39, 47), "|u1"), (0, 0), 2),
    "rgb": Case(tiles_of(grid(3, 2), (21, 19, 3), "|u1"), (1, 3), 2),
    "holes and repeats": Case(tiles_of([*shuffled(grid(6, 5), 2)[:-4], (0, 0), (2, 3)], (40, 48)), (4, 6), 3),
    "negative": Case(tiles_of(shuffled(grid(5, 4, top=-3, left=-2), 3), (40, 48)), (4, 6), 3),
    "rolled over": Case(tiles_of(grid(4, 4), (600, 500)), (0, 0), 2, LEAST_LIMIT_BYTES),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pyramids")


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, JavaDataset]:
    for name, case in CASES.items():
        write_tiled(folder / name, case.frames, case.overlap)
        finish(pyramid_of(folder / name, stack_limit_bytes=case.limit))
    try:
        return java_reader.read([folder / name for name in CASES], tmp_path_factory.mktemp("classes"))
    except java_reader.JavaUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", CASES)
def test_java_finds_every_tile_of_every_level(name: str, folder: Path, found: Mapping[Path, JavaDataset]) -> None:
    case, dataset = CASES[name], found[folder / name]
    assert not dataset.error
    right = reference_of([(frame.axes, frame.image) for frame in case.frames], case.levels, case.overlap)
    seen: dict[tuple[int, Any], str] = {}
    for image in dataset.images:
        seen[image["level"], key_of(image["axes"])] = image["sha256"]
    expected = {}
    for level, tiles in enumerate(right):
        for (rest, row, column), tile in tiles.items():
            key = key_of({**dict(rest), "row": row, "column": column})
            expected[level, key] = hashlib.sha256(tile.tobytes()).hexdigest()
    assert seen == expected
