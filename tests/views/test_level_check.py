"""Lower levels: every changed tile is named, and unchanged ones are proved."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from acqstream.formats.ndtiff.reader import open_readers
from acqstream.views.level_check import check_levels
from tests.views.pyramid_cases import finish, grid, pyramid_of, shuffled, tiles_of, write_tiled


def tiled(folder: Path, shape: tuple[int, int], seed: int = 1) -> Path:
    frames = tiles_of(shuffled(grid(4, 3), seed), shape, others=[{"channel": "a"}, {"channel": "b"}])
    finish(pyramid_of(write_tiled(folder, frames)))
    return folder


@pytest.mark.parametrize("shape", [(16, 24), (15, 9)], ids=["even", "odd"])
def test_every_tile_is_proved_and_every_changed_one_named(tmp_path: Path, shape: tuple[int, int]) -> None:
    whole = tiled(tmp_path / "cells", shape)
    found = check_levels(whole)
    assert (found.problems, found.reason, found.levels) == ([], "", 2)
    assert found.tiles == 2 * (4 + 1)
    rng, count = np.random.default_rng(0), 0
    for level, reader in enumerate(open_readers(whole)[1:], 1):
        for row in map(reader.row, list(reader.keys())):
            name, frame = reader.stored_frame(row)
            at = frame.pixels + int(rng.integers(frame.height * frame.width * 2))
            stack = reader.path / name
            content = stack.read_bytes()
            stack.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            found = check_levels(whole)
            assert any(f"Downsampled_x{2**level}" in path for path, _ in found.problems)
            stack.write_bytes(content)
            count += 1
        reader.close()
    assert count == 10


def test_levels_of_another_run_and_missing_tiles_are_named(tmp_path: Path) -> None:
    whole, other = tiled(tmp_path / "cells", (16, 24)), tiled(tmp_path / "other", (16, 24), seed=2)
    shutil.copy(next((other / "Downsampled_x2").glob("*.tif")), next((whole / "Downsampled_x2").glob("*.tif")))
    assert check_levels(whole).problem_count > 8  # level 1, and level 2, which is made of it
    shutil.copytree(other / "Downsampled_x4", whole / "Downsampled_x4", dirs_exist_ok=True)
    assert check_levels(other).problem_count == 0
    index = other / "Downsampled_x2" / "NDTiff.index"
    content = index.read_bytes()
    index.write_bytes(content[: len(content) // 8])
    assert any("is missing" in text for _, text in check_levels(other).problems)


def test_levels_of_another_program_are_not_proved(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "ndtiff"
    tiled_sets = [path for path in golden.glob("*/**/Downsampled_x2") if path.is_dir()]
    assert tiled_sets
    assert check_levels(tiled_sets[0].parent).reason == "another program made them"
