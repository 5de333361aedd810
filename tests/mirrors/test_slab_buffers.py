"""Memory of slabs: how much is taken, and that it is used again without a trace of its last pixels."""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import ChunkLayout, Encoded
from acqstream.formats.n5.layout import N5Layout
from acqstream.formats.registry import chunk_format
from acqstream.formats.wkw.layout import WkwLayout
from acqstream.mirrors import slab as slab_module
from acqstream.mirrors.assembly import Assembly
from acqstream.mirrors.mirror_plan import Budget, options_of, plan_chunks, plan_request
from acqstream.mirrors.slab import SlabBuffers
from acqstream.mirrors.slab_grid import final_sizes, slab_grids
from acqstream.mirrors.slab_tasks import Workers
from acqstream.storage import page_memory

U2 = np.dtype("uint16")
N_THREADS = 2
N_SLABS = 20
SPEC = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, 4, 6), dtype=U2, chunk_shape=(1, 4, 8))
REQUEST = {
    "frame": {"shape": [256, 256], "dtype": "uint16"},
    "axes": [{"name": "time", "kind": "index", "size": 1}, {"name": "z", "kind": "index", "size": 1024}],
}
DEEP = ArraySpec(axes=("time", "y", "x"), shape=(2 * N_SLABS, 4, 6), dtype=U2, chunk_shape=(2, 4, 8))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of pieces of memory that were taken from the system."""
    lengths: list[int] = []
    original = page_memory.fresh_bytes

    def take(length: int) -> NDArray[np.uint8]:
        lengths.append(length)
        return original(length)

    monkeypatch.setattr(page_memory, "fresh_bytes", take)
    monkeypatch.setattr(slab_module, "fresh_bytes", take)
    return lengths


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

    def store(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
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
def assembly_of(spec: ArraySpec, disk: Disk, *, slabs: int = N_SLABS, full: int = 1) -> Iterator[tuple[Assembly, Sink]]:
    workers, sink = Workers(N_THREADS, "test", disk.may_use), Sink()
    grids = slab_grids([spec])
    buffers = SlabBuffers(grids, "<", full=full)
    assembly = Assembly(grids, sink, Frames(), workers, buffers, slabs=slabs)
    try:
        yield assembly, sink
    finally:
        workers.close()
        assembly.close()


def put(assembly: Assembly, number: int, shape: tuple[int, int] = (4, 6)) -> bool:
    """Take a frame if there is memory for it."""
    if assembly.prepare((number,)) is not None:
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


@pytest.mark.parametrize("full", [1, 3])
def test_a_mirror_that_is_behind_takes_no_more_memory(full: int, fresh: list[int]) -> None:
    """The disk is the log's: frames wait in the log's memory, or come from the disk later."""
    disk = Disk()
    disk.is_free = False
    with assembly_of(SPEC, disk, full=full) as (assembly, sink):
        taken = 0
        while put(assembly, taken):
            taken += 1
        assert taken == full + 1  # these are leaving
        assert len(fresh) <= taken
        until(lambda: len(disk.waiting) == N_THREADS)
        assembly.advance()
        assert not put(assembly, taken)
        disk.is_free = True
        for number in range(taken, N_SLABS):
            until(partial(put, assembly, number))
        until(lambda: assembly.settle() is None)
        assert len(fresh) == assembly.peak_slabs == full + 1
        check(sink)


@pytest.mark.parametrize("full", [1, 2])
def test_a_slab_is_filled_while_those_before_are_stored(full: int, fresh: list[int]) -> None:
    """When all of these are full, the next one waits for the memory of one of them."""
    go = threading.Event()
    spec = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, 16, 8), dtype=U2, chunk_shape=(1, 4, 8))

    class SlowSink(Sink):
        def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
            assert go.wait(30)
            return super().encode(level, position, chunk, present)

    workers = Workers(N_THREADS, "test", lambda: True)
    grids = slab_grids([spec])
    assembly = Assembly(grids, SlowSink(), Frames(), workers, SlabBuffers(grids, "<", full=full), slabs=N_SLABS)
    try:
        for number in range(full + 1):
            assert put(assembly, number, (16, 8))
        assert not any(put(assembly, full + 1, (16, 8)) for _ in range(9))
        assert len(fresh) <= full + 1
        go.set()
        until(partial(put, assembly, full + 1, (16, 8)))
    finally:
        go.set()
        workers.close()
        assembly.close()


def has_left(assembly: Assembly) -> bool:
    """Only the slab of the lower level is in memory."""
    assembly.advance()
    return assembly.count == 1


def test_a_lower_level_waits_for_its_slab_that_is_leaving(
    fresh: list[int],
) -> None:
    """It is small, and leaves soon: no reason for memory that has to be cleared first."""
    go, is_held = threading.Event(), threading.Event()
    half = ArraySpec(axes=("time", "y", "x"), shape=(N_SLABS, 2, 3), dtype=U2, chunk_shape=(1, 2, 4), factors=(1, 2, 2))

    class SlowSink(Sink):
        def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
            if level:
                is_held.set()
                assert go.wait(30)
            return super().encode(level, position, chunk, present)

    workers = Workers(N_THREADS, "test", lambda: True)
    grids = slab_grids([SPEC, half])
    assembly = Assembly(grids, SlowSink(), Frames(), workers, SlabBuffers(grids, "<"), slabs=N_SLABS)
    try:
        assert put(assembly, 0)
        until(lambda: has_left(assembly) and is_held.is_set())
        assert put(assembly, 1)
        assert put(assembly, 2)
        assert not any(put(assembly, 3) for _ in range(9))  # it would wait behind those that are complete
        assert len(fresh) == 3  # two slabs of level 0, and one of level 1
        go.set()
        until(partial(put, assembly, 3))
        until(lambda: assembly.settle() is None)
        assert assembly.stored_chunks == 8
    finally:
        go.set()
        workers.close()
        assembly.close()


@pytest.mark.parametrize("counts", [[2, 2, 1], [2, 2, 2], [8, 8, 8], [8, 2, 2, 1]])
def test_slabs_that_the_end_makes_complete_leave(counts: list[int]) -> None:
    """Stacks are shorter than planned: slabs of lower levels are complete, and another one waits for their memory."""
    full = ArraySpec(axes=("time", "z", "y", "x"), shape=(6, 8, 4, 8), dtype=U2, chunk_shape=(1, 2, 4, 8))
    half = ArraySpec(axes=full.axes, shape=(6, 4, 2, 4), dtype=U2, chunk_shape=(1, 4, 2, 4), factors=(1, 2, 2, 2))
    frames: dict[tuple[int, ...], NDArray[Any]] = {}

    class Taken:
        def read(self, place: Sequence[int]) -> NDArray[Any] | None:
            return frames.get(tuple(place))

    workers, sink, grids = Workers(N_THREADS, "test", lambda: True), Sink(), slab_grids([full, half])
    assembly = Assembly(grids, sink, Taken(), workers, SlabBuffers(grids, "<"), slabs=50)

    def is_ready(place: tuple[int, int]) -> bool:
        assembly.advance()
        return assembly.prepare(place) is None

    try:
        for place in [(time, z) for time, count in enumerate(counts) for z in range(count)]:
            until(partial(is_ready, place))
            found = assembly.find(place)
            assert found is not None
            ((slab, piece),) = found
            frames[place] = np.full((4, 8), 1, U2)
            slab.put(piece, frames[place])
            assembly.extents.add_frame(place)
            assembly.mark(slab, piece, is_filled=True)
            assembly.advance()
        until(lambda: not workers._tasks)
        assembly.advance()
        assembly.end(final_sizes(grids[0], assembly.extents.shape(0), assembly.extents.frame_extent))
        until(lambda: assembly.settle() is None)
        assert assembly.count == 0
    finally:
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


def test_slabs_that_are_still_filled_get_memory_as_before(fresh: list[int]) -> None:
    """Frames of many slabs in turn: all of these stay in memory, whatever the disk does."""
    disk = Disk()
    disk.is_free = False
    with assembly_of(DEEP, disk) as (assembly, sink):
        assert all(put(assembly, 2 * number) for number in range(N_SLABS))
        assert len(fresh) == assembly.peak_slabs == N_SLABS
        disk.is_free = True
        assert all(put(assembly, 2 * number + 1) for number in range(N_SLABS))
        until(lambda: assembly.settle() is None)
        assert len(fresh) == N_SLABS
        check(sink)


def test_a_mirror_s_buffers_are_used_again_and_go_back_with_their_last_view(fresh: list[int]) -> None:
    """Its slabs have one layout, so only planes without pixels are cleared: `Slab.clear_unfilled`."""
    buffers = SlabBuffers(slab_grids([SPEC]), "<")
    first = buffers.take(0)
    assert not buffers.has_free(0)
    buffers.give_back(0, first)
    assert buffers.has_free(0)
    again, other = buffers.take(0), buffers.take(0)
    assert again.memory[0] is first.memory[0]
    assert other.memory[0] is not first.memory[0]
    assert len(fresh) == 2
    seen = weakref.ref(other.memory[0])
    buffers.give_back(0, other)
    del other
    assert seen() is not None
    buffers.close()
    assert not buffers.has_free(0)
    assert seen() is None


@pytest.mark.parametrize(
    ("side", "dtype", "full"), [(2048, "uint16", 1), (2048, "uint8", 2), (256, "uint16", 3), (4096, "uint16", 1)]
)
def test_so_many_slabs_are_stored_at_once_as_128_mib_and_the_threads_hold(side: int, dtype: str, full: int) -> None:
    found = chunk_format("n5")
    array = plan_request({**REQUEST, "frame": {"shape": [side, side], "dtype": dtype}})
    assert array is not None
    plan = plan_chunks(found, options_of(found, {}), array, {}, Budget.of(4096, threads=3))
    assert plan.full_slabs(3) == full
    buffers = SlabBuffers(plan.grids, "<", full=full)
    assert (buffers.max_full(0), buffers.max_full(1)) == (full, 0)


@pytest.mark.parametrize("name", ["n5", "wkw"])
def test_the_slab_behind_the_one_that_is_filled_is_taken_in_the_background(name: str, fresh: list[int]) -> None:
    """As many as may be stored meanwhile, and one to fill; also behind heads of 16 bytes, and layer by layer."""
    found = chunk_format(name)
    array = plan_request(REQUEST)
    assert array is not None
    plan = plan_chunks(found, options_of(found, {}), array, {}, Budget.of(600, threads=3))
    layers = plan.grids[0].layers
    buffers = SlabBuffers(plan.grids, "<", head_bytes=plan.layout.head_bytes, full=plan.full_slabs(3))
    taken = []
    count = 1 + buffers.max_full(0)
    for number in range(1, count + 1):
        taken.append(buffers.take(0))
        until(lambda number=number: len(fresh) == min(number + 1, count) * layers)  # type: ignore[misc]
    assert {len(one) for buffer in taken for one in buffer.memory} == {plan.grids[0].layer_bytes}
    buffers.close()


def test_that_there_is_no_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(length: int) -> NDArray[np.uint8]:
        raise MemoryError(f"no {length} bytes")

    monkeypatch.setattr(page_memory, "fresh_bytes", take)
    with pytest.raises(MemoryError, match="no 64 bytes"):
        SlabBuffers(slab_grids([SPEC]), "<").take(0)


@pytest.mark.parametrize("name", ["n5", "wkw"])
def test_memory_of_raw_chunks_lies_as_in_their_file(name: str) -> None:
    """A copy into the file is slower where memory begins at another place of a line of the cache."""
    layouts: dict[str, type[ChunkLayout]] = {"n5": N5Layout, "wkw": WkwLayout}
    found = layouts[name]
    buffers = SlabBuffers(slab_grids([SPEC]), found.byte_order, head_bytes=found.head_bytes)
    chunk = buffers.take(0).chunk((0, 0, 0))
    assert chunk.ctypes.data % mmap.PAGESIZE == {"n5": 0, "wkw": 16}[name]
    assert chunk.nbytes == SPEC.chunk_bytes
