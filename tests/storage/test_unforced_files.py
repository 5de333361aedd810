"""What is written in place is forced in time, and nothing is forgotten."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from acqstream.errors import StorageError
from acqstream.storage.files import folder_tree
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.stores.local_store import LocalStore
from tests.storage.scripted_disk import ScriptedDisk

DATA = memoryview(bytes(range(1, 101)))


@pytest.fixture
def disk() -> ScriptedDisk:
    return ScriptedDisk()


def write(store: LocalStore, name: str, *offsets: int) -> None:
    store.write(name, [(offset, [DATA]) for offset in offsets], head=[b"head"], length=1000)


@pytest.fixture
def store(tmp_path: Path, disk: ScriptedDisk, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(folder_tree, "MAX_BYTES", 350)
    store = LocalStore(tmp_path, disk)
    for name in "abc":
        write(store, name)
    store.sync()
    disk.calls.clear()
    return store


def forced(disk: ScriptedDisk) -> list[str]:
    return [call.name for call in disk.of("fdatasync")]


def test_the_file_with_most_is_forced_when_there_is_much(disk: ScriptedDisk, store: LocalStore) -> None:
    for name in "abb":
        write(store, name, 16)
    assert forced(disk) == []
    write(store, "c", 16)
    assert forced(disk) == ["b"]
    store.sync()
    assert forced(disk) == ["b", "a", "c"]
    store.sync()
    assert forced(disk) == ["b", "a", "c"]


@pytest.mark.promise("forced-in-groups")
def test_what_is_written_while_it_is_forced_is_forced_again(disk: ScriptedDisk, store: LocalStore) -> None:
    write(store, "a", 16)
    stall = disk.stall("fdatasync", part="a")
    thread = threading.Thread(target=store.sync)
    thread.start()
    stall.entered.wait()
    write(store, "a", 200)
    stall.go.set()
    thread.join()
    store.sync()
    assert forced(disk) == ["a", "a"]


def test_who_syncs_meanwhile_forces_it_too(disk: ScriptedDisk, store: LocalStore) -> None:
    write(store, "a", 16)
    stall = disk.stall("fdatasync", part="a")
    thread = threading.Thread(target=store.sync)
    thread.start()
    stall.entered.wait()
    store.sync()  # it must not return without having forced it
    assert forced(disk) == ["a", "a"]
    stall.go.set()
    thread.join()
    store.sync()
    assert forced(disk) == ["a", "a"]


def test_what_could_not_be_forced_stays_to_be_forced(disk: ScriptedDisk, store: LocalStore) -> None:
    write(store, "a", 16)
    disk.fail("fdatasync", code=errno.EIO)
    with pytest.raises(StorageError, match="cannot force"):
        store.sync()
    store.sync()
    assert forced(disk) == ["a", "a"]
    disk.fail("pwritev", nth=2, code=errno.ENOSPC)
    with pytest.raises(StorageError, match="cannot write"):
        write(store, "b", 16, 300)
    store.sync()
    assert forced(disk) == ["a", "a", "b"]


def test_an_error_of_relief_reaches_the_next_sync_and_no_other_writer(disk: ScriptedDisk, store: LocalStore) -> None:
    disk.fail("fdatasync", code=errno.EIO, part="b")
    for name in "bba":
        write(store, name, 16)
    write(store, "c", 16)  # too much is unforced: b is forced, and fails
    assert forced(disk) == ["b"]
    with pytest.raises(StorageError, match=r"cannot force .*b'"):
        store.sync()
    store.sync()
    assert sorted(forced(disk)) == ["a", "b", "b", "c"]


def test_the_name_of_a_file_from_before_a_restart_is_forced(tmp_path: Path, disk: ScriptedDisk) -> None:
    write(LocalStore(tmp_path, disk), "a")  # killed before the folder was forced
    disk.calls.clear()
    store = LocalStore(tmp_path, disk)
    write(store, "a", 16)
    store.sync()
    assert tmp_path.name in [call.name for call in disk.of("sync_directory")]


class SyncingDisk(LocalDisk):
    """Another thread forces the store as soon as a file has another name, before the caller knows."""

    def __init__(self) -> None:
        super().__init__()
        self.store: LocalStore | None = None
        self.failures: list[StorageError] = []
        self.thread = threading.Thread(target=self._sync)

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        if self.store is not None:
            self.thread.start()
            self.thread.join(0.3)  # it waits for the rename, or ends and shows that it did not

    def _sync(self) -> None:
        assert self.store is not None
        try:
            self.store.sync()
        except StorageError as error:
            self.failures.append(error)


def test_a_file_that_is_renamed_meanwhile_is_forced(tmp_path: Path) -> None:
    inner = SyncingDisk()
    disk = ScriptedDisk(inner)
    store = LocalStore(tmp_path, disk)
    store.append("a.part", [DATA])
    inner.store = store
    store.rename("a.part", "a")
    inner.thread.join()
    assert (inner.failures, forced(disk)) == ([], ["a"])
