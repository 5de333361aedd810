"""`acqstream-volume.json`: the array that our writer keeps in a container, beyond what `info` can state. Pure.

It lies at the top of the container. Other software ignores it. Everything inside its shapes is stored.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_members import MAX_MEMBERS, has_too_many
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.array_options import MAX_LEVELS
from acqstream.formats.precomputed.info import DTYPES, MAX_CHUNK_BYTES, WRITTEN_DTYPES
from acqstream.formats.precomputed.members import COMPONENT, member_count, stored_axes
from acqstream.formats.precomputed.options import ENCODINGS, Encoding
from acqstream.formats.precomputed.shard_slots import MAX_SLOTS, MAX_Z_BITS, ShardSlots
from acqstream.formats.precomputed.sharding import encode_sharding, parse_sharding
from acqstream.model.fields import Fields
from acqstream.storage.json_file import parse_fields

NOTE_NAME = "acqstream-volume.json"
NOTE_FORMAT = "acqstream-precomputed"
_VERSION, _SHARDED_VERSION = 1, 2
_MAX_AXES = 32
_MAX_EXTENT = 2**62


@dataclass(frozen=True, slots=True)
class ContainerNote:
    """levels: the finest first, with their chunks. depth: the size along z, or time in its place, at which the last
    chunks are cut; 0: none is cut. is_single: the container is one volume. complete: nothing more will come. shards:
    those of each level; empty: a file for each chunk.
    """

    levels: tuple[ArraySpec, ...]
    encoding: Encoding
    depth: int
    is_single: bool
    complete: bool
    shards: tuple[ShardSlots, ...] = ()


def encode_note(note: ContainerNote) -> bytes:
    """The content of the file."""
    first = note.levels[0]
    value = {
        "format": NOTE_FORMAT,
        "version": _SHARDED_VERSION if note.shards else _VERSION,
        "complete": note.complete,
        "dtype": first.dtype.name,
        **note_of_array(first),
        "encoding": note.encoding,
        "depth": note.depth,
        "single": note.is_single,
        "levels": [
            {
                **note_of_level(level),
                "chunks": [*level.chunk_shape],
                **({"sharding": encode_sharding(shards.sharding), "max_cells_z": shards.cells[2]} if shards else {}),
            }
            for level, shards in itertools.zip_longest(note.levels, note.shards)
        ],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def is_note(content: bytes) -> bool:
    """Return True if this is the beginning of such a file, right or wrong."""
    return NOTE_FORMAT.encode() in content


def parse_note(content: bytes, path: str) -> ContainerNote:
    """The note in the file `path`. Raises CorruptDataset with the field and what was expected."""
    fields = parse_fields(content, path, max_integer=_MAX_EXTENT)
    version = fields.integer("version")
    if fields.text("format") != NOTE_FORMAT or version not in (_VERSION, _SHARDED_VERSION):
        raise fields.wrong("version", f"{_VERSION} or {_SHARDED_VERSION}, and format {NOTE_FORMAT}")
    axes = fields.texts("axes")
    if not 3 <= len(axes) <= _MAX_AXES or len(set(axes)) < len(axes) or stored_axes(axes) != axes:
        raise fields.wrong("axes", "those of a container: members, maybe c, z or time, y, x")
    dtype = DTYPES[fields.choice("dtype", WRITTEN_DTYPES)]
    common = read_array(fields, axes, dtype)
    levels = tuple(_level(level, common) for level in fields.children("levels"))
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise fields.wrong("levels", f"1 to {MAX_LEVELS} levels")
    return ContainerNote(
        levels,
        fields.choice("encoding", ENCODINGS),
        fields.integer("depth"),
        fields.flag("single"),
        fields.flag("complete"),
        tuple(map(_shards, fields.children("levels"), levels, itertools.repeat(path)))
        if version == _SHARDED_VERSION
        else (),
    )


def _shards(level: Fields, spec: ArraySpec, path: str) -> ShardSlots:
    sharding = parse_sharding(level.child("sharding"), path)
    y, x = (-(-size // step) for size, step in zip(spec.shape[-2:], spec.chunk_shape[-2:], strict=True))
    shards = ShardSlots(sharding, (x, y, level.integer("max_cells_z", minimum=1, maximum=2**MAX_Z_BITS)))
    if not shards.is_bounded:
        raise level.wrong("sharding", f"shards of at most {MAX_SLOTS} chunks")
    return shards


def _level(level: Fields, common: ArraySpec) -> ArraySpec:
    count, leading = len(common.axes), member_count(common.axes)
    shape, chunks = level.integers("shape", count), level.integers("chunks", count, minimum=1)
    if has_too_many(shape[:leading]) or math.prod(shape) >= 2**63:
        raise level.wrong("shape", f"at most {MAX_MEMBERS} volumes and fewer than 2^63 items")
    has_all = common.axes[leading] != COMPONENT or chunks[leading] == max(1, shape[leading])
    if not (_are_ones(chunks[:leading]) and has_all and math.prod(chunks) * common.dtype.itemsize <= MAX_CHUNK_BYTES):
        raise level.wrong("chunks", f"chunks of one volume with all of c, at most {MAX_CHUNK_BYTES} bytes")
    return replace(read_level(level, common), chunk_shape=chunks)


def _are_ones(values: Sequence[int]) -> bool:
    return all(value == 1 for value in values)
