"""What can go wrong with a mirror's disk, memory and neighbours."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import StorageError
from acqstream.mirrors import mirror_view
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_view import MirrorView
from acqstream.mirrors.slab_tasks import Workers
from acqstream.views.view_run import ViewState
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import PLAIN, check_plain, finish, frames_at, places_of, run_of
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk
from tests.waiting import until

BLOCKS = {**PLAIN, "blocks": [3, 8, 10], "levels": 3}
HALVED = ((2, 2, 2), (2, 2, 2))
FRAMES = frames_at(places_of(("time", "z"), {"time": 3, "z": 7}))


FORMATS: Mapping[str, Mapping[str, Any]] = {
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome-zarr": {"format": "ome-zarr", "chunks": [2, 8, 10], "levels": 2},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [2, 8, 10], "levels": 2, "compression": "none"},
    "ome-zarr unsharded": {"format": "ome-zarr", "chunks": [2, 8, 10], "levels": 2, "shards": False},
    "hsds reference": {"format": "hsds", "pixels": "reference"},
    "hsds": {"format": "hsds", "pixels": "copy", "chunks": [2, 8, 10], "levels": 2},
    "precomputed": {"format": "precomputed", "chunks": [2, 8, 10], "levels": 2},
    "precomputed shards": {"format": "precomputed", "chunks": [2, 8, 10], "levels": 2, "shards": True},
}


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", FRAMES)
    return tmp_path / "cells"


@pytest.mark.parametrize("nth", [1, 5, 15])
def test_a_broken_disk_ends_it_and_it_can_be_gone_on_with(cells: Path, nth: int) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    disk.fail("pwritev", nth, errno.EIO, part="0", for_good=True)
    with pytest.raises(StorageError, match="Input/output error"):
        finish(run_of(cells, BLOCKS, disk=disk))
    finish(run_of(cells, BLOCKS))
    check_plain(cells, FRAMES, HALVED)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", ["pwritev", "create", "replace", "fdatasync"])
@pytest.mark.parametrize("nth", [1, 3, 7])
@pytest.mark.parametrize("name", FORMATS)
def test_a_broken_disk_ends_a_mirror_in_any_format(cells: Path, name: str, kind: str, nth: int) -> None:
    """Another run of the view makes it whole, or says why it begins anew."""
    settings = FORMATS[name]
    disk = ScriptedDisk(UnforcedDisk())
    disk.fail(kind, nth, errno.EIO, for_good=True)
    with pytest.raises(StorageError, match="Input/output error"):
        finish(run_of(cells, settings, name=str(settings["format"]), disk=disk))
    again = finish(run_of(cells, settings, name=str(settings["format"])))
    assert again.progress().state is ViewState.COMPLETE
    found = compare(cells, again.folder, len(FRAMES))
    assert (found.frames, found.text) == (len(FRAMES), "all equal")


def test_while_the_log_has_a_backlog_nothing_is_stored(cells: Path) -> None:
    is_free, waiting = True, set()

    def may_read() -> bool:
        if not is_free:
            waiting.add(threading.current_thread())
        return is_free

    disk = ScriptedDisk(UnforcedDisk())
    on_their_way = [disk.stall("pwritev", nth, part="0") for nth in (1, 2)]  # chunks, one of each thread
    run = run_of(cells, BLOCKS, may_read=may_read, disk=disk, threads=2)
    until(lambda: run.step() is not None and all(one.entered.is_set() for one in on_their_way), "two are being stored")
    is_free = False
    for one in on_their_way:
        one.go.set()
    until(lambda: len(waiting) == 2, "both threads have stored theirs")
    files = sum(len(names) for _, _, names in os.walk(cells.with_name("cells.n5")))
    for _ in range(50):
        run.step()
    assert sum(len(names) for _, _, names in os.walk(cells.with_name("cells.n5"))) == files
    is_free = True
    finish(run)
    check_plain(cells, FRAMES, HALVED)


def test_the_first_error_of_a_thread_reaches_its_owner() -> None:
    workers = Workers(2, "test", lambda: True)

    def fail() -> None:
        raise RuntimeError("a fault")

    workers.submit(fail)
    end = time.monotonic() + 10
    with pytest.raises(RuntimeError, match="a fault"):
        while time.monotonic() < end:
            workers.check()
    workers.close()


_PEAK = """
import resource, sys, time
from pathlib import Path
from tests.mirrors.mirror_cases import run_of, finish
run = run_of(Path(sys.argv[1]), {"format": "n5", "compression": sys.argv[2], "blocks": [8, 128, 128], "levels": 3},
             memory_mb=float(sys.argv[3]), threads=2)
