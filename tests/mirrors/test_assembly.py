"""Slabs that come back while what they are made of is still on its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import Encoded
from acqstream.mirrors.assembly import Assembly, open_assembly
from acqstream.mirrors.mirror_plan import ChunkPlan
from acqstream.mirrors.slab import SlabBuffers
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.slab_tasks import Workers
from tests.waiting import HANG_S

AXES = ("time", "z", "y", "x")
FULL = ArraySpec(axes=AXES, shape=(3, 4, 4, 4), dtype=np.dtype("uint16"), chunk_shape=(1, 2, 4, 4))
HALF = ArraySpec(
    axes=AXES, shape=(3, 2, 2, 2), dtype=np.dtype("uint16"), chunk_shape=(1, 2, 2, 2), factors=(1, 2, 2, 2)
)
FIRST = (0, (0, 0, 0, 0))


class HeldWriter:
    """Keeps chunks; holds the first one until `go` is set."""

    joins_chunks = False

    def stored_with(self, level: int, position: Position) -> Position:
        return position

    def __init__(self) -> None:
        self.go = threading.Event()
        self.chunks: dict[tuple[int, Position], NDArray[Any]] = {}

    def encode(self, level: int, position: Position, chunk: NDArray[Any], present: Any = None) -> Encoded:
        del level, position, present
        return [np.ascontiguousarray(chunk).astype("<u2").tobytes()]

    def store(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        ((position, encoded),) = chunks
        if (level, position) == FIRST:
            assert self.go.wait(HANG_S)
        shape = (FULL, HALF)[level].chunk_shape
        self.chunks[level, position] = np.frombuffer(b"".join(encoded), "<u2").reshape(shape)

    def grow(self, level: int, shape: tuple[int, ...]) -> None: ...
    def sync(self) -> None: ...
    def finish(self, levels: Sequence[ArraySpec]) -> None: ...
    def close(self) -> None: ...


class TakenFrames:
    def __init__(self) -> None:
        self.taken: dict[tuple[int, ...], NDArray[Any]] = {}

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        return self.taken.get(tuple(place))


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2, "test", lambda: True)
    yield made
    made.close()


def until(condition: Callable[[], bool], workers: Workers) -> None:
    end = time.monotonic() + 20
    while not condition():
        workers.check()
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_slab_is_remade_of_one_that_is_still_being_stored(workers: Workers) -> None:
    writer, frames = HeldWriter(), TakenFrames()
    grids = slab_grids([FULL, HALF])
    assembly = Assembly(grids, writer, frames, workers, SlabBuffers(grids, ">"), slabs=2)

    def put(place: tuple[int, int]) -> None:
        until(lambda: assembly.prepare(place) is None, workers)
        found = assembly.find(place)
        assert found is not None
        frames.taken[place] = np.full((4, 4), 10 * place[0] + place[1] + 1, np.uint16)
        ((slab, piece),) = found
        slab.put(piece, frames.taken[place])
        assembly.extents.add_frame(place)
        assembly.mark(slab, piece, is_filled=True)
        assembly.advance()

    def step() -> bool:
        assembly.advance()
        return (1, (0, 0, 0, 0)) in writer.chunks  # level 1 of time 0 was sent off, for want of memory

    for place in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]:
        put(place)
    until(step, workers)
    assert FIRST not in writer.chunks  # but what it was made of is not stored yet
    writer.chunks.clear()
    put((0, 2))
    put((0, 3))
    until(step, workers)
    writer.go.set()
    until(lambda: assembly.settle() is None, workers)
    whole = writer.chunks[1, (0, 0, 0, 0)]
    assert whole[0, 0].tolist() == [[2, 2], [2, 2]]  # means of 1 and 2, of 3 and 4: halves up
    assert whole[0, 1].tolist() == [[4, 4], [4, 4]]
    assert writer.chunks[FIRST][0, 0, 0, 0] == 1


def test_closing_it_ends_its_workers(workers: Workers) -> None:
    grids = slab_grids([FULL, HALF])
    assembly = Assembly(grids, HeldWriter(), TakenFrames(), workers, SlabBuffers(grids, ">"), slabs=2)
    threads = [thread for thread in threading.enumerate() if thread.name in ("test-0", "test-1")]
    assert len(threads) == workers.thread_count
    assembly.close()
    assert not any(thread.is_alive() for thread in threads)


def test_workers_end_where_no_memory_is_left(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise MemoryError("no memory for slabs")

    monkeypatch.setattr("acqstream.mirrors.assembly.SlabBuffers", fails)
    layout = SimpleNamespace(byte_order=">", head_bytes=0)
    plan = SimpleNamespace(grids=slab_grids([FULL, HALF]), layout=layout, full_slabs=lambda _threads: 0)
    threads = [thread for thread in threading.enumerate() if thread.name in ("test-0", "test-1")]
    assert len(threads) == workers.thread_count
    with pytest.raises(MemoryError):
        open_assembly(cast("ChunkPlan", plan), HeldWriter(), TakenFrames(), workers)
    assert not any(thread.is_alive() for thread in threads)
