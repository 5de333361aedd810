"""Many small files below one root: made whole, forced together."""

from __future__ import annotations

import errno
import os

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.storage.files import folder_tree
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.folder_tree import FolderTree, remove_tree
from tests.host_system import make_link
from tests.storage.scripted_disk import ScriptedDisk


def test_folders_are_made_once(tmp_path):
    disk = ScriptedDisk()
    root = str(tmp_path / "root")
    tree = FolderTree(root, disk)
    assert tree.folder(("a", "b")) == f"{root}/a/b"
    assert tree.folder(("a", "c")) == f"{root}/a/c"
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


def test_the_folder_above_a_root_that_is_a_bare_name_is_forced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk = ScriptedDisk()
    tree = FolderTree("root", disk)
    tree.folder(())
    tree.sync()
    assert [call.name for call in disk.of("sync_directory")] == [os.curdir]


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


def test_what_a_killed_process_has_made_is_forced_by_the_next_one(tmp_path):
    FolderTree(str(tmp_path / "root"), LocalDisk()).folder(("a",))  # killed before it synced
    disk = ScriptedDisk()
    tree = FolderTree(str(tmp_path / "root"), disk)
    tree.put(tree.folder(("a",)), "0", [b"x"])
    tree.sync()
    assert {call.name for call in disk.of("sync_directory")} == {tmp_path.name, "root", "a"}


def test_a_tree_is_removed_with_its_links_but_not_what_they_lead_to(tmp_path):
    other = tmp_path / "other"
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    other.mkdir()
    (other / "kept").write_bytes(b"x")
    (tmp_path / "tree" / "a" / "b" / "0").write_bytes(b"x")
    make_link(tmp_path / "tree" / "link", other)
    remove_tree(LocalDisk(), str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    assert (other / "kept").read_bytes() == b"x"
    remove_tree(LocalDisk(), str(tmp_path / "tree"))


def test_a_junction_is_removed_but_not_what_it_leads_to(tmp_path, monkeypatch):
    """On Windows `lstat` reports a junction as a folder. Here a folder stands for it, which `unlink` puts aside."""
    (tmp_path / "tree" / "junction").mkdir(parents=True)
    (tmp_path / "tree" / "junction" / "kept").write_bytes(b"x")

    class Disk(LocalDisk):
        def unlink(self, path):
            os.rename(path, tmp_path / "unlinked")

    junction = os.lstat(tmp_path / "tree" / "junction")
    monkeypatch.setattr(folder_tree, "is_junction", lambda status: os.path.samestat(status, junction))
    remove_tree(Disk(), str(tmp_path / "tree"))
    assert (tmp_path / "unlinked" / "kept").read_bytes() == b"x"
    assert not (tmp_path / "tree").exists()


def test_a_link_in_the_place_of_a_folder_is_neither_emptied_nor_filled(tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "thesis").write_bytes(b"x")
    make_link(tmp_path / "tree", tmp_path / "documents")
    with pytest.raises(StorageError, match="is a link, and what it leads to stays as it is"):
        remove_tree(LocalDisk(), str(tmp_path / "tree"))
    (tmp_path / "own").mkdir()
    make_link(tmp_path / "own" / "a", tmp_path / "documents")
    tree = FolderTree(str(tmp_path / "own"), LocalDisk())
    with pytest.raises(StorageError, match="is a link, and what it leads to stays as it is"):
        tree.folder(["a"])
    moved = FolderTree(str(tmp_path / "tree"), LocalDisk())  # its owner moved the root behind a link
    assert moved.folder([]) == str(tmp_path / "tree")
    assert os.listdir(tmp_path / "documents") == ["thesis"]


@pytest.mark.parametrize("kind", ["junction", "link"])
def test_files_behind_a_link_are_not_met(tmp_path, monkeypatch, kind):
    """A junction, for which a folder stands here: os.walk goes through it before Python 3.12."""
    top, other = tmp_path / "tree", tmp_path / "other"
    (top / "plain").mkdir(parents=True)
    other.mkdir()
    for path in (top / "a", top / "plain" / "b", other / "c"):
        path.write_bytes(b"x")
    if kind == "link":
        make_link(top / "away", other)
    else:
        other.rename(top / "away")
        away = os.lstat(top / "away")
        monkeypatch.setattr(folder_tree, "is_junction", lambda status: os.path.samestat(status, away))
    assert sorted(folder_tree.walk(str(top))) == [(str(top), ["a", "away"]), (str(top / "plain"), ["b"])]
