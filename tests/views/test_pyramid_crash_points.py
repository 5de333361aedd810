"""The views' process dies before each of its disk calls, or each of them fails: the end is that of an undisturbed run.

And at every such moment the dataset opens, in our reader and in ndstorage, with whole tiles.
"""

from __future__ import annotations

import contextlib
import errno
import io
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ndstorage
import pytest

from acqstream.formats.check_report import CheckReport
from acqstream.formats.ndtiff.check import check_dataset
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.views import pyramid_view
from acqstream.views.view_run import ViewRun
from tests.grid.reference_pyramid import key_of, reference_of
from tests.integrity.repair.damaged_sets import HastyDisk
from tests.log.make_frames import LEAST_LIMIT_BYTES, Frame
from tests.storage.scripted_disk import ANY, ScriptedDisk
from tests.views.pyramid_cases import check_levels, finish, grid, pyramid_of, tiles_of, write_tiled

pytestmark = pytest.mark.slow

SCAN = [*tiles_of(grid(3, 2)), *tiles_of([(0, 0), (2, 1)], first=6)]  # incomplete tiles, and two that come again


class Died(BaseException):
    """The process is gone."""


CAN_TEAR = sys.platform == "linux"  # past the direct descriptor of the file
needs_tearing = pytest.mark.skipif(not CAN_TEAR, reason="a write is torn past its descriptor, by /proc")


