"""Memory of slabs: how much is taken, and that it is used again without a trace of its last pixels."""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import Encoded
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.assembly import Assembly
from acqstream.mirrors.slab import SlabBuffers
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.slab_tasks import Workers
from acqstream.storage.memory_reserve import VIEW_MEMORY, MemoryReserve
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of

U2 = np.dtype("uint16")
N_THREADS = 2
N_SLABS = 20
SPEC = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, 4, 6), dtype=U2, chunk_shape=(1, 4, 8))
DEEP = ArraySpec(axes=("time", "y", "x"), shape=(2 * N_SLABS, 4, 6), dtype=U2, chunk_shape=(2, 4, 8))


class Sink:
    """Keeps chunks."""

    joins_chunks = False

    def stored_with(self, level: int, position: Position) -> Position:
        return position

    def __init__(self) -> None:
        self.chunks: dict[Position, NDArray[Any]] = {}

    def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
        del level, position, present
        return [chunk.astype("<u2").tobytes()]

    def store_together(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        del level
        for position, encoded in chunks:
            self.chunks[position] = np.frombuffer(b"".join(encoded), "<u2")


class Frames:
    """All frames, by time."""

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        return frame(place[0])


def frame(number: int, shape: tuple[int, int] = (4, 6)) -> NDArray[np.uint16]:
    return np.full(shape, number + 1, np.uint16)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Disk:
    """May be used by workers, or not."""

    def __init__(self) -> None:
        self.is_free = True
        self.waiting: set[int] = set()

    def may_use(self) -> bool:
        if not self.is_free and threading.current_thread() is not threading.main_thread():
            self.waiting.add(threading.get_ident())
        return self.is_free


@contextmanager
def assembly_of(
    spec: ArraySpec, memory: MemoryReserve, disk: Disk, *, slabs: int = N_SLABS
) -> Iterator[tuple[Assembly, Sink]]:
    workers, sink = Workers(N_THREADS, "test", disk.may_use), Sink()
    grids = slab_grids([spec])
    buffers = SlabBuffers(grids, "<", memory=memory)
    assembly = Assembly(grids, sink, Frames(), workers, buffers, slabs=slabs)
    try:
        yield assembly, sink
    finally:
        workers.close()
        assembly.close()


def put(assembly: Assembly, number: int, shape: tuple[int, int] = (4, 6)) -> bool:
    """Take a frame if there is memory for it."""
    if not assembly.prepare((number,)):
        assembly.advance()
        return False
    found = assembly.find((number,))
    assert found is not None
    ((slab, piece),) = found
    slab.put(piece, frame(number, shape))
    assembly.extents.add_frame((number,))
    assembly.mark(slab, piece, is_filled=True)
    assembly.advance()
    return True


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_mirror_that_is_behind_takes_no_more_memory(*, is_ready: bool) -> None:
    """The disk is the log's: frames wait in the log's memory, or come from the disk later. Ready memory stays."""
    memory, disk = MemoryReserve(), Disk()
    if is_ready:
        memory.prepare(N_SLABS * mmap.PAGESIZE)
    disk.is_free = False
    with assembly_of(SPEC, memory, disk) as (assembly, sink):
        taken = 0
        while put(assembly, taken):
            taken += 1
        assert taken == N_THREADS + 1  # these are leaving
        assert memory.fresh_count == (0 if is_ready else taken)
        until(lambda: len(disk.waiting) == N_THREADS)
        assembly.advance()
        assert not put(assembly, taken)
        assert memory.fresh_count == (0 if is_ready else taken)
        disk.is_free = True
        for number in range(taken, N_SLABS):
            until(partial(put, assembly, number))
        until(assembly.settle)
        assert assembly.peak_slabs <= N_THREADS + 2
        assert memory.fresh_count <= N_THREADS + 2
        check(sink)


@pytest.mark.parametrize("is_ready", [False, True])
@pytest.mark.parametrize(("rows", "is_behind"), [(16, False), (64, True)])
def test_memory_of_the_system_is_not_taken_while_a_slab_is_leaving(
    *, is_ready: bool, rows: int, is_behind: bool
) -> None:
    """It has to be cleared first. What was taken ahead costs nothing: the next slab is full when this one has left."""
    memory, go = MemoryReserve(), threading.Event()
    if is_ready:
        memory.prepare(10 * mmap.PAGESIZE)
    spec = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, rows, 8), dtype=U2, chunk_shape=(1, 4, 8))

    class SlowSink(Sink):
        def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
            assert go.wait(30)
            return super().encode(level, position, chunk, present)

    workers = Workers(N_THREADS, "test", lambda: True)
    grids = slab_grids([spec])
    assembly = Assembly(grids, SlowSink(), Frames(), workers, SlabBuffers(grids, "<", memory=memory), slabs=N_SLABS)
    try:
        assert put(assembly, 0, (rows, 8))  # more chunks than two threads take at a time
        until(lambda: workers.is_busy and workers.is_behind == is_behind)
        assert put(assembly, 1, (rows, 8)) == is_ready
        assert memory.fresh_count == (not is_ready)
        go.set()
        until(partial(put, assembly, 2, (rows, 8)))
    finally:
        go.set()
        workers.close()
        assembly.close()


