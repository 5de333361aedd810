"""Several processes put the same files: each is whole at every moment, and nothing of the killed ones stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.folder_tree import FolderTree, OwnNamesDisk, remove_temporaries
from acqstream.storage.stores.local_store import LocalStore
from tests.storage.scripted_disk import ScriptedDisk

CONTENT = b"content" * 1000


def test_the_same_files_are_put_by_many(tmp_path: Path) -> None:
    def put(_: int) -> None:
        disk = OwnNamesDisk()
        tree = FolderTree(str(tmp_path / "root"), disk)
        for number in range(20):
            tree.put(tree.folder(("a",)), str(number), [CONTENT])
            replace_file(disk, str(tmp_path / "root" / "note.json"), CONTENT)
        tree.sync()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(8)))
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) == 21
    assert all(path.read_bytes() == CONTENT for path in found)


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("0", "0.12-ab.new", "1.new", "newer"):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(b"x")
    remove_temporaries(LocalDisk(), str(tmp_path))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["0", "newer"]


def test_a_file_that_has_its_content_is_not_written_again(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    store = LocalStore(tmp_path / "root", disk)
    for content in (b"one", b"one", b"two"):
        store.ensure("0", content)
        store.sync()
        assert (tmp_path / "root" / "0").read_bytes() == content
    assert len(disk.of("replace")) == 2