run.step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
need = 0
finish(run)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, run.view.summary()["memory_bytes"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB there")
@pytest.mark.parametrize("compression", ["raw", "zstd"])
def test_memory_stays_below_what_was_computed(tmp_path: Path, compression: str) -> None:
    frames = frames_at(places_of(("z", "time"), {"z": 9, "time": 3}), (700, 900))
    write_log(tmp_path / "cells", frames, memory_bytes=2**26)
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "cells"), compression, "80"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, computed = map(int, done.stdout.split())
    assert computed <= 80 * 2**20
    assert grown < computed + 40 * 2**20  # libraries, and 16 MiB that the feed reads at once


def test_what_is_computed_is_bounded_by_what_there_is(cells: Path) -> None:
    run = run_of(cells, BLOCKS)
    finish(run)
    view = run.view
    assert isinstance(view, MirrorView)
    assert view.need is not None
    assert view.need.slabs == 6  # three times, in z two of two blocks each
    assert view.need.max_bytes < 2**20
    assert mirror_view.MEMORY_MB > 1


def test_two_mirrors_of_one_dataset_have_names(cells: Path) -> None:
    settings: dict[str, Any] = {**BLOCKS, "name": "small"}
    finish(run_of(cells, settings, name="small"))
    check_plain(cells, FRAMES, HALVED, name="cells.small.n5")


@pytest.mark.parametrize("nth", [3, 9])
@pytest.mark.parametrize("settings", [BLOCKS, {"format": "wkw", "cube": 32}], ids=["n5", "wkw"])
def test_what_a_killed_removal_has_left_is_not_taken_for_the_mirror(
    cells: Path, settings: dict[str, Any], nth: int
) -> None:
    class Killed(BaseException):
        pass

    class KilledDisk(UnforcedDisk):
        files = 0

        def unlink(self, path: str) -> None:
            if ".view/" not in path:
                self.files += 1
                if self.files == nth:
                    raise Killed
            super().unlink(path)

    name = settings["format"]
    finish(run_of(cells, settings, name=name))
    again = run_of(cells, settings, name=name, is_remade=True, disk=KilledDisk())
    with pytest.raises(Killed):
        again.step()
    again.close()
    run = finish(run_of(cells, settings, name=name))
    assert run.reason == "restarted: its mirror.json is damaged, or its removal was interrupted"
    assert compare(run.path, run.folder, len(FRAMES)).text == "all equal"


class ForgetfulDisk(UnforcedDisk):
    """A disk that finds no space for data it had taken: one sync fails, and what was not forced before is zeros."""

    def __init__(self, name: str, nth: int) -> None:
        super().__init__()
        self._name = name
        self._remaining = nth
        self._paths: dict[int, str] = {}
        self._unforced: dict[str, list[tuple[int, int]]] = {}  # offset and length, by path; each call is atomic
        self.has_failed = False

    def open_file_system(self, folder: str) -> None:
        return  # each file is forced by a call of its own

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        fd = super().open(path, create=create, direct=direct)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        if self._paths[fd].endswith(self._name):
            self._unforced.setdefault(self._paths[fd], []).append((offset, sum(map(len, buffers))))
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if not self._paths[fd].endswith(self._name) or self.has_failed:
            return
        written = self._unforced.pop(self._paths[fd], [])  # of this file: others of that name keep theirs
        self._remaining -= 1
        if not self._remaining:
            self.has_failed = True
            for offset, length in written:
                super().pwritev(fd, [bytes(length)], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


IN_PLACE: list[tuple[dict[str, Any], str, int]] = [  # and the sync that fails; of a shard only one is certain
    ({"format": "wkw", "cube": 64, "levels": 1}, "x0.wkw", 1),
    ({"format": "wkw", "cube": 64, "levels": 1}, "x0.wkw", 2),
    ({"format": "ome-zarr", "compression": "none", "chunks": [1, 16, 16], "levels": 1}, "c/0/0/0", 1),
]


@pytest.mark.parametrize(("settings", "file", "nth"), IN_PLACE, ids=["wkw, first", "wkw, second", "ome-zarr"])
def test_a_disk_that_is_full_at_a_sync_costs_no_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], file: str, nth: int
) -> None:
    monkeypatch.setattr("acqstream.views.view_run.FULL_POLL_S", 0.001)
    monkeypatch.setattr("acqstream.views.view_run.CHECKPOINT_INTERVAL_S", 0.0)
    frames = frames_at(places_of(("z",), {"z": 70}))
    write_log(tmp_path / "cells", frames)
    disk = ForgetfulDisk(file, nth)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"], disk=disk))
    assert disk.has_failed
    assert run.progress().state is ViewState.COMPLETE
    assert compare(run.path, run.folder, len(frames)).text == "all equal"
