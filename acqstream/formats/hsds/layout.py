"""The layout of an HSDS container that keeps pixels: its chunks and levels, keys, and our note. Pure.

    cells.hsds/acqstream-hsds.json                                our note
    cells.hsds/acqstream/home/acq.h5/.domain.json                 the domain, in a bucket; clients open /home/acq.h5
    cells.hsds/acqstream/db/<A>/.group.json                       its root group, with a link to each level
    cells.hsds/acqstream/db/<A>/d/<B>/.dataset.json               a level; beside it 7_0_0 and so on: its chunks
    cells.hsds/acqstream-temporary/                               files that are not complete yet

A chunk is a frame; frames of less than 1 MiB share a chunk, since file systems get slow with many small files. A larger
picture, such as a mosaic, is cut into smaller pieces, so that those that one tile meets fit into memory. The last
two axes are y and x, followed by c of RGB, so a frame lies in a chunk as in memory.

The note lies beside the bucket, so the server never sees it. Everything inside its shapes is stored. It keeps the seed
of the object ids, so a restarted writer writes the same objects.

Source: HDF Group, HSDS object storage schema, v2.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.array_options import MAX_LEVELS
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan
from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.hdf_type import parse_type, type_to_json
from acqstream.formats.hsds.metadata import (
    BUCKET,
    COMPRESSIONS,
    Compression,
    HsdsOptions,
    filters_of,
    level_id,
    server_documents,
)
from acqstream.formats.hsds.object_id import MAX_NDIM, ObjectId, parse_key
from acqstream.formats.level_plan import PLANE, chunk_shape, reduced_levels
from acqstream.model.axes import TIME, Z
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

MAX_CHUNK_BYTES = 1 << 27  # the server caches chunks in 128 MiB
_SAMPLE = "c"
_MAX_SIDE = 4096
_SIDE_OF_PIECES = 2048  # of a picture that is larger, in all of its levels
_SMALL_BYTES = 1 << 20


def plan(array: ArraySpec, options: HsdsOptions) -> Plan:
    """The levels of an array, the full resolution first, with their chunks. Levels halve y and x.

    Raises ConfigError for an array without y or x, for items that HDF5 has not, and for chunks of more than 128 MiB.
    """
    if not set(PLANE) <= set(array.axes) or len(set(array.axes)) < len(array.axes) or len(array.axes) > MAX_NDIM:
        raise ConfigError(f"HSDS needs an array with axes y and x, each once, not {array.axes}")
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}")
    try:
        type_to_json(array.dtype)
    except ValueError as error:
        raise ConfigError(f"HSDS has no items of dtype {array.dtype}") from error
    picture = (*PLANE, *((_SAMPLE,) if _SAMPLE in array.axes else ()))
    others = [name for name in array.axes if name not in (*picture, Z)]
    full = array.ordered((*others, *((Z,) if Z in array.axes else ()), *picture))
    extents = {**_depth(full, options), **_sides(full, options)}
    return Plan(levels=tuple(_cut(level, extents) for level in reduced_levels(full, options.levels)))


def _depth(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along the axes of the frames, equal in all levels; 1 along those that are not named."""
    sizes = dict(zip(full.axes, full.shape, strict=True))
    if options.chunks is not None:
        return {Z: options.chunks[0]}
    axis = Z if sizes.get(Z, 1) != 1 else TIME
    if sizes.get(axis, 1) == 1:
        return {}
    frame_bytes = full.dtype.itemsize * math.prod(sizes.get(name, 1) for name in (*PLANE, _SAMPLE))
    return {axis: max(1, _SMALL_BYTES // max(1, frame_bytes))}


def _sides(full: ArraySpec, options: HsdsOptions) -> dict[str, int]:
    """Extents of a chunk along y and x, at most, equal in all levels."""
    if options.chunks is not None:
        return dict(zip(PLANE, options.chunks[1:], strict=True))
    is_large = any(size > _MAX_SIDE for name, size in zip(full.axes, full.shape, strict=True) if name in PLANE)
    return dict.fromkeys(PLANE, _SIDE_OF_PIECES if is_large else _MAX_SIDE)


def _cut(level: ArraySpec, extents: dict[str, int]) -> ArraySpec:
    """Cut a level into chunks. extents: of a chunk along the axes that have more than 1."""
    samples = {_SAMPLE: level.shape[-1]} if level.axes[-1] == _SAMPLE else {}
    cut = replace(level, chunk_shape=chunk_shape(level, {**extents, **samples}))
    if cut.chunk_bytes > MAX_CHUNK_BYTES:
        raise ConfigError(f"HSDS chunks of {cut.chunk_shape} of {cut.dtype} have more than {MAX_CHUNK_BYTES} bytes")
    return cut


NOTE_NAME = "acqstream-hsds.json"
NOTE_FORMAT = "acqstream-hsds"
_VERSION = 1
_MAX_EXTENT = 2**62


def encode_note(layout: HsdsLayout, *, complete: bool) -> bytes:
    """The content of the file. complete: nothing more will come."""
    first = layout.plan.full
    value = {
        "format": NOTE_FORMAT,
        "version": _VERSION,
        "complete": complete,
        "seed": layout.seed,
        "created": layout.created,
        "type": type_to_json(first.dtype),
        **note_of_array(first),
        "planned": [*layout.planned],
        "compression": layout.compression,
        "levels": [{**note_of_level(level), "chunks": [*level.chunk_shape]} for level in layout.plan.levels],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def is_note(content: bytes) -> bool:
    """Return True if this is the beginning of such a file, right or wrong."""
    return f'"{NOTE_FORMAT}"'.encode() in content


def parse_note(content: bytes, path: str) -> tuple[HsdsLayout, bool]:
    """The layout that the note in the file `path` describes, and whether it is complete.

    Raises CorruptDataset with the field and what was expected.
    """
    fields = parse_fields(content, path, max_integer=_MAX_EXTENT)
    if (fields.text("format"), fields.integer("version")) != (NOTE_FORMAT, _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format {NOTE_FORMAT}")
    axes = fields.texts("axes")
    if not 2 <= len(axes) <= MAX_NDIM or len(set(axes)) < len(axes) or not {"y", "x"} <= set(axes):
        raise fields.wrong("axes", f"y and x, and at most {MAX_NDIM} axes, each once")
    dtype = parse_type(fields.values.get("type"), path)
    if dtype.kind not in "biufc":
        raise fields.wrong("type", "a number")
    common = read_array(fields, axes, dtype.newbyteorder("="))
    levels = tuple(_noted_level(level, common) for level in fields.children("levels"))
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise fields.wrong("levels", f"1 to {MAX_LEVELS} levels")
    layout = HsdsLayout(
        Plan(levels=levels),
        fields.choice("compression", COMPRESSIONS),
        fields.integers("planned", len(axes)),
        fields.text("seed", max_length=1000),
        fields.number("created"),
    )
    return layout, fields.flag("complete")


def _noted_level(level: Fields, common: ArraySpec) -> ArraySpec:
    count = len(common.axes)
    shape, chunks = level.integers("shape", count), level.integers("chunks", count, minimum=1)
    if math.prod(shape) >= 2**63:
        raise level.wrong("shape", "fewer than 2^63 items")
    if math.prod(chunks) * common.dtype.itemsize > MAX_CHUNK_BYTES:
        raise level.wrong("chunks", f"at most {MAX_CHUNK_BYTES} bytes")
    return replace(read_level(level, common), chunk_shape=chunks)


TEMPORARY_FOLDER = "acqstream-temporary"


@dataclass(frozen=True)
class HsdsLayout(ChunkLayout):
    """`create_layout` makes that of a new container.

    planned: the shape of level 0 when the container was created, 0 where it was not known. seed: that of the object
    ids. created: seconds since 1970.
    """

    compression: Compression
    planned: tuple[int, ...]
    seed: str
    created: float

    announces_indices: ClassVar[bool] = True

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout: shuffled items, the result and the codec's own memory."""
        return 0 if self.compression == "none" else 3 * spec.chunk_bytes + (16 << 20)

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
        self.check_chunk(level, position, chunk)
        return [memoryview(self.codec(level).encode(chunk))]

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        return self.codec(level).decode(data, where)

    def max_chunk_bytes(self, level: int) -> int:
        """See ChunkLayout."""
        return self.codec(level).max_bytes

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout: our note first, since it shows that the container is ours; the domain last."""
        documents = server_documents(
            self.plan.levels,
            seed=self.seed,
            created=self.created,
            planned=self.planned,
            compression=self.compression,
            complete=complete,
        )
        return {
            NOTE_NAME: encode_note(self, complete=complete),
            **{f"{BUCKET}/{key}": content for key, content in documents},
        }

    def resume_keys(self) -> Sequence[str]:
        """See ChunkLayout."""
        return [NOTE_NAME]

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        if not is_note(documents[NOTE_NAME]):
            raise DatasetExists(f"{where} exists and is not an HSDS container of acqstream")
        note, complete = parse_note(documents[NOTE_NAME], f"{where}/{NOTE_NAME}")
        found, expected = (_kind(one.plan.levels, one.compression) for one in (note, self))
        if found != expected:
            raise DatasetExists(f"{where} exists with {found}, expected {expected}")
        plan = self.plan.resumed(note.plan.levels, complete=complete)
        return replace(self, plan=plan, planned=note.planned, seed=note.seed, created=note.created), complete

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


def _kind(levels: Sequence[ArraySpec], compression: Compression) -> str:
    """All that must be equal to resume a container, as text for messages."""
    parts = [f"{level.chunk_shape} / {level.factors}" for level in levels]
    return f"axes {levels[0].axes}, {levels[0].dtype}, {compression}, chunks / factors {'; '.join(parts)}"
