"""The life of a container, in a store in memory: the order of what is put, resuming, and what is left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.checksum_list import NOTE_KEY
from acqstream.formats.chunk_layout import ChunkLayout, Plan
from acqstream.formats.n5 import FORMAT as N5
from acqstream.formats.ome_zarr import FORMAT as OME_ZARR
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.files.disk import Content, Run
from acqstream.storage.stores.store import Capability
from tests.mirrors.npy_format import FORMAT as NPY
from tests.mirrors.npy_format import NpyLayout
from tests.storage.memory_store import MemoryStore

AXES = ("time", "z", "y", "x")


class Recorder(MemoryStore):
    """Notes the keys in the order in which they were put, and when they were forced."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def put(self, key: str, content: Content) -> None:
        self.calls.append(key)
        super().put(key, content)

    def write(self, key: str, runs: Iterable[Run], *, head: Content, length: int, tail: Content = ()) -> None:
        self.calls.append(key)
        super().write(key, runs, head=head, length=length, tail=tail)

    def sync(self) -> None:
        self.calls.append("sync")
        super().sync()

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def n5_layout(shape: tuple[int, ...] = (0, 4, 8, 8), **given: Any) -> ChunkLayout:
    options = N5.parse_options({"blocks": [4, 8, 8], "levels": 1, "compression": "raw", **given})
    assert N5.layout is not None
    return N5.layout(N5.plan(ArraySpec(axes=AXES, shape=shape, dtype=np.dtype("u1")), options), options)


def store_at(publisher: Publisher, position: Position) -> None:
    chunk = np.full((1, 4, 8, 8), 7, "u1")
    publisher.store(0, [(position, publisher.encode(0, position, chunk))])


@pytest.fixture
def stores() -> tuple[Recorder, Recorder]:
    return Recorder(), Recorder()


