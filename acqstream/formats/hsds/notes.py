"""`acqstream-hsds.json`: the array that our writer keeps in a container, beyond what HDF5 states. Pure.

It lies at the top of the container, beside the bucket, so the server never sees it. Everything inside its shapes is
stored. It keeps the seed of the object ids, so a restarted writer writes the same objects.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.array_options import MAX_LEVELS
from acqstream.formats.hsds.hdf_type import parse_type, type_to_json
from acqstream.formats.hsds.object_id import MAX_NDIM
from acqstream.formats.hsds.options import COMPRESSIONS, Compression
from acqstream.formats.hsds.plan import MAX_CHUNK_BYTES
from acqstream.model.fields import Fields
from acqstream.storage.json_file import parse_fields

NOTE_NAME = "acqstream-hsds.json"
NOTE_FORMAT = "acqstream-hsds"
_VERSION = 1
_MAX_EXTENT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class HsdsNote:
    """levels: the finest first, with their chunks, as announced. planned: the shape of level 0 when the container was
    created, 0 where it was not known. seed: that of the object ids. created: seconds since 1970. complete: nothing more
    will come.
    """

    levels: tuple[ArraySpec, ...]
    planned: tuple[int, ...]
    compression: Compression
    seed: str
    created: float
    complete: bool


def encode_note(note: HsdsNote) -> bytes:
    """The content of the file."""
    first = note.levels[0]
    value = {
        "format": NOTE_FORMAT,
        "version": _VERSION,
        "complete": note.complete,
        "seed": note.seed,
        "created": note.created,
        "type": type_to_json(first.dtype),
        **note_of_array(first),
        "planned": [*note.planned],
        "compression": note.compression,
        "levels": [{**note_of_level(level), "chunks": [*level.chunk_shape]} for level in note.levels],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def is_note(content: bytes) -> bool:
    """Return True if this is the beginning of such a file, right or wrong."""
    return f'"{NOTE_FORMAT}"'.encode() in content


def parse_note(content: bytes, path: str) -> HsdsNote:
    """The note in the file `path`. Raises CorruptDataset with the field and what was expected."""
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
    levels = tuple(_level(level, common) for level in fields.children("levels"))
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise fields.wrong("levels", f"1 to {MAX_LEVELS} levels")
    return HsdsNote(
        levels=levels,
        planned=fields.integers("planned", len(axes)),
        compression=fields.choice("compression", COMPRESSIONS),
        seed=fields.text("seed", max_length=1000),
        created=fields.number("created"),
        complete=fields.flag("complete"),
    )


def _level(level: Fields, common: ArraySpec) -> ArraySpec:
    count = len(common.axes)
    shape, chunks = level.integers("shape", count), level.integers("chunks", count, minimum=1)
    if math.prod(shape) >= 2**63:
        raise level.wrong("shape", "fewer than 2^63 items")
    if math.prod(chunks) * common.dtype.itemsize > MAX_CHUNK_BYTES:
        raise level.wrong("chunks", f"at most {MAX_CHUNK_BYTES} bytes")
    return replace(read_level(level, common), chunk_shape=chunks)
