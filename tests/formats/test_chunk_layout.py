"""Every layout: keys and chunks go there and back, and documents need no file system."""

from __future__ import annotations

import itertools
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import DatasetError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import ChunkLayout, Plan
from acqstream.formats.chunk_reader import open_layout
from acqstream.formats.container_check import check_layout
from acqstream.formats.n5 import FORMAT as N5
from acqstream.storage.stores.data_path import data_path_of
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.store import Store
from tests.formats.blocks import in_blocks
from tests.mirrors.npy_format import FORMAT as NPY
from tests.mirrors.npy_format import NpyLayout, read_layout
from tests.storage.unforced_disk import UnforcedDisk

AXES = ("time", "position", "channel", "z", "y", "x")
CASES: list[tuple[ChunkFormat[Any], dict[str, object], tuple[int, ...]]] = [
    (N5, {"layout": "bdv", "blocks": [4, 8, 16]}, (3, 4, 2, 9, 20, 40)),
    (N5, {"layout": "bdv", "blocks": [4, 8, 16]}, (0, 0, 0, 9, 20, 40)),  # numbered by bits
    (N5, {"layout": "multiscale", "blocks": [4, 8, 16]}, (3, 4, 2, 9, 20, 40)),
    (N5, {"layout": "array", "blocks": [4, 8, 16], "compression": "raw"}, (3, 4, 2, 9, 20, 40)),
    (NPY, {}, (3, 4, 2, 9, 20, 40)),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, [case[0].name, *case[1].values(), *case[2][:1]])))
def layout(request: pytest.FixtureRequest) -> ChunkLayout:
    found, given, shape = request.param
    options = found.parse_options(given)
    plan = found.plan(ArraySpec(axes=AXES, shape=shape, dtype=np.dtype("u2")), options)
    made: ChunkLayout = found.layout(plan, options)
    return made


def test_keys_there_and_back(layout: ChunkLayout) -> None:
    chance = random.Random(3)
    keys = set()
    for level, spec in enumerate(layout.plan.levels):
        limits = [size or 300 for size in spec.grid_shape]
        for _ in range(200):
            position = tuple(chance.randrange(limit) for limit in limits)
            key = layout.key(level, position)
            assert layout.parse_key(key) == (level, position)
            keys.add((key, level, position))
    assert len({key for key, *_ in keys}) == len(keys)


def test_other_keys_are_not_chunks(layout: ChunkLayout) -> None:
    position = (0,) * len(layout.plan.full.axes)
    others = {
        *layout.documents(complete=False),
        *layout.member_documents(layout.plan.member(position)),
        "",
        "/",
        "x.npy",
    }
    key = layout.key(0, position)
    for changed in (*others, f"{key}/0", f"a{key}", f"{key}.new", key.replace("0", "00"), key.replace("0", "-1")):
        assert layout.parse_key(changed) is None, changed


