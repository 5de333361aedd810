"""What every store promises, and what each kind of store does beyond it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.errors import ConfigError, DiskFull, StorageError, UnsupportedFeature
from acqstream.storage.files import folder_tree
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.folder_tree import OwnNamesDisk, remove_temporaries
from acqstream.storage.files.url_path import RemotePath
from acqstream.storage.stores import local_store
from acqstream.storage.stores.data_path import HttpStore
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.store import WritableStore, require
from tests.dataset.web_server import serving
from tests.host_system import make_link
from tests.storage.memory_store import MemoryStore
from tests.storage.scripted_disk import ANY, ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

KEYS = ["a", "b/c", "b/d", "b2/c", "b/e/f"]
FIXED = "raw/0"  # of one length, written in place
FIXED_LENGTH = 40


@pytest.fixture(params=["local", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], WritableStore]:
    if request.param == "memory":
        return MemoryStore
    return lambda: LocalStore(tmp_path_factory.mktemp("store") / "root", UnforcedDisk())


contents = st.lists(st.binary(max_size=20), max_size=3)
ranges = st.tuples(st.integers(-30, 30), st.none() | st.integers(0, 30))
runs = st.lists(st.tuples(st.integers(0, 20), st.lists(st.binary(max_size=10), max_size=2)), max_size=3)
operations = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS), contents),
    st.tuples(st.just("ensure"), st.sampled_from(KEYS), st.binary(max_size=4)),
    st.tuples(st.just("append"), st.sampled_from(KEYS), contents),
    st.tuples(st.just("write"), st.just(FIXED), runs),
    st.tuples(st.just("rename"), st.sampled_from(KEYS), st.sampled_from(KEYS)),
    st.tuples(st.just("delete"), st.sampled_from([*KEYS, FIXED]), st.none()),
    st.tuples(st.just("sync"), st.just(""), st.none()),
)


def perform(store: WritableStore, model: dict[str, bytes], name: str, key: str, value: Any) -> None:
    """Do one thing to the store and to the model."""
    if name == "put":
        store.put(key, value)
        model[key] = b"".join(value)
    elif name == "ensure":
        store.ensure(key, value)
        model[key] = value
    elif name == "append":
        assert store.append(key, value) == len(model.get(key, b""))
        model[key] = model.get(key, b"") + b"".join(value)
    elif name == "write":
        store.write(key, value, head=[b"he", b"ad"], length=FIXED_LENGTH, tail=[b"ta", b"il"])
        content = bytearray(model.get(key, b"head".ljust(FIXED_LENGTH - 4, b"\0") + b"tail"))
        for offset, parts in value:
            content[offset : offset + len(b"".join(parts))] = b"".join(parts)
        model[key] = bytes(content)
    elif name == "rename":
        if key in model:
            store.rename(key, value)
            model[value] = model.pop(key)
        else:
            with pytest.raises(StorageError):
                store.rename(key, value)
    elif name == "delete":
        store.delete(key)
        model.pop(key, None)
    else:
        store.sync()


def check_equal(store: WritableStore, model: dict[str, bytes]) -> None:
    assert sorted(store.keys()) == sorted(model)
    for key in [*KEYS, FIXED]:
        assert store.get(key) == model.get(key)
        assert store.size(key) == (len(model[key]) if key in model else None)


def part(content: bytes, start: int, length: int | None) -> bytes:
    rest = content[start:]
    return rest if length is None else rest[:length]


@settings(max_examples=60, deadline=None)
@given(given_operations=st.lists(operations, max_size=12), given_range=ranges)
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_store_is_a_dict(
    tmp_path_factory: pytest.TempPathFactory, kind: str, given_operations: list[Any], given_range: Any
) -> None:
    store: WritableStore = (
        LocalStore(tmp_path_factory.mktemp("s") / "root", UnforcedDisk()) if kind == "local" else MemoryStore()
    )
    model: dict[str, bytes] = {}
    for name, key, value in given_operations:
        perform(store, model, name, key, value)
        check_equal(store, model)
        for other in KEYS:
            expected = part(model[other], *given_range) if other in model else None
            assert store.get(other, *given_range) == expected


def test_listing(make_store: Callable[[], WritableStore]) -> None:
    store = make_store()
    assert list(store.keys()) == list(store.children()) == list(store.children("b")) == []
    for key in KEYS:
        store.put(key, [b"x"])
    assert sorted(store.keys("b")) == ["b/c", "b/d", "b/e/f", "b2/c"]
    assert sorted(store.keys("b/")) == ["b/c", "b/d", "b/e/f"]
    assert sorted(store.keys("b/e/f")) == ["b/e/f"]
    assert list(store.keys("b/x/")) == []
    assert sorted(store.children()) == ["a", "b/", "b2/"]
    assert sorted(store.children("b")) == ["c", "d", "e/"]
    assert list(store.children("b/c")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\0"])
def test_odd_keys_are_refused(make_store: Callable[[], WritableStore], key: str) -> None:
    store = make_store()
    with pytest.raises(ValueError, match="is not a key"):
        store.put(key, [b"x"])
    with pytest.raises(ValueError, match="is not a key"):
        store.get(key)


def test_a_path_that_windows_would_hide_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "max_path_characters", lambda: len(str(tmp_path)) + 40)
    store = LocalStore(tmp_path, LocalDisk())
    longest = 40 - 1 - len(TEMPORARY_SUFFIX)
    store.put("a/" + "b" * (longest - 2), [b"1"])
    for write in (store.put, store.append):
        with pytest.raises(StorageError, match=r"cannot write.*3 characters too many"):
            write("a/" + "b" * (longest + 1), [b"1"])
    assert list(store.keys()) == ["a/" + "b" * (longest - 2)]


def test_a_missing_capability_is_named() -> None:
    store = MemoryStore(["whole"])
    require(store, "whole", "n5")
    with pytest.raises(ConfigError, match=r"memory: wkw needs a store that can write inside .* can put"):
        require(store, "in_place", "wkw")
    for call in (
        lambda: store.append("a", [b"x"]),
        lambda: store.write("a", [], head=[], length=1),
        lambda: store.rename("a", "b"),
    ):
        with pytest.raises(ConfigError, match="memory: "):
            call()


class TestLocalStore:
    @pytest.fixture
    def disk(self) -> ScriptedDisk:
        return ScriptedDisk()

    @pytest.fixture
    def store(self, tmp_path: Path, disk: ScriptedDisk) -> LocalStore:
        return LocalStore(tmp_path / "root", disk)

    def test_nothing_is_made_before_the_first_write(self, store: LocalStore) -> None:
        assert store.get("a/b") is None
        assert store.size("a/b") is None
        store.sync()
        assert not store.root.exists()

    def test_contents_are_forced_before_their_names(self, store: LocalStore, disk: ScriptedDisk) -> None:
        store.append("a/b", [b"x"])
        store.write("a/c", [(1, [b"y"])], head=[b"h"], length=9)
        assert not disk.of("fdatasync", part="b")
        before = len(disk.of("fdatasync", part="c"))
        store.sync()
        kinds = [(call.kind, call.name) for call in disk.of("fdatasync", "sync_directory")]
        assert len(disk.of("fdatasync", part="b")) == 1
        assert len(disk.of("fdatasync", part="c")) == before + 1
        folders = ["a", "root", store.root.parent.name]
        assert min(kinds.index(("sync_directory", name)) for name in folders) > kinds.index(("fdatasync", "b"))
        calls = len(disk.calls)
        store.sync()
        assert len(disk.calls) == calls

    def test_what_could_not_be_forced_is_forced_by_the_next_sync(self, store: LocalStore, disk: ScriptedDisk) -> None:
        store.append("a", [b"x"])
        disk.fail("fdatasync")
        with pytest.raises(StorageError, match="cannot force"):
            store.sync()
        store.sync()
        assert len(disk.of("fdatasync", part="a")) == 2

    def test_a_full_disk_leaves_no_part_of_an_append(self, store: LocalStore, disk: ScriptedDisk) -> None:
        store.append("a", [b"first"])
        disk.shorten(2)
        disk.fail("pwritev", 2, errno.ENOSPC)
        with pytest.raises(DiskFull, match="root/a"):
            store.append("a", [b"second"])
        assert store.get("a") == b"first"
        assert store.append("a", [b"third"]) == 5

    def test_an_append_that_makes_no_file_leaves_nothing_to_force(self, store: LocalStore, disk: ScriptedDisk) -> None:
        disk.fail("create", 1, errno.ENOSPC, part="a")
        with pytest.raises(DiskFull, match="root/a"):
            store.append("a", [b"first"])
        store.sync()
        assert store.append("a", [b"second"]) == 0
        store.sync()

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_every_failing_call_leaves_the_old_object_or_the_new(self, tmp_path: Path, code: int) -> None:
        for nth in range(1, 100):
            disk = ScriptedDisk(UnforcedDisk())
            store = LocalStore(tmp_path / f"{code}-{nth}", disk)
            store.put("a/b", [b"old"])
            fault = disk.fail(ANY, nth, code)
            try:
                store.put("a/b", [b"new", b"er"])
                store.put("c/d", [b"other"])
                store.sync()
            except DiskFull:
                assert code == errno.ENOSPC
            except StorageError:
                assert code == errno.EIO
            assert store.get("a/b") in (b"old", b"newer")
            assert store.get("c/d") in (None, b"other")
            assert set(store.keys()) <= {"a/b", "c/d"}
            if not fault.delivered:
                assert store.get("c/d") == b"other"
                break
            store.put("a/b", [b"again"])
            assert store.get("a/b") == b"again"
        else:
            pytest.fail("no run without a failure")

    def test_a_process_killed_at_any_call_leaves_the_old_object_or_the_new(self, tmp_path: Path) -> None:
        for nth in range(1, 100):
            disk = ScriptedDisk(UnforcedDisk())
            place = tmp_path / f"{nth}"
            LocalStore(place, UnforcedDisk()).put("a", [b"old"])
            killed = disk.fail(ANY, nth, for_good=True)  # nothing happens afterwards, no removal either
            store = LocalStore(place, disk)
            try:
                store.put("a", [b"new"])
                store.write("raw", [(2, [b"x"])], head=[b"h"], length=8)
                store.rename("a", "b")
            except StorageError:
                pass
            other = LocalStore(place, UnforcedDisk())
            assert [other.get("a"), other.get("b")] in ([b"old", None], [b"new", None], [None, b"new"])
            assert other.get("raw") in (None, b"h".ljust(8, b"\0"), b"h\0x".ljust(8, b"\0"))
            assert set(other.keys()) <= {"a", "b", "raw"}
            if not killed.delivered:
                break
        else:
            pytest.fail("no run was completed")

    def test_only_so_much_stays_unforced(
        self, store: LocalStore, disk: ScriptedDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folder_tree, "MAX_BYTES", 10)
        store.append("a", [bytes(8)])
        assert not disk.of("fdatasync", part="a")
        store.append("b", [bytes(3)])
        assert [call.name for call in disk.of("fdatasync")] == ["a"]  # the one with more
        monkeypatch.setattr(folder_tree, "MAX_FILES", 2)
        store.append("c", [b"c"])
        store.append("d", [b"d"])
        assert [call.name for call in disk.of("fdatasync")] == ["a", "b"]

    def test_links_out_of_the_folder_are_refused(self, store: LocalStore, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        store.put("a/own", [b"own"])
        make_link(store.root / "a" / "out", tmp_path / "secret")
        make_link(store.root / "a" / "in", Path("own"))
        assert store.get("a/in") == b"own"
        with pytest.raises(UnsupportedFeature, match="out of the dataset"):
            store.get("a/out")
        with pytest.raises(UnsupportedFeature, match="out of the dataset"):
            store.size("a/out")
        assert LocalStore(store.root, UnforcedDisk(), follows_links=True).get("a/out") == b"secret"

    def test_a_ring_of_links_is_listed_once(self, store: LocalStore) -> None:
        store.put("a/own", [b"own"])
        (store.root / "a" / "ring").symlink_to("..")
        assert list(store.keys()) == ["a/own"]

    def test_a_junction_is_not_entered(self, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        store.put("own", [b"own"])
        store.put("junction/ring", [b"x"])
        monkeypatch.setattr(local_store, "is_junction", lambda status: True)
        assert list(store.keys()) == ["own"]

    def test_no_chunk_is_copied(self, tmp_path: Path) -> None:
        class LookingDisk(UnforcedDisk):
            def __init__(self) -> None:
                super().__init__()
                self.seen: list[Any] = []

            def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
                self.seen += [buffer.obj if isinstance(buffer, memoryview) else buffer for buffer in buffers]
                return super().pwritev(fd, buffers, offset)

        disk, chunk = LookingDisk(), bytearray(1000)
        store = LocalStore(tmp_path, disk)
        store.put("a", [b"head", memoryview(chunk)])
        store.append("b", [memoryview(chunk)])
        store.write("c", [(9, [memoryview(chunk)])], head=[b"h"], length=2000)
        assert sum(one is chunk for one in disk.seen) == 3

    def test_two_processes_put_one_object(self, tmp_path: Path) -> None:
        first, second = (LocalStore(tmp_path, OwnNamesDisk()) for _ in range(2))
        disk = ScriptedDisk(OwnNamesDisk())
        disk.fail("replace", for_good=True)
        disk.fail("unlink", for_good=True)
        with pytest.raises(StorageError):
            LocalStore(tmp_path, disk).put("a", [b"of a killed process"])
        first.put("a", [b"x"])
        second.put("a", [b"x"])
        assert list(first.keys()) == ["a"]
        assert len(list(tmp_path.iterdir())) == 2
        remove_temporaries(UnforcedDisk(), str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


class TestHttpStore:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        store = LocalStore(tmp_path, UnforcedDisk())
        for number, key in enumerate(KEYS):
            store.put(key, [bytes(range(number, 20 + number))])
        return tmp_path

    @pytest.fixture
    def server(self, folder: Path) -> Iterator[Any]:
        with serving(folder) as (url, requests):
            yield HttpStore(RemotePath.of_url(url)), requests

    @pytest.mark.parametrize("start", [0, 3, 19, 20, 30, -5, -20, -30])
    @pytest.mark.parametrize("length", [None, 0, 1, 5, 40])
    def test_ranges(self, server: Any, folder: Path, start: int, length: int | None) -> None:
        store, _ = server
        assert store.get("b/c", start, length) == LocalStore(folder, UnforcedDisk()).get("b/c", start, length)

    def test_missing_objects(self, server: Any) -> None:
        store, _ = server
        assert store.get("none") is store.get("b/none", -3) is store.get("none", 1, 2) is store.size("none") is None
        assert store.size("b/c") == 20

    def test_listing(self, server: Any) -> None:
        store, requests = server
        assert sorted(store.keys()) == sorted(KEYS)
        assert sorted(store.keys("b/")) == ["b/c", "b/d", "b/e/f"]
        assert sorted(store.children()) == ["a", "b/", "b2/"]
        requests.lists_folders = False
        with pytest.raises(StorageError):
            list(store.keys())
