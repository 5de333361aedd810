"""Processes that make a pyramid are killed at any moment, while a reader follows: the end is that of a quiet run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.views.checkpoint import read_checkpoint, view_folder
from tests.grid.reference_pyramid import Image, Key, key_of, reference_of
from tests.log.make_frames import Frame
from tests.views.pyramid_cases import check_levels, grid, shuffled, start_tiled, tiles_of, write_tiled
from tests.waiting import until

KILLS = 20
SHAPE = (31, 40)

PROGRAM = """
import sys, time
from pathlib import Path
from acqstream.views import view_run
from acqstream.views.pyramid_view import PyramidView
view_run.STEP_BYTES = 1
view_run.CHECKPOINT_INTERVAL_S = 0.01
run = view_run.ViewRun(Path(sys.argv[1]), "pyramid", PyramidView)
while (wait_s := run.step()) is not None:
    time.sleep(max(wait_s, 0.001))
"""


class Follower:
    """Looks at every entry of every level as it comes; all of a tile must be there, and right once it is complete.

    A tile of a scan whose levels are published complete only is right at once.
    """

    def __init__(self, folder: Path, right: list[dict[Key, Image]]) -> None:
        self._folder = folder
        self._right = right
        self._readers: dict[int, NDTiffReader] = {}
        self._seen: dict[int, int] = {}
        self.count = 0

    def look(self) -> None:
        for level in range(1, len(self._right)):
            folder = self._folder / f"Downsampled_x{2**level}"
            if not folder.is_dir():
                assert level not in self._readers
                return
            reader = self._readers.get(level)
            if reader is None:
                reader = self._readers[level] = NDTiffReader(folder, folder)
                assert len(reader), "a level without a tile"
            reader.refresh()
            for row in range(self._seen.get(level, 0), len(reader)):
                assert np.array_equal(reader.read_pixels(row), self._right[level][key_of(reader.key(row))])
                assert "Axes" in reader.read_metadata(row)
                self.count += 1
            self._seen[level] = len(reader)


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)


def scan() -> list[Frame]:
    """Whole groups of four all the way up, so that tiles are published complete, and never otherwise."""
    channels: list[Any] = [{"channel": "A"}, {"channel": "B"}]
    return tiles_of(shuffled(grid(8, 8), 4), SHAPE, others=channels)


@pytest.mark.promise("pyramids")
@pytest.mark.slow
def test_kills_of_the_process_while_the_dataset_is_written_and_followed(tmp_path: Path) -> None:
    folder, chance, frames = tmp_path / "cells", random.Random(11), scan()
    right = reference_of([(frame.axes, frame.image) for frame in frames], 3)
    log = start_tiled(folder)
    log.wait_until_open()
    follower, kills, sent = Follower(folder, right), 0, 0
    process = started("-c", PROGRAM, str(folder))
    try:
        while kills < KILLS or sent < len(frames):
            for frame in frames[sent : sent + 6]:
                log.append(frame.header, frame.image)
            sent = min(sent + 6, len(frames))
            due_s = time.monotonic() + chance.uniform(0.15, 0.45)
            while time.monotonic() < due_s:
                follower.look()
            kill(process)
            kills += 1
            follower.look()
            process = started("-c", PROGRAM, str(folder))
        log.close()

        def is_over() -> bool:
            follower.look()
            return process.poll() is not None

        until(is_over, "the view is complete")
    finally:
        kill(process)
        log.begin_close()
        log.close()
    assert process.returncode == 0
    assert follower.count > 0
    saved = read_checkpoint(view_folder(folder, "pyramid"))
    assert saved is not None
    assert (saved.is_complete, saved.cursor) == (True, len(frames))
    check_levels(folder, frames, 3)


@pytest.mark.slow
@pytest.mark.parametrize("rebuild", [False, True])
def test_acqstream_mirror_is_killed(tmp_path: Path, rebuild: bool) -> None:
    folder, chance = tmp_path / "cells", random.Random(12)
    places = shuffled(grid(7, 5, top=-3, left=-2), 4)
    frames = tiles_of([*places, *places[:9]], (67, 81))
    write_tiled(folder, frames, (6, 9))
    command = ["-m", "acqstream", "mirror", str(folder), "--to", "pyramid", *(["--rebuild"] if rebuild else [])]
    if rebuild:
        assert subprocess.run([sys.executable, *command[:-1]], stdout=subprocess.DEVNULL, check=False).returncode == 0
    for _ in range(4):
        process = started(*command)
        try:
            process.wait(chance.uniform(0.3, 0.9))
        except subprocess.TimeoutExpired:
            kill(process)
        if rebuild:
            for reader in open_readers(folder):  # at every moment there are whole levels, or none
                reader.close()
    result = subprocess.run([sys.executable, *command, "--json"], stdout=subprocess.PIPE, check=False)
    assert json.loads(result.stdout)["state"] == "complete"
    check_levels(folder, frames, 3, (6, 9))
    leftovers = {path.name for path in view_folder(folder, "pyramid").iterdir()}
    assert leftovers == {"view.json", ".acqstream.lock"}


def test_the_follower_itself_finds_a_wrong_tile(tmp_path: Path) -> None:
    frames = tiles_of(grid(2, 2))
    write_tiled(tmp_path / "cells", frames)
    right = reference_of([(frame.axes, frame.image) for frame in frames], 1)
    process = started("-c", PROGRAM, str(tmp_path / "cells"))
    assert process.wait(100) == 0  # it forces what it writes
    Follower(tmp_path / "cells", right).look()
    stack = next((tmp_path / "cells" / "Downsampled_x2").glob("*.tif"))
    with stack.open("r+b") as file:
        file.seek(-500, os.SEEK_END)
        file.write(b"x" * 9)
    with pytest.raises((AssertionError, DatasetError)):
        Follower(tmp_path / "cells", right).look()
