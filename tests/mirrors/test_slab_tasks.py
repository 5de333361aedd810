"""Chunks of slabs that leave memory: stored by themselves, or several by one write."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import DiskFull
from acqstream.formats.chunk_layout import Encoded
from acqstream.mirrors import slab_tasks
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import Slab, SlabBuffer
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.slab_tasks import LevelReduction, SlabTasks, Workers
from tests.waiting import HANG_S, until

GRIDS = slab_grids([ArraySpec(axes=("z", "y", "x"), shape=(9, 4, 4), dtype=np.dtype("uint16"), chunk_shape=(1, 4, 4))])
CHUNK_BYTES = 32


class NotingSink:
    """Notes which chunks came together. refuses: the first run finds no space, once this is set.

    Chunks of `sharing` neighbours along z are stored by one call.
    """

    def __init__(self, *, joins_chunks: bool, refuses: threading.Event | None = None, sharing: int = 1) -> None:
        self.joins_chunks = joins_chunks
        self.refuses = refuses
        self.sharing = sharing
        self.runs: list[list[int]] = []
        self.chunks: dict[int, int] = {}

    def stored_with(self, level: int, position: Position) -> int:
        del level
        return position[0] // self.sharing

    def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
        del level, position, present
        return [chunk.tobytes()]

    def store(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        del level
        refuses, self.refuses = self.refuses, None
        if refuses is not None:
            assert refuses.wait(HANG_S)
            raise DiskFull.wrap(OSError(errno.ENOSPC, "no space"), "c/0", "cannot write")
        self.runs.append([position[0] for position, _ in chunks])
        for position, encoded in chunks:
            self.chunks[position[0]] = int(np.frombuffer(b"".join(encoded), "<u2").max())


def store(sink: NotingSink, threads: int, come_to_end: threading.Event) -> tuple[set[int], list[DiskFull]]:
    """Store nine slabs that wait all together. Returns the slabs that became free, and the errors.

    come_to_end is set when a thread has taken all tasks.
    """
    workers, gate = Workers(threads, "test", lambda: True), threading.Event()
    free: set[int] = set()
    errors: list[DiskFull] = []
    try:
        for _ in range(threads):
            workers.submit(lambda: assert_set(gate))
        tasks = SlabTasks(sink, workers, LevelReduction(LevelExtents(GRIDS)))
        for z in range(9):
            slab = Slab(0, (z,), SlabBuffer(GRIDS[0], "<"), filled=1)
            slab.buffer.put(0, np.full((4, 4), z, np.uint16))
            tasks.submit(slab, [], None)
        workers.submit(come_to_end.set)
        gate.set()

        def are_free() -> bool:
            try:
                workers.check()
            except DiskFull as error:
                errors.append(error)
            free.update(slab.key[0] for slab in tasks.collect()[0])
            return len(free) == 9

        until(are_free, "all slabs are stored")
        assert tasks.stored_chunks == 9
    finally:
        workers.close()
    return free, errors


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(HANG_S)


@pytest.mark.parametrize(
    ("joins_chunks", "runs"), [(True, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]), (False, [[z] for z in range(9)])]
)
def test_chunks_that_wait_are_stored_together_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch, joins_chunks: bool, runs: list[list[int]]
) -> None:
    monkeypatch.setattr(slab_tasks, "MAX_RUN_BYTES", 4 * CHUNK_BYTES - 1)
    sink = NotingSink(joins_chunks=joins_chunks)
    assert store(sink, 1, threading.Event()) == (set(range(9)), [])
    assert sink.runs == runs
    assert sink.chunks == {z: z for z in range(9)}


@pytest.mark.parametrize(("most", "runs"), [(3, [3, 3, 3]), (7, [6, 3]), (1, [3, 3, 3])])
def test_chunks_of_a_slab_that_alternate_in_a_file_are_stored_by_one_call(
    monkeypatch: pytest.MonkeyPatch, most: int, runs: list[int]
) -> None:
    """Also beyond the length of a run."""
    monkeypatch.setattr(slab_tasks, "MAX_RUN_BYTES", most * CHUNK_BYTES)
    (deep,) = slab_grids([GRIDS[0].spec], joined_layers=9)
    sink, workers = NotingSink(joins_chunks=True, sharing=3), Workers(1, "test", lambda: True)
    gate = threading.Event()
    workers.submit(lambda: assert_set(gate))
    tasks = SlabTasks(sink, workers, LevelReduction(LevelExtents([deep])))
    slab = Slab(0, (0,), SlabBuffer(deep, "<"), filled=(1 << 9) - 1)
    for z in range(9):
        slab.buffer.put(z, np.full((4, 4), z, np.uint16))
    tasks.submit(slab, [], None)
    gate.set()
    until(lambda: tasks.stored_chunks == 9, "all are stored")
    workers.close()
    assert [len(run) for run in sink.runs] == runs
    assert sink.chunks == {z: z for z in range(9)}


@pytest.mark.parametrize(("threads", "before"), [(1, 1), (2, 1), (3, 2), (4, 3), (20, 9)])
def test_means_come_right_behind_the_first_stores(threads: int, before: int) -> None:
    """They do not wait behind all that waits for the disk, and all threads but one have something to store."""
    pair = slab_grids(
        [
            ArraySpec(axes=("z", "y", "x"), shape=(9, 4, 4), dtype=np.dtype("uint16"), chunk_shape=(1, 4, 4)),
            ArraySpec(
                axes=("z", "y", "x"),
                shape=(9, 2, 2),
                dtype=np.dtype("uint16"),
                chunk_shape=(1, 4, 4),
                factors=(1, 2, 2),
            ),
        ],
        joined_layers=9,
    )
    order: list[str] = []

    class NotingWorkers:
        thread_count = threads

        def submit(self, task: Callable[[], None]) -> None:
            order.append(task.__name__)

    extents = LevelExtents(pair)
    reduction = LevelReduction(extents)
    extents.add_frame((8,))
    slab = Slab(0, (0,), SlabBuffer(pair[0], "<"), filled=(1 << 9) - 1)
    target = Slab(1, (0,), SlabBuffer(pair[1], "<"))
    tasks = SlabTasks(NotingSink(joins_chunks=False), cast("Workers", NotingWorkers()), reduction)
    tasks.submit(slab, list(reduction.parts(0, (0,))), target)
    assert order == ["_store_next"] * before + ["reduce"] * 9 + ["_store_next"] * (9 - before)


def test_chunks_of_a_write_that_found_no_space_are_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slab_tasks, "MAX_RUN_BYTES", 4 * CHUNK_BYTES)
    # The other thread has taken the tasks of all chunks by then, those of the refused ones included.
    has_come_to_end = threading.Event()
    sink = NotingSink(joins_chunks=True, refuses=has_come_to_end)
    _, errors = store(sink, 2, has_come_to_end)
    assert len(errors) == 1
    assert sink.chunks == {z: z for z in range(9)}
