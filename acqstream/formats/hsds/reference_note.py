"""`acqstream-hsds.json` of a container whose pixels stay in the stacks: the array, and where its stacks are. Pure.

It lies at the top of the container, beside the bucket, as that of a container with pixels does. Our reader finds the
stacks by this note alone, and never by the link that a server follows. Everything inside its shape is stored.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_note import note_of_array, note_of_level, read_array
from acqstream.formats.hsds.hdf_type import parse_type, type_to_json
from acqstream.formats.hsds.object_id import MAX_NDIM
from acqstream.model.fields import Fields
from acqstream.storage.files.boundary import leads_out
from acqstream.storage.files.small_file import parse_fields

REFERENCE_FORMAT = "acqstream-hsds-reference"
_VERSION = 1
_MAX_EXTENT = 2**62
_MAX_HEADER_BYTES = 1 << 27
_MAX_URI_BYTES = 1 << 16
MAX_FRAME_BYTES = 1 << 32  # of a stack file
_PICTURES = (("y", "x"), ("y", "x", "c"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceNote:
    """dataset_id is that of the dataset. dataset: the path of its folder from the container, with "/"; stack_folder:
    that of the stacks below it, "" for the folder itself. stacks: names of the files. header_bytes of the first one
    have this XXH3-64, in hexadecimal digits: they contain the summary.

    bucket: the name of the folder that a server takes for its bucket; folder: where it is below the container, "" for
    the container itself. A file_uri is uri_start and the path of a stack below the dataset, in uri_bytes. domain: the
    path of the file for clients. steps: entries of a chunk of the table along each axis of the frames. columns: names
    in the metadata. named: axes whose values are names. created, modified: seconds since 1970.

    spec: the array of frames as announced, (axes of the frames..., y, x[, c]); its dtype has the byte order of the
    stacks, and a chunk is a frame. complete: nothing more will come.
    """

    spec: ArraySpec
    dataset_id: str
    dataset: str
    stack_folder: str
    stacks: tuple[str, ...]
    header_bytes: int
    header_sum: str
    bucket: str
    folder: str
    uri_start: str
    domain: str
    steps: tuple[int, ...]
    uri_bytes: int
    columns: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    complete: bool = False
    created: float = 0.0
    modified: float = 0.0

    @property
    def first_uri(self) -> str:
        """A file_uri that exists."""
        return self.uri(self.stacks[0])

    def uri(self, stack: str) -> str:
        """The file_uri of a stack file."""
        return f"{self.uri_start}{self.stack_path(stack)}"

    def stack_path(self, stack: str) -> str:
        """The path of a stack file below the folder of the dataset."""
        return f"{self.stack_folder}/{stack}" if self.stack_folder else stack

    def stack_of(self, uri: str) -> str | None:
        """The inverse of `uri`; None for any other text. A stack that came after this note was read counts, too."""
        start = f"{self.uri_start}{self.stack_folder}/" if self.stack_folder else self.uri_start
        name = uri.removeprefix(start)
        return name if uri.startswith(start) and _is_plain(name) else None


def encode_reference_note(note: ReferenceNote) -> bytes:
    """The content of the file."""
    spec = note.spec
    value = {
        "format": REFERENCE_FORMAT,
        "version": _VERSION,
        "complete": note.complete,
        "dataset_id": note.dataset_id,
        "dataset": note.dataset,
        "stack_folder": note.stack_folder,
        "stacks": [*note.stacks],
        "header": {"bytes": note.header_bytes, "xxh3": note.header_sum},
        "bucket": note.bucket,
        "folder": note.folder,
        "uri_start": note.uri_start,
        "domain": note.domain,
        "steps": [*note.steps],
        "uri_bytes": note.uri_bytes,
        "columns": [*note.columns],
        "named": [*note.named],
        "created": note.created,
        "modified": note.modified,
        "type": type_to_json(spec.dtype),
        **{key: value for key, value in note_of_level(spec).items() if key != "factors"},
        **note_of_array(spec),
    }
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def is_reference_note(content: bytes) -> bool:
    """Return True if this is the beginning of such a file, right or wrong."""
    return f'"{REFERENCE_FORMAT}"'.encode() in content


def parse_reference_note(content: bytes, path: str) -> ReferenceNote:
    """The note in the file `path`. Raises CorruptDataset with the field and what was expected."""
    fields = parse_fields(content, path, max_integer=_MAX_EXTENT)
    if (fields.text("format"), fields.integer("version")) != (REFERENCE_FORMAT, _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format {REFERENCE_FORMAT}")
    steps = fields.integers("steps", minimum=1)
    stacks = fields.texts("stacks")
    if not stacks or not all(map(_is_plain, stacks)):
        raise fields.wrong("stacks", "names of stack files")
    header = fields.child("header")
    return ReferenceNote(
        spec=_spec(fields, len(steps), path),
        dataset_id=fields.text("dataset_id"),
        dataset=fields.text("dataset"),
        stack_folder=fields.text("stack_folder"),
        stacks=stacks,
        header_bytes=header.integer("bytes", minimum=8, maximum=_MAX_HEADER_BYTES),
        header_sum=header.text("xxh3"),
        bucket=fields.text("bucket"),
        folder=fields.text("folder"),
        uri_start=fields.text("uri_start"),
        domain=fields.text("domain"),
        steps=steps,
        uri_bytes=fields.integer("uri_bytes", minimum=1, maximum=_MAX_URI_BYTES),
        columns=fields.texts("columns"),
        named=fields.texts("named"),
        complete=fields.flag("complete"),
        created=fields.number("created"),
        modified=fields.number("modified"),
    )


def _is_plain(name: str) -> bool:
    return bool(name) and "/" not in name and "\\" not in name and not leads_out(name)


def _spec(fields: Fields, frame_axes: int, path: str) -> ArraySpec:
    axes = fields.texts("axes")
    count = len(axes)
    if axes[frame_axes:] not in _PICTURES or len(set(axes)) < count or count > MAX_NDIM:
        raise fields.wrong("axes", f"{frame_axes} axes of the frames, then y and x, each once")
    dtype, shape = parse_type(fields.values.get("type"), path), fields.integers("shape", count)
    if dtype.kind != "u" or dtype.itemsize > 2:
        raise fields.wrong("type", "8 or 16 bits without a sign")
    chunk = (*(1 for _ in range(frame_axes)), *shape[frame_axes:])
    if 0 in chunk or math.prod(chunk) * dtype.itemsize > MAX_FRAME_BYTES or math.prod(shape) >= 2**63:
        raise fields.wrong("shape", f"frames of at most {MAX_FRAME_BYTES} bytes")
    return replace(
        read_array(fields, axes, dtype),
        shape=shape,
        chunk_shape=chunk,
        scale=fields.numbers("scale", count),
        translation=fields.numbers("translation", count),
    )
