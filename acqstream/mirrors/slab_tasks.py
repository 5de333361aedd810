"""Tasks of the workers for slabs that leave memory: store their chunks and reduce them into the next level."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.formats.chunk_layout import Encoded
from acqstream.mirrors.level_reduction import LevelReduction
from acqstream.mirrors.slab import Slab, SlabKey
from acqstream.mirrors.workers import Workers


class ChunkSink(Protocol):
    """Takes the chunks of all levels; from any thread. `store` gets what `encode` returned."""

    def encode(self, level: int, position: Position, chunk: NDArray[Any]) -> Encoded: ...
    def store(self, level: int, position: Position, encoded: Encoded) -> None: ...


class SlabTasks:
    """`submit` and `collect` are called by one thread; the tasks run in the workers' threads."""

    def __init__(self, writer: ChunkSink, workers: Workers, reduction: LevelReduction) -> None:
        self.stored_chunks = 0
        self._writer = writer
        self._workers = workers
        self._reduction = reduction
        # For `stored_chunks`, the two collections below, and `waiting`, `arriving` and `filled` of slabs in tasks.
        self._lock = threading.Lock()
        self._idle: list[Slab] = []  # slabs whose tasks are all done
        self._fed: set[SlabKey] = set()  # slabs that tasks have written planes into

    def submit(self, slab: Slab, planes: Sequence[tuple[int, Sequence[int]]], target: Slab | None) -> None:
        """Have the chunks of a slab stored, and its planes reduced into the target (`LevelReduction.planes`).

        The slab must not change from here on.
        """
        tasks: list[Callable[[], None]] = [
            self._storing(slab, position, local)
            for position, local, bits in slab.buffer.grid.chunks(slab.key)
            if bits & slab.filled  # a chunk without any plane is not stored
        ]
        if target is not None:
            with self._lock:  # tasks of other slabs may be decreasing it
                target.arriving += len(planes)
            tasks += [self._reducing(slab, target, plane, sources) for plane, sources in planes]
        slab.waiting = len(tasks)  # before the first task can end
        if not tasks:
            with self._lock:
                self._idle.append(slab)
        for task in tasks:
            self._workers.submit(task)

    def collect(self) -> tuple[list[Slab], set[SlabKey]]:
        """Return slabs whose tasks are all done, and the keys of slabs that got planes, since the last call."""
        with self._lock:
            idle, self._idle = self._idle, []
            fed, self._fed = self._fed, set()
        return idle, fed

    def _storing(self, slab: Slab, position: Position, local: Position) -> Callable[[], None]:
        def store() -> None:
            encoded = self._writer.encode(slab.level, position, slab.buffer.chunk(local))
            if self._workers.wait_for_disk():
                self._writer.store(slab.level, position, encoded)
                with self._lock:
                    self.stored_chunks += 1
                self._end_task(slab)

        return store

    def _reducing(self, slab: Slab, target: Slab, plane: int, sources: Sequence[int]) -> Callable[[], None]:
        def reduce() -> None:
            self._reduction.reduce(slab.buffer, target.buffer, plane, sources)
            with self._lock:  # several slabs are reduced into one target
                target.filled |= 1 << plane
                target.arriving -= 1
                self._fed.add((target.level, target.key))
            self._end_task(slab)

        return reduce

    def _end_task(self, slab: Slab) -> None:
        with self._lock:
            slab.waiting -= 1
            if not slab.waiting:
                self._idle.append(slab)
