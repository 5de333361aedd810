"""The view that keeps a mirror by reference: the pixels stay in the stacks, the chunk table points to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.errors import CannotResume, ConfigError, CorruptDataset
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.mirrors.chunk_plan import options_of
from acqstream.mirrors.memory_need import MIB
from acqstream.mirrors.open_references import OpenReferences
from acqstream.mirrors.own_container import OwnContainer
from acqstream.mirrors.reference_plan import plan_references
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import RowView, ViewSource
from acqstream.views.saved_state import integers, items

SHOW_INTERVAL_S = 1.0


class ReferenceView(RowView):
    """As MirrorView; memory_mb and threads are not used, as no chunk is encoded. runner must be None."""

    marks_first = True

    def __init__(
        self,
        chunk_format: ChunkFormat[Any],
        settings: Mapping[str, Any],
        *,
        container: Path | None = None,
        memory_mb: float = 0,
        threads: int | None = None,
        is_remade: bool = False,
        runner: object = None,
        keep_free_mb: float = 0,
    ) -> None:
        del memory_mb, threads
        options_of(chunk_format, settings)
        if runner is not None:
            raise ConfigError("a mirror by reference is made by one process: it copies no pixels")
        self._own = OwnContainer(settings, container, is_remade=is_remade)
        self._keep_free_bytes = int(keep_free_mb * MIB)
        self._mirror: OpenReferences | None = None
        self._space_bound: SpaceBound | None = None  # stays after `close`, for its warning
        self._advice = ""
        self._shown_s = 0.0
        self._summary: dict[str, Any] = {}

    @property
    def made(self) -> Path | None:
        return self._own.made

    def open(self, source: ViewSource) -> None:
        self._source = source
        self._own.open(source)

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        plan = self._own.resume(cursor)
        if plan is None:
            return
        chunks = [
            integers(chunk, "the position of a chunk") for chunk in items(state.get("open"), "the unstored chunks")
        ]
        if any(len(chunk) != len(plan.axes) for chunk in chunks):
            raise CannotResume("the state names chunks of another table")
        try:
            self._begin(plan, cursor, chunks)
        except CorruptDataset as error:
            raise CannotResume(f"its files were changed: {error}") from error

    def clear(self) -> None:
        self._own.clear()

    def is_ready(self, row: int) -> bool:
        del row
        return self._mirror is not None and not self._mirror.is_full

    def make_ready(self, row: int) -> bool:
        """Raises ConfigError, DatasetError, StorageError."""
        if self._mirror is None:
            plan = plan_references(self._source, row)
            self._own.begin(plan)
            self._begin(plan, 0, [])
        elif self._mirror.is_full:
            self._mirror.relieve()
        return True

    def take_rows(self, cursor: int, count: int) -> int:
        assert self._mirror is not None
        return self._mirror.take(cursor, count)

    def work(self, now_s: float, *, is_idle: bool) -> None:
        del is_idle
        if self._mirror is None:
            return
        self._mirror.advance(now_s)
        if now_s - self._shown_s >= SHOW_INTERVAL_S and self._source.may_use_disk():
            self._shown_s = now_s
            self._mirror.show_space()

    def settle(self) -> bool:
        return self._mirror is None or self._mirror.settle()

    def finish(self) -> bool:
        if self._mirror is None or not self._source.reader.complete:
            return self.settle()
        return self._mirror.finish()

    def save(self) -> dict[str, Any]:
        state: dict[str, Any] = {"open": []}
        if self._mirror is not None:
            state["open"] = [list(chunk) for chunk in self._mirror.unstored]
            self._mirror.sync()
        return {**state, "summary": self.summary()}

    def summary(self) -> dict[str, Any]:
        if self._mirror is not None:
            self._summary = {"container": str(self._own.path), **self._mirror.summary()}
        return self._summary

    def close(self) -> None:
        self.summary()
        self._mirror = None

    @property
    def warning(self) -> str:
        return self._advice

    @property
    def space_warning(self) -> str:
        return "" if self._space_bound is None else self._space_bound.warning

    @property
    def bytes_per_frame(self) -> float:
        return 0.0 if self._mirror is None else self._mirror.bytes_per_frame

    @property
    def waiting(self) -> int:
        return 0 if self._mirror is None else len(self._mirror.unstored)

    def _begin(self, plan: ArrayPlan, cursor: int, unstored: list[tuple[int, ...]]) -> None:
        mirror = OpenReferences(self._source, self._own.path, plan, keep_free_bytes=self._keep_free_bytes)
        mirror.begin(cursor, unstored)
        self._mirror, self._space_bound, self._advice = mirror, mirror.space_bound, mirror.advice