@pytest.mark.parametrize("kind", ["u1", "u2", "f4"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_chunks_there_and_back(layout: ChunkLayout, kind: str, order: str) -> None:
    spec = layout.plan.full
    own = layout.with_levels(
        [ArraySpec(axes=spec.axes, shape=spec.shape, dtype=np.dtype(kind), chunk_shape=spec.chunk_shape)]
    )
    items = np.random.default_rng(1).integers(0, 250, spec.chunk_shape).astype(order + kind)
    chunk = in_blocks(items, spec.block_shape)
    position = (0,) * len(spec.axes)
    data = b"".join(own.encode(0, position, chunk))
    again = own.decode(0, position, data, "chunk")
    assert again.dtype == np.dtype(kind)
    assert np.array_equal(again, chunk)


def test_a_resumed_layout_has_the_keys_of_the_first(layout: ChunkLayout) -> None:
    shapes = [tuple(size or 5 for size in spec.shape) for spec in layout.plan.levels]
    earlier = layout.with_levels(layout.plan.with_shapes(shapes).levels)
    member = (0,) * len(layout.plan.member_axes)
    documents = {**earlier.documents(complete=False), **earlier.member_documents(member)}
    found = {key: documents[key] for key in layout.resume_keys() if key in documents}
    assert next(iter(layout.resume_keys())) in found
    resumed, is_complete = layout.resume(found, "cells")
    assert not is_complete
    assert [spec.shape for spec in resumed.plan.levels] == shapes
    for position in itertools.product(*map(range, earlier.plan.full.grid_shape)):
        assert resumed.key(0, position) == earlier.key(0, position)


def test_members_of_a_plan() -> None:
    spec = ArraySpec(axes=("z", "time", "y", "x"), shape=(2, 3, 4, 5), dtype=np.dtype("u1"))
    plan = Plan(levels=(spec,), member_axes=("time",))
    assert plan.member((1, 2, 0, 0)) == (2,)
    assert [*plan.members()] == [(0,), (1,), (2,)]
    assert [*Plan(levels=(spec,)).members()] == [()]


def test_a_reader_by_layout_can_be_sent_to_another_process(tmp_path: Path) -> None:
    spec = ArraySpec(axes=("time", "z", "y", "x"), shape=(2, 4, 6, 7), dtype=np.dtype("u2"))
    plan = NPY.plan(spec, 4)
    layout = NpyLayout(plan)
    store = LocalStore(tmp_path / "a.npys", UnforcedDisk())
    chunk = np.arange(4 * 6 * 7, dtype="u2").reshape(1, 4, 6, 7)
    for key, content in layout.documents(complete=True).items():
        store.ensure(key, content)
    for position in ((1, 0, 0, 0), (5, 0, 0, 0)):  # the second lies outside
        store.put(layout.key(0, position), layout.encode(0, position, chunk))
    (reader,) = pickle.loads(pickle.dumps(open_layout(data_path_of(tmp_path / "a.npys"), read_layout)))  # noqa: S301
    assert [*reader.stored()] == [(1, 0, 0, 0)]
    assert np.array_equal(reader.read_chunk((1, 0, 0, 0)), chunk)
    assert reader.read_chunk((0, 0, 0, 0)) is None
    for outside in ((2, 0, 0, 0), (5, 0, 0, 0), (1, 0, 0), (-1, 0, 0, 0)):
        with pytest.raises(IndexError):
            reader.read_chunk(outside)
    report = CheckReport()
    counts = check_layout(data_path_of(tmp_path / "a.npys"), read_layout, report)
    assert (counts.chunks, counts.missing, report.problem_count, report.note_count) == (1, 1, 0, 1)


class Blocks(NpyLayout):
    """Chunks that are kept as blocks."""

    def key(self, level: int, position: tuple[int, ...]) -> str:
        return f"b{position[0]}.{position[1]}"


def blocks_of(store: Store) -> tuple[ChunkLayout, bool]:
    spec = ArraySpec(axes=("y", "x"), shape=(7, 10), dtype=np.dtype("u1"), chunk_shape=(4, 6), block_shape=(2, 3))
    return Blocks(Plan(levels=(spec,))), True


def test_chunks_of_blocks_are_read_as_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a", UnforcedDisk())
    layout, _ = blocks_of(store)
    chunk = np.arange(24, dtype="u1").reshape(4, 6)
    store.put(layout.key(0, (1, 1)), layout.encode(0, (1, 1), in_blocks(chunk, (2, 3))))
    (reader,) = open_layout(data_path_of(tmp_path / "a"), blocks_of)
    found = reader.read_chunk((1, 1))
    assert found is not None
    assert np.array_equal(found, chunk[:3, :4])


def test_a_level_that_is_gone_is_told_by_refresh(tmp_path: Path) -> None:
    (level,) = blocks_of(LocalStore(tmp_path / "a", UnforcedDisk()))[0].plan.levels
    levels = [level, level]
    _, second = open_layout(data_path_of(tmp_path / "a"), lambda _store: (Blocks(Plan(levels=tuple(levels))), True))
    levels.pop()
    with pytest.raises(DatasetError, match="level 1 no longer exists"):
        second.refresh()
    assert second.spec is level
