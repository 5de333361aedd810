"""A disk whose fsync takes seconds: how often a mirror asks for it does not grow with its files."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from acqstream.mirrors.comparison import compare
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.folder_tree import MAX_FILES
from acqstream.storage.stores.local_store import LocalStore
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of
from tests.storage.scripted_disk import ScriptedDisk
from tests.waiting import until

FORCES = ("fdatasync", "sync_directory", "sync_file_system")
FORCES_PER_S = 16  # of announcements and a checkpoint; half of what SlowDisk allows, so forces per frame would be seen


class SlowDisk(ScriptedDisk):
    """Each force takes a while: announcements and checkpoints are rarer then."""

    def _enter(self, kind: str, path: str, offset: int = 0, length: int = 0) -> None:
        if kind in FORCES:
            time.sleep(0.03)
        super()._enter(kind, path, offset, length)


@pytest.mark.promise("forced-in-groups")
@pytest.mark.parametrize("name", ["n5", "precomputed", "ome-zarr", "hsds"])
def test_forces_do_not_grow_with_the_frames(tmp_path: Path, name: str) -> None:
    """Announcements and checkpoints come with time, so a mirror that took longer may force a little more often."""
    counts, seconds = [], []
    for times in (8, 256):
        path = tmp_path / f"cells{times}"
        write_log(path, frames_at(places_of(("time",), {"time": times})))
        disk = SlowDisk()
        disk.can_join = True
        began = time.monotonic()
        run = finish(run_of(path, {"format": name}, name=name, disk=disk))
        seconds.append(time.monotonic() - began)
        assert compare(path, run.folder, times).text == "all equal"
        counts.append(len(disk.of(*FORCES)))
    if not LocalDisk().open_file_system(str(tmp_path)):
        pytest.skip("this system forces no file system at once")
    assert counts[1] <= counts[0] + 8 + FORCES_PER_S * (seconds[1] - seconds[0])


class MeetingDisk(LocalDisk):
    """Forcing a file returns once four threads do it."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(4)

    def open_file_system(self, folder: str) -> None:
        return

    def fdatasync(self, fd: int) -> None:
        self.meeting.wait(timeout=60)
        super().fdatasync(fd)


def test_elsewhere_several_files_are_forced_in_the_time_of_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a", MeetingDisk())
    for number in range(8):
        store.put_new(f"{number}", [b"chunk"])
    store.sync()
    store.ensure_all({f"{number}.json": b"document" for number in range(8)})
    assert store.get("7.json") == b"document"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forces a file system")
def test_what_is_new_is_forced_in_groups_and_what_is_replaced_at_once(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.can_join = True
    store = LocalStore(tmp_path / "a", disk)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3 * MAX_FILES):
        store.put_new(f"{number}", [b"chunk"])
    assert 2 <= len(disk.of(*FORCES)) <= 8
    store.put_new("0", [b"another"])
    assert [call.name for call in disk.of("fdatasync")] == ["0.new"]
    disk.fail("sync_file_system")
    with pytest.raises(OSError, match="cannot force the file system"):
        store.sync()
    store.put_new("more", [b"chunk"])
    store.sync()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.promise("forced-in-groups")
def test_a_document_that_another_thread_forces_gets_its_name_then(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    store, path = LocalStore(tmp_path / "a", disk), tmp_path / "a/a.json"
    first = disk.stall("fdatasync", part="a.json.new")
    with ThreadPoolExecutor(2) as pool:
        placing = pool.submit(store.ensure_all, {"a.json": b"{}"})
        assert first.entered.wait(60)
        second = disk.stall("open", part="a.json.new")
        forcing = pool.submit(store.sync)
        assert second.entered.wait(60)  # it knows the temporary name, and opens that
        first.go.set()
        with suppress(AssertionError):  # a rename that does not wait comes at once
            until(path.exists, "it has its name", 0.3)
        is_early = path.exists()
        second.go.set()
        placing.result(60)
        forcing.result(60)
    assert not is_early
    assert path.read_bytes() == b"{}"
