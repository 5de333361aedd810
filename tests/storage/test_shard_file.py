"""A shard is a dict that is published by sync: whatever is killed, full, torn or lost in a power cut."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.errors import ConfigError, CorruptDataset, DiskFullAtSync, StorageError
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.shard_file import ShardFile
from acqstream.storage.stores.shard_index import MISSING, ShardIndex, ShardReader, note_key
from acqstream.storage.stores.store import WritableStore
from tests.storage.memory_store import MemoryStore
from tests.storage.recording_disk import RecordingDisk, build
from tests.storage.scripted_disk import ANY, ScriptedDisk
from tests.storage.shard_indices import INDICES, SLOTS, EndIndex, StartIndex
from tests.storage.unforced_disk import UnforcedDisk

KEY = "c/0/1"
State = dict[int, bytes]

both_kinds = pytest.mark.parametrize("visible", [False, True], ids=["hidden", "visible"])
all_indices = pytest.mark.parametrize("index", INDICES, ids=lambda index: type(index).__name__)


def content_of(slot: int, version: int) -> bytes:
    """Of some blocks of the disk, or less; empty ones too."""
    return (f"{slot}.{version};".encode() * 3000)[: random.Random(f"{slot} {version}").choice([0, 10, 5000, 9999])]


def read_published(store: WritableStore, index: ShardIndex) -> State:
    """As another process of ours reads it."""
    reader = ShardReader(store, KEY, index)
    found = {slot: reader.read(slot) for slot in range(SLOTS)}
    return {slot: content for slot, content in found.items() if content is not None}


def read_foreign(store: WritableStore, index: ShardIndex) -> State | None:
    """As other software reads it: by the object alone. None if there is none."""
    if store.size(KEY) is None:
        return None
    extents = index.decode(store, KEY).tolist()
    found = {slot: store.get(KEY, *extent) for slot, extent in enumerate(extents) if extent[0] != MISSING}
    assert all(content is not None and len(content) == extents[slot][1] for slot, content in found.items())
    return found  # type: ignore[return-value]


steps = st.one_of(
    st.tuples(st.just("store"), st.integers(0, SLOTS - 1)),
    st.tuples(st.sampled_from(["sync", "finish", "reopen"]), st.just(0)),
)


@all_indices
@both_kinds
@settings(max_examples=40, deadline=None)
@given(taken=st.lists(steps, max_size=14))
def test_a_shard_is_a_dict(index: ShardIndex, visible: bool, taken: Sequence[tuple[str, int]]) -> None:
    store = MemoryStore()
    shard, model, published = ShardFile(store, KEY, index, visible=visible), State(), State()
    for version, (step, slot) in enumerate(taken):
        if step == "store":
            shard.store([(slot, [b"", content_of(slot, version)])])
            model[slot] = content_of(slot, version)
        elif step == "reopen":  # by another process, as after a kill
            shard, model = ShardFile(store, KEY, index, visible=visible), dict(published)
        else:
            getattr(shard, step)()
            published = dict(model)
        assert read_published(store, index) == published
        if step == "finish" or (visible and step == "sync"):
            assert (read_foreign(store, index) or {}) == published
        if step == "finish":
            assert set(store.keys()) == ({KEY} if published else set())


@all_indices
def test_chunks_lie_in_the_order_of_their_arrival(index: ShardIndex) -> None:
    store = MemoryStore()
    shard = ShardFile(store, KEY, index)
    for slot in (4, 1, 4, 0):
        shard.store([(slot, [b"chunk %d" % slot])])
    shard.finish()
    content = store.get(KEY)
    assert content is not None
    assert content[index.head_bytes :].startswith(b"chunk 4chunk 1chunk 4chunk 0")


def test_foreign_readers_see_a_complete_shard_or_none() -> None:
    store, index = MemoryStore(), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a"])])
    shard.sync()
    assert read_foreign(store, index) is None
    shard.finish()
    shard.store([(1, [b"b"])])
    shard.sync()
    assert read_foreign(store, index) == {0: b"a"}
    shard.finish()
    assert read_foreign(store, index) == {0: b"a", 1: b"b"}


def test_a_reader_follows_a_shard_through_its_objects() -> None:
    store, index = MemoryStore(), EndIndex()
    shard = ShardFile(store, KEY, index)
    reader = ShardReader(store, KEY, index)
    assert reader.read(0) is None
    shard.store([(0, [b"a"])])
    assert reader.read(0) is None
    for step in (shard.sync, shard.finish):
        step()
        assert reader.read(0) == b"a"
    shard.store([(0, [b"b"])])
    shard.sync()
    assert reader.read(0) == b"a"  # the object that it knows is still there
    reader.refresh()
    assert reader.read(0) == b"b"


def test_what_it_needs_of_a_store() -> None:
    with pytest.raises(ConfigError, match="'append'"):
        ShardFile(MemoryStore(["whole"]), KEY, EndIndex())
    with pytest.raises(ConfigError, match="'in_place'"):
        ShardFile(MemoryStore(["whole", "append"]), KEY, StartIndex())
    ShardFile(MemoryStore(["whole", "append"]), KEY, EndIndex())


@pytest.mark.parametrize("damage", [(0, b"X"), (8, b"\xff"), (16, b"\xff"), (24, b"\xff"), (-1, b"X"), (None, b"")])
def test_a_damaged_note_is_refused(damage: tuple[int | None, bytes]) -> None:
    store, index = MemoryStore(), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a"])])
    shard.sync()
    content = bytearray(store.get(note_key(KEY)) or b"")
    at, byte = damage
    if at is None:
        content.pop()
    else:
        content[at] = (content[at] + byte[0]) % 256
    store.put(note_key(KEY), [bytes(content)])
    with pytest.raises(CorruptDataset, match="shard-note"):
        ShardFile(store, KEY, index)


def test_a_missing_or_short_object_is_refused() -> None:
    store, index = MemoryStore(), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a" * 100])])
    shard.sync()
    store.put(f"{KEY}.part1", [b"a" * 99])
    with pytest.raises(CorruptDataset, match="slot 0 is at byte 0 with 100 bytes, the object has 99"):
        ShardReader(store, KEY, index)
    store.delete(f"{KEY}.part1")
    with pytest.raises(CorruptDataset, match="missing"):
        ShardFile(store, KEY, index)


@pytest.mark.parametrize("extent", [(2**64 - 2, 3), (MISSING, 3), (3, MISSING), (2**63, 2**63)])
def test_an_index_of_a_stranger_reads_nothing_beyond_the_object(extent: tuple[int, int]) -> None:
    store, index = MemoryStore(), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a"])])
    shard.finish()
    extents = index.decode(store, KEY)
    extents[2] = extent
    store.append(KEY, [index.encode(extents, 0)[1]])
    with pytest.raises(CorruptDataset, match="slot 2 is at byte"):
        ShardReader(store, KEY, index)


@all_indices
@both_kinds
def test_a_reader_with_an_old_index_reads_the_old_chunks(index: ShardIndex, visible: bool) -> None:
    store = MemoryStore()
    shard = ShardFile(store, KEY, index, visible=visible)
    for slot in (2, 0, 2, 1):  # the first chunk is superseded: a copy without it would move the others
        shard.store([(slot, [content_of(slot, 3), b"old"])])
    shard.finish()
    old = {slot: content_of(slot, 3) + b"old" for slot in range(3)}
    reader, extents = ShardReader(store, KEY, index), index.decode(store, KEY).tolist()
    for round_ in range(3):
        shard = ShardFile(store, KEY, index, visible=visible)
        shard.store([(0, [b"new %d" % round_])])
        shard.store([(3, [b"late"])])
        for step in (shard.sync, shard.finish):
            step()
            assert {slot: reader.read(slot) for slot in range(3)} == old
            assert {slot: store.get(KEY, *extents[slot]) for slot in range(3)} == old
    assert read_foreign(store, index) == {**old, 0: b"new 2", 3: b"late"}


def test_a_finished_shard_is_copied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.storage.stores.shard_file._COPIED_BYTES", 7)
    store, index = MemoryStore(), StartIndex()
    for slot in range(3):
        shard = ShardFile(store, KEY, index)
        shard.store([(slot, [content_of(slot, 0), b"end"])])
        shard.finish()
    assert read_foreign(store, index) == {slot: content_of(slot, 0) + b"end" for slot in range(3)}


def test_a_full_disk_stops_a_chunk_and_nothing_else(tmp_path: Path) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    store, index = LocalStore(tmp_path, disk), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a" * 5000])])
    disk.fail("pwritev", code=errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        shard.store([(1, [b"b" * 5000])])
    shard.store([(1, [b"c" * 5000])])
    shard.finish()
    assert read_foreign(store, index) == {0: b"a" * 5000, 1: b"c" * 5000}


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFullAtSync)])
def test_after_a_failed_sync_nothing_is_published_by_another_try(
    tmp_path: Path, code: int, kind: type[StorageError]
) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    store, index = LocalStore(tmp_path, disk), EndIndex()
    shard = ShardFile(store, KEY, index)
    shard.store([(0, [b"a"])])
    shard.sync()
    shard.store([(1, [b"b"])])
    disk.fail("fdatasync", part=".part1", code=code)
    with pytest.raises(StorageError, match="cannot force"):
        shard.sync()
    for call in (shard.sync, shard.finish, lambda: shard.store([(1, [b"b"])])):
        with pytest.raises(StorageError, match="may be lost") as caught:
            call()
        assert type(caught.value) is kind
    assert read_published(store, index) == {0: b"a"}
    shard = ShardFile(store, KEY, index)
    shard.store([(1, [b"b"])])
    shard.finish()
    assert read_foreign(store, index) == {0: b"a", 1: b"b"}


SCRIPT = "sssyssfsysyf"  # s: store a chunk, y: sync, f: finish


class History:
    """What was stored by the script, and after which number of events what was published for certain."""

    def __init__(self, place: Any, seed: int) -> None:
        self.place = place
        self.slots = random.Random(seed)
        self.states: list[State] = [{}]  # after each store
        self.published = 0  # index in `states`

    def run(self, store: WritableStore, index: ShardIndex, visible: bool) -> Iterator[None]:
        shard = ShardFile(store, KEY, index, visible=visible)
        for step in SCRIPT:
            if step == "s":
                slot = self.slots.randrange(SLOTS)
                content = content_of(slot, len(self.states))
                self.states.append({**self.states[-1], slot: content})
                shard.store([(slot, [content[:7], content[7:]])])
            else:
                {"y": shard.sync, "f": shard.finish}[step]()
                self.published = len(self.states) - 1
            yield


def check(store: WritableStore, index: ShardIndex, visible: bool, states: Sequence[State], published: int) -> None:
    """What is there is the last published state or a newer one, for us and, if there is anything, for others."""
    allowed = states[published:]
    assert read_published(store, index) in allowed
    try:
        foreign = read_foreign(store, index)
    except CorruptDataset:
        assert visible  # an index at the end is none while chunks come; one at the start may be torn
    else:
        assert foreign is None or foreign in states
    shard = ShardFile(store, KEY, index, visible=visible)
    found = read_published(store, index)
    assert found in allowed
    if visible and found:
        assert read_foreign(store, index) == found  # opening it mends it
    shard.store([(0, [b"more"])])
    shard.sync()
    if visible:  # not only at the end: others follow a growing array
        assert read_foreign(store, index) == {**found, 0: b"more"}
    shard.finish()
    assert read_foreign(store, index) == {**found, 0: b"more"}
    assert list(store.keys()) == [KEY]


@pytest.mark.thinned(3)
@all_indices
@both_kinds
@pytest.mark.parametrize("most_bytes", [None, 3], ids=["at a call", "at a byte"])
def test_a_kill_anywhere_leaves_what_was_published(
    tmp_path: Path, index: ShardIndex, visible: bool, most_bytes: int | None
) -> None:
    for nth in range(1, 1000):
        disk = ScriptedDisk(UnforcedDisk())
        if most_bytes is None:
            fault = disk.fail(ANY, nth, for_good=True)
        else:
            fault = disk.shorten_from(nth, most_bytes, for_good=False)
            disk.fail("pwritev", nth + 1, for_good=True)
        history = History(tmp_path, nth)
        place = tmp_path / f"{nth}"
        try:
            for _ in history.run(LocalStore(place, disk), index, visible):
                pass
        except StorageError:
            pass
        check(LocalStore(place, UnforcedDisk()), index, visible, history.states, history.published)
        if not fault.delivered:
            assert nth > 8
            return
    pytest.fail("no run was completed")


@all_indices
@both_kinds
def test_a_power_cut_leaves_what_was_published(tmp_path: Path, index: ShardIndex, visible: bool) -> None:
    disk = RecordingDisk(tmp_path / "data")
    (tmp_path / "data").mkdir()
    history, known = History(tmp_path, 1), [(0, 0)]
    for _ in history.run(LocalStore(tmp_path / "data" / "root", disk), index, visible):
        known.append((len(disk.changes), history.published))
    chance = random.Random(5)
    for cut in range(250):
        after = chance.randrange(len(disk.changes) + 1)
        published = max(state for count, state in known if count <= after)
        build(disk.changes[:after], tmp_path / f"{cut}", chance)
        check(LocalStore(tmp_path / f"{cut}" / "root", UnforcedDisk()), index, visible, history.states, published)


def test_a_chunk_that_is_shorter_now_is_not_returned() -> None:
    store = MemoryStore()
    shard = ShardFile(store, KEY, EndIndex())
    shard.store([(0, [b"a" * 100])])
    shard.sync()
    reader = ShardReader(store, KEY, EndIndex())
    store.put(f"{KEY}.part1", [b"a" * 99])  # another process copies it there again
    with pytest.raises(CorruptDataset, match="has 99"):
        reader.read(0)
    reader.refresh = lambda: None  # type: ignore[method-assign]
    assert reader.read(0) is None
