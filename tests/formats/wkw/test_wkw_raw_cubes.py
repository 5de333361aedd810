"""What is written into raw cubes is forced in time, and nothing is forgotten."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import numpy as np
import pytest

from acqstream.errors import StorageError
from acqstream.formats.wkw import raw_cubes
from acqstream.formats.wkw.header import BlockType, Header
from acqstream.formats.wkw.raw_cubes import RawCubes
from acqstream.storage.folder_tree import FolderTree
from tests.storage.scripted_disk import ScriptedDisk

HEADER = Header(8, 4, BlockType.RAW, np.dtype(np.uint8))
DATA = memoryview(bytes(range(1, 101)))


@pytest.fixture
def disk() -> ScriptedDisk:
    return ScriptedDisk()


@pytest.fixture
def cubes(tmp_path: Path, disk: ScriptedDisk, monkeypatch: pytest.MonkeyPatch) -> RawCubes:
    monkeypatch.setattr(raw_cubes, "_MOST_UNFORCED_BYTES", 350)
    tree = FolderTree(str(tmp_path), disk)
    cubes = RawCubes(tree, HEADER, disk)
    for name in "abc":
        cubes.write(tree.folder(()), name, [])
    cubes.sync()
    disk.calls.clear()
    return cubes


def forced(disk: ScriptedDisk) -> list[str]:
    return [call.name for call in disk.of("fdatasync")]


def test_the_file_with_most_is_forced_when_there_is_much(tmp_path: Path, disk: ScriptedDisk, cubes: RawCubes) -> None:
    for name in "abb":
        cubes.write(str(tmp_path), name, [(16, [DATA])])
    assert forced(disk) == []
    cubes.write(str(tmp_path), "c", [(16, [DATA])])
    assert forced(disk) == ["b"]
    cubes.sync()
    assert forced(disk) == ["b", "a", "c"]
    cubes.sync()
    assert forced(disk) == ["b", "a", "c"]


def test_what_is_written_while_it_is_forced_is_forced_again(
    tmp_path: Path, disk: ScriptedDisk, cubes: RawCubes
) -> None:
    cubes.write(str(tmp_path), "a", [(16, [DATA])])
    stall = disk.stall("fdatasync", part="a")
    thread = threading.Thread(target=cubes.sync)
    thread.start()
    stall.entered.wait()
    cubes.write(str(tmp_path), "a", [(200, [DATA])])
    stall.go.set()
    thread.join()
    cubes.sync()
    assert forced(disk) == ["a", "a"]


def test_who_syncs_meanwhile_forces_it_too(tmp_path: Path, disk: ScriptedDisk, cubes: RawCubes) -> None:
    cubes.write(str(tmp_path), "a", [(16, [DATA])])
    stall = disk.stall("fdatasync", part="a")
    thread = threading.Thread(target=cubes.sync)
    thread.start()
    stall.entered.wait()
    cubes.sync()  # it must not return without having forced it
    assert forced(disk) == ["a", "a"]
    stall.go.set()
    thread.join()
    cubes.sync()
    assert forced(disk) == ["a", "a"]


def test_what_could_not_be_forced_stays_to_be_forced(tmp_path: Path, disk: ScriptedDisk, cubes: RawCubes) -> None:
    cubes.write(str(tmp_path), "a", [(16, [DATA])])
    disk.fail("fdatasync", code=errno.EIO)
    with pytest.raises(StorageError, match="cannot force"):
        cubes.sync()
    cubes.sync()
    assert forced(disk) == ["a", "a"]
    disk.fail("pwritev", nth=2, code=errno.ENOSPC)
    with pytest.raises(StorageError, match="cannot write the cube"):
        cubes.write(str(tmp_path), "b", [(16, [DATA]), (300, [DATA])])
    cubes.sync()
    assert forced(disk) == ["a", "a", "b"]


def test_the_name_of_a_cube_from_before_a_restart_is_forced(tmp_path: Path, disk: ScriptedDisk) -> None:
    before = FolderTree(str(tmp_path), disk)
    RawCubes(before, HEADER, disk).write(before.folder(()), "a", [])  # killed before the folder was forced
    disk.calls.clear()
    tree = FolderTree(str(tmp_path), disk)
    RawCubes(tree, HEADER, disk).write(str(tmp_path), "a", [(HEADER.first_block, [DATA])])
    tree.sync()
    assert [call.name for call in disk.of("sync_directory")] == [tmp_path.name]
