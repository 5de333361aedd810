"""Tiles of levels are written in a thread of their own: errors arrive, memory that is being written is left alone."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.errors import DiskFull, StorageError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.storage.files.stack_file import StackFile
from acqstream.storage.page_memory import PageMemory
from acqstream.views import view_run as views
from acqstream.views.level_files import WriteBehind
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.pyramid_cases import check_levels, finish, grid, pyramid_of, tiles_of, write_tiled
from tests.waiting import WAIT_S

BLOCK = 4096


def block(value: int) -> memoryview:
    memory = PageMemory(BLOCK).view
    memory[:] = bytes([value]) * BLOCK
    return memory


@pytest.fixture
def disk() -> ScriptedDisk:
    return ScriptedDisk()


@pytest.fixture
def file(tmp_path: Path, disk: ScriptedDisk) -> Iterator[StackFile]:
    file = StackFile(disk, str(tmp_path / "a.tif"))
    yield file
    file.close()


def content(tmp_path: Path) -> bytes:
    return (tmp_path / "a.tif.part").read_bytes()[::BLOCK]


def test_a_write_is_not_waited_for(tmp_path: Path, disk: ScriptedDisk, file: StackFile) -> None:
    writer, stall = WriteBehind(), disk.stall("pwritev", 1)
    for number in range(3):
        writer.submit(file, [block(number + 1)], number * BLOCK)
    assert stall.entered.wait(WAIT_S)
    stall.go.set()
    writer.finish()
    assert content(tmp_path)[:3] == b"\1\2\3"
    writer.close()


def test_after_a_full_disk_what_failed_is_written_again(tmp_path: Path, disk: ScriptedDisk, file: StackFile) -> None:
    writer = WriteBehind()
    disk.fail("pwritev", 2, errno.ENOSPC, for_good=True)
    for number in range(3):
        writer.submit(file, [block(number + 1)], number * BLOCK)
    for _ in range(2):
        with pytest.raises(DiskFull):
            writer.finish()
    disk.mend()
    with pytest.raises(DiskFull):  # the third one failed, too, and is not known to be mended
        writer.finish()
    writer.finish()
    assert content(tmp_path)[:3] == b"\1\2\3"
    writer.close()


def test_what_is_written_again_waits_for_what_is_under_way(tmp_path: Path, disk: ScriptedDisk, file: StackFile) -> None:
    writer = WriteBehind()
    disk.fail("pwritev", 1, errno.ENOSPC)
    stall = disk.stall("pwritev", 2)
    for number in range(2):
        writer.submit(file, [block(number + 1)], number * BLOCK)
    assert stall.entered.wait(WAIT_S)
    with pytest.raises(DiskFull):
        writer.finish()
    again = threading.Thread(target=writer.finish)
    again.start()
    again.join(0.1)
    assert len(disk.of("pwritev")) == 2
    stall.go.set()
    again.join(WAIT_S)
    assert content(tmp_path)[:2] == b"\1\2"
    writer.close()


def test_other_errors_are_told_again_and_again(disk: ScriptedDisk, file: StackFile) -> None:
    writer = WriteBehind()
    disk.fail("pwritev", 1, errno.EIO)
    writer.submit(file, [block(1)], 0)
    writer.wait()
    for _ in range(2):
        with pytest.raises(StorageError):
            writer.finish()
    writer.close()


def test_closing_waits_for_the_write_that_has_begun_and_begins_no_other(disk: ScriptedDisk, file: StackFile) -> None:
    writer, stall = WriteBehind(), disk.stall("pwritev", 1)
    for number in range(3):
        writer.submit(file, [block(number + 1)], number * BLOCK)
    assert stall.entered.wait(WAIT_S)
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    stall.go.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert len(disk.of("pwritev")) == 1


def tile_of(level: Path, row: int) -> NDArray[Any]:
    """The one that was published so many before."""
    reader = NDTiffReader(level, level)
    try:
        return reader.read_pixels(row)
    finally:
        reader.close()


def test_a_tile_is_not_painted_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "STEP_BYTES", 1)
    frames, again = tiles_of(grid(2, 2)), tiles_of([(0, 0)], first=4)
    cells, once = write_tiled(tmp_path / "cells", [*frames, *again]), write_tiled(tmp_path / "once", frames)
    finish(pyramid_of(once))
    disk = ScriptedDisk()
    run = pyramid_of(cells, disk=disk)
    while run.progress().cursor < 3:
        run.step()
    stall = disk.stall("pwritev", 2, part="NDTiffStack")  # the first one is the header
    run.step()
    assert stall.entered.wait(WAIT_S)
    step = threading.Thread(target=run.step)  # takes the tile that comes again
    step.start()
    step.join(0.1)
    assert step.is_alive()
    stall.go.set()
    step.join(WAIT_S)
    finish(run)
    check_levels(cells, [*frames, *again], 1)
    assert np.array_equal(tile_of(cells / "Downsampled_x2", 0), tile_of(once / "Downsampled_x2", 0))
    assert not np.array_equal(tile_of(cells / "Downsampled_x2", 1), tile_of(once / "Downsampled_x2", 0))
