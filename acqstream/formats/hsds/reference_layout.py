"""The objects of a domain whose pixels stay in the stacks of an NDTiff dataset, and our note about it. Pure.

    level 0            the array of frames, (axes of the frames..., y, x[, c]); a chunk is a frame, in its stack
    <axis>             the value of each place along an axis of the frames, a dimension scale of `level 0`
    metadata/<name>    a number in the metadata of each frame, (axes of the frames...), float64, NaN where it is missing
    (without a link)   the chunk table of `level 0`: where each frame begins, its size and its stack

Each dataset but `level 0` is cut along the axes of the frames as the chunk table is, so that all of them grow by the
same chunks. Chunks of the table are compressed: of its rows only offsets differ.

The note, `acqstream-hsds.json`, lies at the top of the container, beside the bucket. It says where the stacks are: our
reader finds them by it alone, and never by the link that a server follows. Everything inside its shape is stored.

Source: HDF Group, HSDS object storage schema, "Dataset", H5D_CHUNKED_REF_INDIRECT; HDF5 dimension scale specification.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.array_note import note_of_array, note_of_level, read_array, read_level
from acqstream.formats.hsds.dataset_layout import DEFLATE, ChunkFilter, StoredLayout
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, Dataspace, DType, parse_type, type_to_json
from acqstream.formats.hsds.layout import NOTE_NAME
from acqstream.formats.hsds.metadata import (
    Attribute,
    DatasetDocument,
    DomainDocument,
    GroupDocument,
    GroupLink,
    attribute,
    level_attributes,
)
from acqstream.formats.hsds.object_id import MAX_NDIM, ObjectId, domain_key, object_id, root_id
from acqstream.model.axes import AxisValue
from acqstream.model.fields import Fields
from acqstream.storage.files.boundary import leads_out
from acqstream.storage.files.small_file import parse_fields

REFERENCE_FORMAT = "acqstream-hsds-reference"
_VERSION = 1
_MAX_EXTENT = 2**62
_MAX_HEADER_BYTES = 2**27
_MAX_URI_BYTES = 2**16
MAX_FRAME_BYTES = 2**32  # of a stack file
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
    return replace(read_level(fields, read_array(fields, axes, dtype)), chunk_shape=chunk)


PIXELS = "level 0"
METADATA = "metadata"
COLUMN_UNITS = {"time_s": "s", "exposure_ms": "ms", "stage_x_um": "um", "stage_y_um": "um", "stage_z_um": "um"}
"""Columns with the same words for every producer, before those named after keys in the metadata."""

_COMPRESSION_LEVEL = 1
_GZIP = ChunkFilter(DEFLATE.kind, DEFLATE.number, DEFLATE.name, _COMPRESSION_LEVEL)
_NAME_BYTES = 64  # of a name along an axis, in UTF-8
_INTEGER, _NAME, _NUMBER = np.dtype("<i8"), np.dtype(f"S{_NAME_BYTES}"), np.dtype("<f8")
_MAX_I32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ReferenceAttribute(Attribute):
    """References to objects, for dimension scales. `type_json` is the type, which numpy has not."""

    type_json: Mapping[str, Any]

    def to_json(self, created: float) -> dict[str, Any]:
        """The entry in `attributes` of an object."""
        shape = self.space.to_json()
        return {"type": dict(self.type_json), "shape": shape, "value": self.value, "created": created}


_REFERENCE = {
    "class": "H5T_REFERENCE",
    "base": "H5T_STD_REF_OBJ",
    "length": 48,
    "charSet": "H5T_CSET_ASCII",
    "strPad": "H5T_STR_NULLPAD",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceLayout:
    """note: see ReferenceNote; it is the first document."""

    note: ReferenceNote

    @property
    def spec(self) -> ArraySpec:
        """`level 0` as announced."""
        return self.note.spec

    @property
    def root(self) -> ObjectId:
        """The root group: the same dataset always gives the same ids."""
        return root_id(f"{self.note.dataset_id}:by reference")

    @property
    def outer(self) -> tuple[str, ...]:
        """Axes of the frames, slowest first."""
        return self.spec.axes[: len(self.note.steps)]

    @property
    def record(self) -> DType:
        """The type of an entry of the table."""
        payload = self.spec.chunk_bytes
        size = "<i4" if payload <= _MAX_I32 else "<i8"
        return np.dtype([("offset", "<i8"), ("size", size), ("file_uri", f"S{self.note.uri_bytes}")])

    def table_key(self, chunk: Position) -> str:
        """The key of a chunk of the table. chunk: its position along the axes of the frames."""
        return self._key(self._table.chunk_key((*chunk, *self._picture)))

    def encode_table(self, offsets: NDArray[np.int64], sizes: NDArray[np.int64], uris: Sequence[str]) -> bytes:
        """The bytes of a chunk of the table. All have an item per entry, in C order; a size of 0 is no frame.

        A server takes the file_uri of a missing frame, too, so it must be one that exists.
        """
        records = np.zeros(len(offsets), self.record)
        records["offset"], records["size"] = offsets, sizes
        encoded = {uri: uri.encode() for uri in set(uris)}
        records["file_uri"] = [encoded[uri] for uri in uris]
        return zlib.compress(records.tobytes(), _COMPRESSION_LEVEL)

    def column_key(self, column: int, chunk: Position) -> str:
        """The key of a chunk of a column of metadata."""
        return self._key(self._column(self.note.columns[column]).chunk_key(chunk or (0,)))

    def scale_key(self, axis: int, number: int) -> str:
        """The key of a chunk of the values along an axis of the frames."""
        return self._key(self._scale(self.outer[axis]).chunk_key((number,)))

    def encode_scale(self, axis: int, first: int, values: Sequence[AxisValue | None]) -> bytes:
        """The bytes of a chunk of the values along an axis. values begin at place `first`; None: no frame has come.

        A place without frames has its number, or an empty name; so has a value that does not fit the type.
        """
        name, step = self.outer[axis], self.note.steps[axis]
        found = np.zeros(step, _NAME if name in self.note.named else _INTEGER)
        for at, value in enumerate(values[first : first + step]):
            if name in self.note.named:
                found[at] = _cut(str(value)) if value is not None else b""
            else:
                found[at] = value if isinstance(value, int) and abs(value) < 2**63 else first + at
        return found.tobytes()

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """Keys and bytes of all documents, in the order in which they must be put."""
        modified = self.note.modified
        yield NOTE_NAME, encode_reference_note(self.note)
        for dataset in (self._table_document(), *self._column_documents(), *self._scale_documents(), self._pixels()):
            yield self._key(dataset.id.key), replace(dataset, modified=modified).encode()
        if self.note.columns:
            links = {link_name(name): GroupLink("hard", str(self._column(name))) for name in self.note.columns}
            yield self._key(self._metadata.key), self._group(self._metadata, links, {}, modified).encode()
        yield self._key(self.root.key), self._root_group(modified).encode()
        domain = DomainDocument(self.root, self.note.created, self.note.created)
        yield self._key(domain_key(self.note.domain)), domain.encode()

    def _key(self, key: str) -> str:
        return f"{self.note.folder}/{key}" if self.note.folder else key

    @property
    def _data(self) -> ObjectId:
        return object_id(self.root, "d", PIXELS)

    @property
    def _table(self) -> ObjectId:
        return object_id(self.root, "d", f"{PIXELS}/chunk table")

    @property
    def _metadata(self) -> ObjectId:
        return object_id(self.root, "g", METADATA)

    @property
    def _picture(self) -> tuple[int, ...]:
        """The position of a frame along y and x (and c) in units of chunks."""
        return (0,) * (len(self.spec.axes) - len(self.note.steps))

    def _column(self, name: str) -> ObjectId:
        return object_id(self.root, "d", f"{METADATA}/{name}")

    def _scale(self, axis: str) -> ObjectId:
        return object_id(self.root, "d", f"scale/{axis}")

    def _dataset(
        self, own: ObjectId, dtype: DType, dims: Sequence[int], layout: StoredLayout, **more: Any
    ) -> DatasetDocument:
        """A dataset that grows along the axes of the frames."""
        grows = len(self.note.steps) if len(dims) > 1 else 1
        space = Dataspace(tuple(dims), tuple(None if at < grows else size for at, size in enumerate(dims)))
        return DatasetDocument(
            id=own, root=self.root, dtype=dtype, space=space, layout=layout, created=self.note.created, **more
        )

    def _table_document(self) -> DatasetDocument:
        count = len(self.note.steps)
        ones = tuple(1 for _ in self._picture)
        return self._dataset(
            self._table,
            self.record,
            (*self.spec.shape[:count], *ones),
            StoredLayout(kind="H5D_CHUNKED", dims=(*self.note.steps, *ones)),
            filters=(_GZIP,),
            fill_value=[0, 0, self.note.first_uri],  # entries of chunks without any frame
        )

    def _column_documents(self) -> Iterator[DatasetDocument]:
        for name in self.note.columns:
            dims, steps = self.spec.shape[: len(self.note.steps)] or (1,), self.note.steps or (1,)
            layout = StoredLayout(kind="H5D_CHUNKED", dims=steps)
            attributes = {"key": attribute(name)}
            if name in COLUMN_UNITS:
                attributes["units"] = attribute(COLUMN_UNITS[name])
            yield self._dataset(self._column(name), _NUMBER, dims, layout, fill_value="NaN", attributes=attributes)

    def _scale_documents(self) -> Iterator[DatasetDocument]:
        for axis, (name, step) in enumerate(zip(self.outer, self.note.steps, strict=True)):
            attributes: dict[str, Attribute] = {
                "CLASS": Attribute(np.dtype("S16"), Dataspace(), "DIMENSION_SCALE"),
                "NAME": attribute(name),
                "REFERENCE_LIST": ReferenceAttribute(
                    VARIABLE_TEXT, Dataspace((1,)), [[f"datasets/{self._data}", axis]], _BACK_REFERENCE
                ),
            }
            yield self._dataset(
                self._scale(name),
                _NAME if name in self.note.named else _INTEGER,
                (self.spec.shape[axis],),
                StoredLayout(kind="H5D_CHUNKED", dims=(step,)),
                attributes=attributes,
            )

    def _pixels(self) -> DatasetDocument:
        spec = self.spec
        lists = [[f"datasets/{self._scale(name)}"] if name in self.outer else [] for name in spec.axes]
        attributes = level_attributes(spec)
        if self.outer:
            attributes["DIMENSION_LIST"] = ReferenceAttribute(
                VARIABLE_TEXT,
                Dataspace((len(lists),)),
                lists,
                {"class": "H5T_VLEN", "size": "H5T_VARIABLE", "base": _REFERENCE},
            )
        layout = StoredLayout(kind="H5D_CHUNKED_REF_INDIRECT", dims=spec.chunk_shape, chunk_table=self._table)
        return self._dataset(self._data, spec.dtype, spec.shape, layout, attributes=attributes)

    def _group(
        self, own: ObjectId, links: Mapping[str, GroupLink], attributes: Mapping[str, Attribute], modified: float
    ) -> GroupDocument:
        return GroupDocument(
            id=own, root=self.root, links=links, attributes=attributes, created=self.note.created, modified=modified
        )

    def _root_group(self, modified: float) -> GroupDocument:
        links = {link_name(name): GroupLink("hard", str(self._scale(name))) for name in self.outer}
        links[PIXELS] = GroupLink("hard", str(self._data))
        if self.note.columns:
            links[METADATA] = GroupLink("hard", str(self._metadata))
        attributes = {"summary": attribute(json.dumps(dict(self.spec.attributes), ensure_ascii=False))}
        return self._group(self.root, links, attributes, modified)


_BACK_REFERENCE = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "dataset", "type": _REFERENCE},
        {"name": "index", "type": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}},
    ],
}


def _cut(name: str) -> bytes:
    """A name in at most _NAME_BYTES of UTF-8, cut between characters."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore").encode()


def link_name(name: str) -> str:
    """A name as a link of a group, where "/" separates names."""
    return name.replace("/", ":") if name not in (".", "..") else f"{name}:"
