"""Many small files below one root: made whole, forced together."""

from __future__ import annotations

import errno
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.storage.disk import LocalDisk
from acqstream.storage.folder_tree import FolderTree
from tests.storage.scripted_disk import ScriptedDisk


def test_folders_are_made_once(tmp_path):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    assert tree.folder(("a", "b")) == f"{tmp_path}/root/a/b"
    assert tree.folder(("a", "c")) == f"{tmp_path}/root/a/c"
    assert len(disk.of("mkdir")) == 4
    tree.folder(("a", "b"))
    assert len(disk.of("mkdir")) == 4
    assert (tmp_path / "root" / "a" / "c").is_dir()


def test_files_are_replaced_whole(tmp_path):
    tree = FolderTree(str(tmp_path / "root"), LocalDisk())
    folder = tree.folder(())
    tree.put(folder, "0", [b"old", memoryview(b" content")])
    tree.put(folder, "0", [b"new"])
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "root").iterdir()] == [("0", b"new")]


def test_names_are_forced_by_sync_and_contents_before(tmp_path):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    tree.put(tree.folder(("a",)), "0", [b"x"])
    kinds = [call.kind for call in disk.calls if call.name.endswith(("0", "0.new"))]
    assert kinds.index("fdatasync") < kinds.index("replace")
    assert not disk.of("sync_directory")
    tree.sync()
    forced = {call.name for call in disk.of("sync_directory")}
    assert forced == {tmp_path.name, "root", "a"}
    tree.sync()
    assert len(disk.of("sync_directory")) == 3


def test_what_could_not_be_forced_is_forced_the_next_time(tmp_path):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    tree.put(tree.folder(("a",)), "0", [b"x"])
    disk.fail("sync_directory", 2)
    with pytest.raises(StorageError, match="cannot force the folder"):
        tree.sync()
    tree.sync()
    assert {call.name for call in disk.of("sync_directory")} >= {tmp_path.name, "root", "a"}


@pytest.mark.parametrize("kind", ["create", "pwritev", "fdatasync", "replace"])
def test_a_failed_call_leaves_the_old_content(tmp_path, kind):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    folder = tree.folder(())
    tree.put(folder, "0", [b"old"])
    disk.fail(kind, 1, errno.ENOSPC)
    with pytest.raises(DiskFull, match="root/0"):
        tree.put(folder, "0", [b"new"])
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "root").iterdir()] == [("0", b"old")]


def test_what_a_crash_left_is_no_hindrance(tmp_path):
    tree = FolderTree(str(tmp_path), LocalDisk())
    (tmp_path / "0.new").write_bytes(b"half of somethi")
    tree.put(str(tmp_path), "0", [b"whole"])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("0", b"whole")]


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "a").write_text("a file")
    tree = FolderTree(str(tmp_path), LocalDisk())
    with pytest.raises(StorageError, match="a/b"):
        tree.folder(("a", "b"))


def test_files_that_are_put_soon_are_forced_together_and_named_then(tmp_path):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    for number in range(5):
        tree.put_soon(tree.folder(("a",)), str(number), [b"old", memoryview(b" content")])
    tree.put_soon(tree.folder(("a",)), "3", [b"new"])
    assert sorted(path.name for path in (tmp_path / "root" / "a").iterdir()) == [f"{n}.new" for n in range(5)]
    assert not disk.of("fdatasync")
    tree.name_all()
    found = {path.name: path.read_bytes() for path in (tmp_path / "root" / "a").iterdir()}
    assert found == {str(n): b"new" if n == 3 else b"old content" for n in range(5)}
    kinds = [call.kind for call in disk.calls if call.kind in ("fdatasync", "replace")]
    assert kinds == ["fdatasync"] * 5 + ["replace"] * 5
    tree.sync()
    assert {call.name for call in disk.of("sync_directory")} == {tmp_path.name, "root", "a"}


def test_many_files_do_not_wait_for_ever_and_sync_names_the_rest(tmp_path):
    tree = FolderTree(str(tmp_path / "root"), LocalDisk())
    names = [str(number) for number in range(100)]
    for name in names:
        tree.put_soon(tree.folder(()), name, [b"x"])
    named = [path for path in (tmp_path / "root").iterdir() if path.suffix != ".new"]
    assert 60 < len(named) < 100
    tree.sync()
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == sorted(names)


def test_a_full_disk_when_files_get_their_names_loses_none(tmp_path):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    for number in range(5):
        tree.put_soon(tree.folder(()), str(number), [b"x"])
    disk.fail("replace", 3, errno.ENOSPC)
    with pytest.raises(DiskFull):
        tree.name_all()
    tree.put_soon(tree.folder(()), "4", [b"y"])
    tree.sync()
    assert {path.name: path.read_bytes() for path in (tmp_path / "root").iterdir()} == {
        **{str(number): b"x" for number in range(4)},
        "4": b"y",
    }


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_cannot_be_forced_is_never_named(tmp_path, code):
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    for number in range(3):
        tree.put_soon(tree.folder(()), str(number), [b"x"])
    disk.fail("fdatasync", 2, code)
    with pytest.raises(StorageError) as caught:
        tree.name_all()
    assert not isinstance(caught.value, DiskFull)  # the pages are gone: trying again would name holes
    tree.sync()
    assert list((tmp_path / "root").iterdir()) == []


def test_who_closes_drops_what_has_no_name(tmp_path):
    tree = FolderTree(str(tmp_path / "root"), LocalDisk())
    tree.put_soon(tree.folder(()), "0", [b"x"])
    tree.close()
    assert list((tmp_path / "root").iterdir()) == []
    tree.name_all()
    assert list((tmp_path / "root").iterdir()) == []


def test_the_same_files_are_put_soon_by_many_threads(tmp_path):
    tree = FolderTree(str(tmp_path / "root"), LocalDisk())
    chance = random.Random(3)
    orders = [chance.sample(range(40), 40) for _ in range(6)]

    def put(order):
        for number in order:
            tree.put_soon(tree.folder(()), str(number), [bytes([number]) * 5000])
            if number % 9 == 0:
                tree.name_all()

    # One name at a time, as the engine does: a thread each for the numbers of one residue.
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(put, [[n for n in order if n % 6 == k] * 5 for k, order in enumerate(orders)]))
    tree.sync()
    found = {int(path.name): path.read_bytes() for path in (tmp_path / "root").iterdir()}
    assert found == {number: bytes([number]) * 5000 for number in range(40)}