def test_documents_come_after_what_they_speak_of(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    publisher = Publisher(n5_layout(), store, beside, "cells.n5")
    publisher.begin()
    member = ["setup0/attributes.json", "setup0/timepoint0/attributes.json", "setup0/timepoint0/s0/attributes.json"]
    assert store.taken() == ["attributes.json", *member, NOTE_KEY]  # its own note first, once
    assert beside.taken() == ["cells.xml"]
    store_at(publisher, (1, 0, 0, 0))
    later = [key.replace("timepoint0", "timepoint1") for key in member[1:]]
    assert store.taken() == [*later, "setup0/timepoint1/s0/0/0/0"]
    publisher.grow(0, (2, 4, 8, 8))
    assert store.taken() == ["sync", "attributes.json"]
    publisher.sync()
    assert (store.taken()[0], beside.taken()) == ("sync", ["cells.xml", "sync"])


def test_chunks_written_in_place_are_forced_before_their_shape_is_announced(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    options = OME_ZARR.parse_options({"compression": "none", "levels": 1})
    spec = ArraySpec(axes=AXES, shape=(0, 4, 8, 8), dtype=np.dtype("u1"))
    publisher = Publisher(OME_ZARR.layout(OME_ZARR.plan(spec, options), options), store, beside, "cells.ome.zarr")
    publisher.begin()
    assert store.taken() == ["zarr.json", "0/zarr.json", NOTE_KEY]
    publisher.store(0, [((0, 0, 0, 0), publisher.encode(0, (0, 0, 0, 0), np.full((1, 1, 1, 1, 1, 1, 8, 8), 7, "u1")))])
    assert store.taken() == ["0/c/0/0/0/0"]
    publisher.grow(0, (1, 4, 8, 8))
    assert store.taken() == ["sync", "0/zarr.json", "zarr.json"]


def test_the_end_is_announced_after_all_else_is_forced(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    publisher = Publisher(n5_layout((2, 4, 8, 8)), store, beside, "cells.n5")
    publisher.begin()
    store_at(publisher, (0, 0, 0, 0))
    store.taken()
    publisher.finish(n5_layout((2, 4, 8, 8)).plan.levels)
    calls = store.taken()
    assert calls.index("sync") < calls.index("attributes.json") < len(calls) - 1
    assert "setup0/timepoint1/s0/attributes.json" in calls[: calls.index("sync")]
    assert calls[-1] == "sync"
    assert b'"complete": true' in (store.get("attributes.json") or b"")


def test_a_killed_process_is_caught_up_with(stores: tuple[Recorder, Recorder]) -> None:
    """Documents of members and the container may be of different growths: all are put again."""
    store, beside = stores
    publisher = Publisher(n5_layout((2, 0, 8, 8)), store, beside, "cells.n5")
    publisher.begin()
    for time in (0, 1):
        store_at(publisher, (time, 0, 0, 0))
    old = store.get("setup0/timepoint1/s0/attributes.json") or b""
    publisher.grow(0, (2, 4, 8, 8))
    new = store.get("setup0/timepoint1/s0/attributes.json") or b""
    assert old != new
    store.put("setup0/timepoint1/s0/attributes.json", [old])
    again = Publisher(n5_layout((1, 0, 8, 8)), store, beside, "cells.n5")
    again.begin()
    again.grow(0, (2, 4, 8, 8))
    assert store.get("setup0/timepoint1/s0/attributes.json") == new


def test_a_complete_container_stays_so_until_a_chunk_comes(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    layout = n5_layout((1, 4, 8, 8))
    publisher = Publisher(layout, store, beside, "cells.n5")
    publisher.begin()
    store_at(publisher, (0, 0, 0, 0))
    publisher.finish(layout.plan.levels)
    beside.put("cells.xml", [b"registered"])
    again = Publisher(layout, store, beside, "cells.n5")
    again.begin()
    again.finish(layout.plan.levels)
    assert b'"complete": true' in (store.get("attributes.json") or b"")
    assert beside.get("cells.xml") == b"registered"  # programs note in it how the views are registered
    later = Publisher(layout, store, beside, "cells.n5")
    later.begin()
    assert b'"complete": true' in (store.get("attributes.json") or b"")
    store_at(later, (0, 0, 0, 0))
    later.grow(0, (1, 4, 8, 8))
    assert b'"complete": false' in (store.get("attributes.json") or b"")


def test_listings_may_be_late_by_a_part_of_the_first_axis(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    publisher = Publisher(n5_layout(), store, beside, "cells.n5")
    publisher.begin()
    beside.taken()
    for time in range(100):
        publisher.grow(0, (time + 1, 4, 8, 8))
    calls = beside.taken()
    assert 50 < len(calls) < 90
    assert b"<last>99</last>" not in (beside.get("cells.xml") or b"")
    publisher.sync()
    assert b"<last>99</last>" in (beside.get("cells.xml") or b"")


def test_a_store_without_a_folder_around_it() -> None:
    store = Recorder()
    publisher = Publisher(n5_layout(), store, None, "cells.n5")
    publisher.begin()
    publisher.sync()
    assert not [*store.keys("cells")]


def test_other_data_are_left_alone() -> None:
    store = Recorder()
    store.put("mine.txt", [b"mine"])
    with pytest.raises(DatasetExists, match="not a container"):
        Publisher(n5_layout(), store, None, "cells.n5").begin()
    assert store.taken() == ["mine.txt"]


class InPlace(NpyLayout):
    needs: ClassVar[Capability] = "in_place"


def test_a_store_that_cannot_do_what_the_layout_needs_is_refused() -> None:
    plan = NPY.plan(ArraySpec(axes=AXES, shape=(1, 4, 8, 8), dtype=np.dtype("u1")), 4)
    with pytest.raises(ConfigError, match="in_place"):
        Publisher(InPlace(plan), MemoryStore({"whole"}), None, "cells.npys").begin()


def test_a_container_of_one_document(stores: tuple[Recorder, Recorder]) -> None:
    store, beside = stores
    plan = NPY.plan(ArraySpec(axes=AXES, shape=(0, 4, 8, 8), dtype=np.dtype("u1")), 4)
    publisher = Publisher(NpyLayout(plan), store, beside, "cells.npys")
    publisher.begin()
    store_at(publisher, (0, 0, 0, 0))
    publisher.grow(0, (1, 4, 8, 8))
    assert store.taken() == ["npy-array.json", NOTE_KEY, "0.0.0.0.npy", "sync", "npy-array.json"]
    spaced = replace(plan.full, scale=(1.0, 2.0, 1.0, 1.0))
    publisher.set_space(Plan(levels=(spaced,)).levels)
    publisher.finish(plan.with_shapes([(1, 4, 8, 8)]).levels)
    assert b'"complete": true' in (store.get("npy-array.json") or b"")


class CountingStore(MemoryStore):
    """Counts what is asked of the store."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def size(self, key: str) -> int | None:
        self.asked.append(key)
        return super().size(key)


def test_only_members_that_are_listed_are_asked_for() -> None:
    store, layout = CountingStore(), n5_layout((500, 4, 8, 8))
    publisher = Publisher(layout, store, None, "cells.n5")
    publisher.begin()
    assert store.asked == [NOTE_KEY], "a new container has no members"
    store_at(publisher, (7, 0, 0, 0))
    Publisher(layout, store, None, "cells.n5").begin()
    members = [key for key in store.asked if key != NOTE_KEY]
    assert members == [f"setup0/timepoint{time}/s0/attributes.json" for time in (0, 7)]