def has_left(assembly: Assembly) -> bool:
    """Only the slab of the lower level is in memory."""
    assembly.advance()
    return assembly.count == 1


def test_a_lower_level_waits_for_its_slab_that_is_leaving_also_while_threads_rest() -> None:
    """It is small, and leaves soon: no reason for memory that has to be cleared first."""
    memory, go, is_held = MemoryReserve(), threading.Event(), threading.Event()
    half = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, 2, 3), dtype=U2, chunk_shape=(1, 2, 4), factors=(1, 2, 2))

    class SlowSink(Sink):
        def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
            if level:
                is_held.set()
                assert go.wait(30)
            return super().encode(level, position, chunk, present)

    workers = Workers(N_THREADS, "test", lambda: True)
    grids = slab_grids([SPEC, half])
    assembly = Assembly(grids, SlowSink(), Frames(), workers, SlabBuffers(grids, "<", memory=memory), slabs=N_SLABS)
    try:
        assert put(assembly, 0)
        until(lambda: has_left(assembly) and is_held.is_set())
        assert not workers.is_busy
        assert put(assembly, 1)
        assert not any(put(assembly, 2) for _ in range(9))  # it would wait behind the one that is complete
        assert memory.fresh_count == 2  # one slab of each level
        go.set()
        until(partial(put, assembly, 2))
        until(assembly.settle)
        assert assembly.stored_chunks == 6
    finally:
        go.set()
        workers.close()
        assembly.close()


def check(sink: Sink, shape: tuple[int, int] = (4, 6)) -> None:
    assert len(sink.chunks) == N_SLABS
    for (at, *_), items in sink.chunks.items():
        chunk = items.reshape(-1, 4, 8)
        expected = np.zeros_like(chunk)
        for plane in range(len(chunk)):
            expected[plane, : shape[0], : shape[1]] = frame(at * len(chunk) + plane, shape)
        assert np.array_equal(chunk, expected)


def test_slabs_that_are_still_filled_get_memory_as_before() -> None:
    """Frames of many slabs in turn: all of these stay in memory, whatever the disk does."""
    memory, disk = MemoryReserve(), Disk()
    disk.is_free = False
    with assembly_of(DEEP, memory, disk) as (assembly, sink):
        assert all(put(assembly, 2 * number) for number in range(N_SLABS))
        assert memory.fresh_count == assembly.peak_slabs == N_SLABS
        disk.is_free = True
        assert all(put(assembly, 2 * number + 1) for number in range(N_SLABS))
        until(assembly.settle)
        assert memory.fresh_count == N_SLABS
        check(sink)


def test_the_next_mirror_uses_the_memory_of_the_last_one() -> None:
    """Its array ends elsewhere, and what lies beyond its edges is zeros again."""
    memory, disk = MemoryReserve(), Disk()
    for shape in ((4, 6), (3, 8), (4, 6)):
        spec = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, *shape), dtype=U2, chunk_shape=(1, 4, 8))
        with assembly_of(spec, memory, disk, slabs=2) as (assembly, sink):
            for number in range(N_SLABS):
                until(partial(put, assembly, number, shape))
            until(assembly.settle)
            check(sink, shape)
    assert memory.fresh_count == 2
    assert memory.kept_bytes == 2 * mmap.PAGESIZE


def test_a_mirror_that_has_ended_leaves_its_memory_to_the_next_one(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(places_of(("z",), {"z": 3})))
    VIEW_MEMORY._drop(VIEW_MEMORY.kept_bytes)
    assert VIEW_MEMORY.kept_bytes == 0
    finish(run_of(tmp_path / "cells"))
    assert VIEW_MEMORY.kept_bytes > 0


def test_a_mirror_s_own_buffers_are_used_again_as_they_are() -> None:
    """Its slabs have one layout, so only planes without pixels are cleared: `Slab.clear_unfilled`."""
    memory = MemoryReserve()
    buffers = SlabBuffers(slab_grids([SPEC]), "<", memory=memory)
    first = buffers.take(0)
    assert not buffers.has_free(0)
    buffers.give_back(0, first)
    assert buffers.has_free(0)
    again, other = buffers.take(0), buffers.take(0)
    assert again.memory[0] is first.memory[0]
    assert other.memory[0] is not first.memory[0]
    assert memory.fresh_count == 2
    del other
    buffers.close()
    assert not buffers.has_free(0)
    assert memory.kept_bytes == mmap.PAGESIZE
    del first, again
    assert memory.kept_bytes == 2 * mmap.PAGESIZE


@pytest.mark.parametrize("name", ["n5", "wkw"])
def test_memory_of_raw_chunks_lies_as_in_their_file(name: str) -> None:
    """A copy into the file is slower where memory begins at another place of a line of the cache."""
    found = chunk_format(name)
    buffers = SlabBuffers(slab_grids([SPEC]), found.byte_order, head_bytes=found.head_bytes)
    chunk = buffers.take(0).chunk((0, 0, 0))
    assert chunk.ctypes.data % mmap.PAGESIZE == {"n5": 0, "wkw": 16}[name]
    assert chunk.nbytes == SPEC.chunk_bytes
