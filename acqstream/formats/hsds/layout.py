"""The layout of an HSDS container that keeps pixels. Pure.

    cells.hsds/acqstream-hsds.json                                our note
    cells.hsds/acqstream/home/acq.h5/.domain.json                 the domain, in a bucket; clients open /home/acq.h5
    cells.hsds/acqstream/db/<A>/.group.json                       its root group, with a link to each level
    cells.hsds/acqstream/db/<A>/d/<B>/.dataset.json               a level; beside it 7_0_0 and so on: its chunks
    cells.hsds/acqstream-temporary/                               files that are not complete yet

Source: HDF Group, HSDS object storage schema, v2.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import DatasetExists
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan
from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.documents import BUCKET, filters_of, level_id, server_documents
from acqstream.formats.hsds.notes import NOTE_NAME, HsdsNote, encode_note, is_note, parse_note
from acqstream.formats.hsds.object_id import ObjectId, parse_key
from acqstream.formats.hsds.options import Compression, HsdsOptions

TEMPORARY_FOLDER = "acqstream-temporary"


@dataclass(frozen=True)
class HsdsLayout(ChunkLayout):
    """`create_layout` makes that of a new container. The fields are those of HsdsNote."""

    compression: Compression
    planned: tuple[int, ...]
    seed: str
    created: float

    @property
    def temporary_folder(self) -> str:
        """See ChunkLayout: the server takes every file in a dataset's folder for a chunk."""
        return TEMPORARY_FOLDER

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout."""
        return f"{BUCKET}/{self._ids[level].chunk_key(position)}"

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout."""
        if not key.startswith(f"{BUCKET}/"):
            return None
        found = parse_key(key.removeprefix(f"{BUCKET}/"))
        if found is None or found.position is None or found.partition is not None or found.id not in self._ids:
            return None
        is_own = len(found.position) == len(self.plan.full.axes)
        return (self._ids.index(found.id), found.position) if is_own else None

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Chunks without compression are not copied if they are little-endian."""
        spec = self.plan.levels[level]
        if chunk.shape != spec.chunk_shape:
            raise ValueError(f"a chunk of shape {chunk.shape} at {position} of level {level}, not {spec.chunk_shape}")
        return [memoryview(self.codec(level).encode(chunk))]

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        return self.codec(level).decode(data, where)

    def max_object_bytes(self, level: int) -> int:
        """See ChunkLayout."""
        return self.codec(level).max_bytes

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout: our note first, since it shows that the container is ours; the domain last."""
        note = HsdsNote(
            levels=self.plan.levels,
            planned=self.planned,
            compression=self.compression,
            seed=self.seed,
            created=self.created,
            complete=complete,
        )
        documents = server_documents(
            self.plan.levels,
            seed=self.seed,
            created=self.created,
            planned=self.planned,
            compression=self.compression,
            complete=complete,
        )
        return {NOTE_NAME: encode_note(note), **{f"{BUCKET}/{key}": content for key, content in documents}}

    def resume_keys(self) -> Sequence[str]:
        """See ChunkLayout."""
        return [NOTE_NAME]

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        if not is_note(documents[NOTE_NAME]):
            raise DatasetExists(f"{where} exists and is not an HSDS container of acqstream")
        note = parse_note(documents[NOTE_NAME], f"{where}/{NOTE_NAME}")
        own = self.plan.levels
        found = _kind(note.levels, note.compression)
        if found != _kind(own, self.compression):
            raise DatasetExists(f"{where} exists with {found}, expected {_kind(own, self.compression)}")
        shapes = [level.shape for level in note.levels]
        if not note.complete:
            shapes = [tuple(map(max, shape, level.shape)) for shape, level in zip(shapes, own, strict=True)]
        resumed = replace(
            self, plan=self.plan.with_shapes(shapes), planned=note.planned, seed=note.seed, created=note.created
        )
        return resumed, note.complete

    def codec(self, level: int) -> ChunkCodec:
        """The codec of the chunks of a level."""
        spec = self.plan.levels[level]
        filters = filters_of(self.compression, spec.dtype.itemsize)
        return ChunkCodec(spec.chunk_shape, spec.dtype.newbyteorder("<"), filters)

    @cached_property
    def _ids(self) -> tuple[ObjectId, ...]:
        return tuple(level_id(self.seed, number) for number in range(len(self.plan.levels)))


def create_layout(plan: Plan, options: HsdsOptions) -> HsdsLayout:
    """The layout of a new container. Its ids are new, so that no server has cached chunks of an earlier one."""
    return HsdsLayout(plan, options.compression, plan.full.shape, uuid.uuid4().hex, time.time())


def noted_layout(note: HsdsNote) -> HsdsLayout:
    """The layout of an existing container."""
    return HsdsLayout(Plan(levels=note.levels), note.compression, note.planned, note.seed, note.created)


def max_encode_memory(spec: ArraySpec, options: HsdsOptions) -> int:
    """Bytes that encoding a chunk takes at most: shuffled items, the result and the codec's own memory."""
    if options.compression == "none":
        return 0
    return 3 * spec.chunk_bytes + (16 << 20)


def _kind(levels: Sequence[ArraySpec], compression: Compression) -> str:
    """All that must be equal to resume a container, as text for messages."""
    parts = [f"{level.chunk_shape} / {level.factors}" for level in levels]
    return f"axes {levels[0].axes}, {levels[0].dtype}, {compression}, chunks / factors {'; '.join(parts)}"