class DyingDisk(HastyDisk):
    """Its process dies before the k-th call; torn: in the middle of the k-th that writes."""

    def __init__(self, fatal_call: int, *, is_torn: bool = False) -> None:
        super().__init__()
        self.left = fatal_call
        self._is_torn = is_torn
        self.open_files: set[int] = set()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or name == "close" or not callable(value):
            return value
        if self.left and (name == "pwritev" or not self._is_torn):
            self.left -= 1
            if not self.left:
                return self._tear if self._is_torn else self._die
        return value if self.left else self._die

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        descriptor = super().open(path, create=create, direct=direct)
        self.open_files.add(descriptor)
        return descriptor

    def close(self, fd: int) -> None:
        self.open_files.discard(fd)
        super().close(fd)

    def _die(self, *_: Any, **__: Any) -> Any:
        raise Died

    def _tear(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        content = b"".join(bytes(buffer) for buffer in buffers)
        with open(f"/proc/self/fd/{fd}", "r+b") as file:
            file.seek(offset)
            file.write(content[: len(content) // 2])
        raise Died


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    """A frame a step, all that can be published after each, and then a checkpoint."""
    monkeypatch.setattr(pyramid_view, "PUBLISH_INTERVAL_S", 0.0)


def abandon(run: ViewRun) -> None:
    """Free the files of a dead process, as the system does."""
    with contextlib.suppress(Died):
        run.close()
    disk = run._files._disk
    if isinstance(disk, DyingDisk):
        for descriptor in list(disk.open_files):
            disk.close(descriptor)
    run._files.unlock()


def dies(run: ViewRun) -> bool:
    """Step until it dies; False if it came to its end."""
    try:
        while run.step() is not None:
            pass
    except Died:
        return True
    finally:
        abandon(run)
    return False


class Watcher:
    """Opens the dataset; every tile that a reader finds must be what some part of the frames makes of it."""

    def __init__(self, frames: Sequence[Frame], levels: int) -> None:
        self._allowed: list[dict[Any, set[bytes]]] = [{} for _ in range(levels + 1)]
        for count in range(1, len(frames) + 1):
            tiles = [(frame.axes, frame.image) for frame in frames[:count]]
            for level, found in enumerate(reference_of(tiles, levels)):
                for key, image in found.items():
                    self._allowed[level].setdefault(key, set()).add(image.tobytes())
        self.seen = 0

    def look(self, folder: Path) -> None:
        readers = open_readers(folder)
        try:
            for reader in readers:
                for row in range(len(reader)):
                    image = reader.read_pixels(row)
                    assert image.tobytes() in self._allowed[reader.level][key_of(reader.key(row))], reader.path
                    assert "Axes" in reader.read_metadata(row)
                    self.seen += reader.level > 0
        finally:
            for reader in readers:
                reader.close()

    @staticmethod
    def look_with_ndstorage(folder: Path) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            dataset = ndstorage.Dataset(str(folder))
        for level in dataset.res_levels.values():
            for key in list(level.index):
                assert level.read_image(**dict(key)).size
            level.close()


def check_whole(folder: Path, frames: Sequence[Frame], levels: int) -> None:
    check_levels(folder, frames, levels)
    report = CheckReport()
    list(check_dataset(folder, report, False))
    assert not report.problems
    assert {path.name for path in folder.with_name("cells.pyramid").iterdir()} == {"view.json", ".acqstream.lock"}


def each_death(
    tmp_path: Path, start: Callable[[Path], Path], make: Callable[..., ViewRun], *, is_torn: bool, watcher: Watcher
) -> int:
    """Die before the first call, the second, and so on, each time on new files; is_torn: in each that writes.

    Returns the number of deaths.
    """
    source = start(tmp_path / "source" / "cells")
    for fatal_call in range(1, 10_000):
        place = tmp_path / f"run-{fatal_call}"
        shutil.copytree(source.parent, place)
        died = dies(make(place / "cells", disk=DyingDisk(fatal_call, is_torn=is_torn)))
        watcher.look(place / "cells")
        if fatal_call % 5 == 0:
            watcher.look_with_ndstorage(place / "cells")
        finish(make(place / "cells", disk=HastyDisk()))
        check_whole(place / "cells", SCAN, 2)
        shutil.rmtree(place)
        if not died:
            return fatal_call - 1
    raise AssertionError("it never came to its end")


def written(folder: Path) -> Path:
    folder.parent.mkdir()
    return write_tiled(folder, SCAN)


def with_levels(folder: Path) -> Path:
    finish(pyramid_of(written(folder)))
    return folder


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize(("is_torn", "least"), [(False, 80), pytest.param(True, 20, marks=needs_tearing)])
def test_it_dies_before_each_call(tmp_path: Path, is_torn: bool, least: int) -> None:
    watcher = Watcher(SCAN, 2)
    assert each_death(tmp_path, written, pyramid_of, is_torn=is_torn, watcher=watcher) > least
    assert watcher.seen


@pytest.mark.timeout_s(300)
def test_it_dies_before_each_call_while_levels_are_made_again(tmp_path: Path) -> None:
    def remade(folder: Path, **more: Any) -> ViewRun:
        return pyramid_of(folder, is_remade=True, **more)

    watcher = Watcher(SCAN, 2)
    assert each_death(tmp_path, with_levels, remade, is_torn=False, watcher=watcher) > 80
    assert watcher.seen


@pytest.mark.timeout_s(300)
def test_it_dies_again_and_again(tmp_path: Path) -> None:
    chance, watcher, deaths = random.Random(3), Watcher(SCAN, 2), 0
    for turn in range(12):
        folder = written(tmp_path / str(turn) / "cells")
        for _ in range(6):
            is_torn = chance.random() < 0.5 and CAN_TEAR
            disk = DyingDisk(chance.randint(1, 20 if is_torn else 80), is_torn=is_torn)
            deaths += dies(pyramid_of(folder, disk=disk))
            watcher.look(folder)
        finish(pyramid_of(folder, disk=HastyDisk()))
        check_whole(folder, SCAN, 2)
        shutil.rmtree(folder.parent)
    assert deaths > 25


@pytest.mark.timeout_s(300)
def test_it_dies_around_a_roll_over(tmp_path: Path) -> None:
    frames = [*tiles_of(grid(4, 4), (600, 500)), *tiles_of([(0, 0), (3, 3)], (600, 500), first=16)]

    def make(**more: Any) -> ViewRun:
        return pyramid_of(tmp_path / "cells", stack_limit_bytes=LEAST_LIMIT_BYTES, **more)

    disk = ScriptedDisk(HastyDisk())
    write_tiled(tmp_path / "cells", frames)
    finish(make(disk=disk))
    new_files = [number for number, call in enumerate(disk.calls) if call.name.endswith("_1.tif.part")]
    assert new_files
    watcher = Watcher(frames, 2)
    for fatal_call in range(new_files[0] - 10, new_files[0] + 10):
        shutil.rmtree(tmp_path / "cells.pyramid")
        for level in (tmp_path / "cells").glob("Downsampled_x*"):
            shutil.rmtree(level)
        assert dies(make(disk=DyingDisk(fatal_call)))
        watcher.look(tmp_path / "cells")
        watcher.look_with_ndstorage(tmp_path / "cells")
        finish(make(disk=HastyDisk()))
        check_whole(tmp_path / "cells", frames, 2)


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_each_call_fails_once(tmp_path: Path, code: int) -> None:
    source, watcher = written(tmp_path / "source" / "cells"), Watcher(SCAN, 2)
    for nth in range(1, 10_000):
        place = tmp_path / f"run-{nth}"
        shutil.copytree(source.parent, place)
        disk = ScriptedDisk(HastyDisk())
        fault = disk.fail(ANY, nth, code)
        with contextlib.suppress(OSError):  # StorageError is one; that of closing comes as it is
            finish(pyramid_of(place / "cells", disk=disk))
        watcher.look(place / "cells")
        finish(pyramid_of(place / "cells", disk=HastyDisk()))
        check_whole(place / "cells", SCAN, 2)
        shutil.rmtree(place)
        if not fault.delivered:
            assert nth > 80
            return
    raise AssertionError("it never came to its end")
