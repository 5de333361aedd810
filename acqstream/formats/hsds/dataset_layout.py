"""Where the chunks of a dataset lie, and the filters that they went through, in JSON. Pure.

A layout is stored in two places of a dataset's document. Version 1.0 of the server reads `creationProperties.layout`.
Version 0.9 needs the top-level `layout`: it enlarges chunks, and `creationProperties` keeps the user's wish only.

Source: HDF Group, HSDS object storage schema, "Dataset"; versions 1.0.2 and 0.9.4 of the server as they behave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from acqstream.formats.hsds.object_id import ObjectId, parse_id, parse_index
from acqstream.model.fields import MAX_INTEGER, Fields

LayoutClass = Literal[
    "H5D_CHUNKED",
    "H5D_CONTIGUOUS",
    "H5D_COMPACT",
    "H5D_CHUNKED_REF",
    "H5D_CHUNKED_REF_INDIRECT",
    "H5D_CONTIGUOUS_REF",
]
_CLASSES: tuple[LayoutClass, ...] = (
    "H5D_CHUNKED",
    "H5D_CONTIGUOUS",
    "H5D_COMPACT",
    "H5D_CHUNKED_REF",
    "H5D_CHUNKED_REF_INDIRECT",
    "H5D_CONTIGUOUS_REF",
)
_REFERENCES = ("H5D_CHUNKED_REF", "H5D_CHUNKED_REF_INDIRECT", "H5D_CONTIGUOUS_REF")
_WITH_CHUNKS = ("H5D_CHUNKED", "H5D_CHUNKED_REF", "H5D_CHUNKED_REF_INDIRECT")

Span = tuple[int, int]
"""Offset and length in a file, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLayout:
    """dims: the shape of a chunk, slowest dimension first; () where one chunk is the dataset.

    By reference: file_uri is `<bucket>/<path inside the bucket>`; spans are the chunks in this file by position
    (H5D_CHUNKED_REF), span is the dataset in it (H5D_CONTIGUOUS_REF), chunk_table is the dataset with a row for each
    chunk (H5D_CHUNKED_REF_INDIRECT). partitions: folder levels of chunks; 0 without any.
    """

    kind: LayoutClass
    dims: tuple[int, ...] = ()
    file_uri: str = ""
    spans: Mapping[tuple[int, ...], Span] = field(default_factory=dict)
    span: Span | None = None
    chunk_table: ObjectId | None = None
    partitions: int = 0

    @property
    def is_reference(self) -> bool:
        """True if the pixels lie in other files."""
        return self.kind in _REFERENCES

    def to_json(self) -> dict[str, Any]:
        """The value of `layout`."""
        found: dict[str, Any] = {"class": self.kind}
        if self.dims:
            found["dims"] = [*self.dims]
        if self.file_uri:
            found["file_uri"] = self.file_uri
        if self.spans:
            found["chunks"] = {"_".join(map(str, at)): [*span] for at, span in self.spans.items()}
        if self.span is not None:
            found["offset"], found["size"] = self.span
        if self.chunk_table is not None:
            found["chunk_table"] = str(self.chunk_table)
        if self.partitions:
            found["partition_count"] = self.partitions
        return found


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """A filter of HDF5. level is that of the compression; None without one."""

    kind: str
    number: int
    name: str
    level: int | None = None

    def to_json(self) -> dict[str, Any]:
        """An item of `filters`."""
        found: dict[str, Any] = {"class": self.kind, "id": self.number, "name": self.name}
        return found if self.level is None else {**found, "level": self.level}


SHUFFLE = ChunkFilter("H5Z_FILTER_SHUFFLE", 2, "shuffle")
LZ4 = ChunkFilter("H5Z_FILTER_LZ4", 32004, "lz4")
ZSTD = ChunkFilter("H5Z_FILTER_ZSTD", 32015, "zstd")
DEFLATE = ChunkFilter("H5Z_FILTER_DEFLATE", 1, "gzip")


def is_reference(fields: Fields) -> bool:
    """Return True for a layout in JSON whose pixels lie in other files."""
    return fields.values.get("class") in _REFERENCES


def parse_layout(fields: Fields, ndim: int) -> StoredLayout:
    """The inverse of `StoredLayout.to_json` for a dataset of `ndim` dimensions. Raises the error of `fields`."""
    kind = fields.choice("class", _CLASSES)
    dims = fields.integers("dims", minimum=1) if kind in _WITH_CHUNKS else ()
    # A scalar has one chunk, which version 0.9 states as [1].
    if kind in _WITH_CHUNKS and len(dims) != max(ndim, 1):
        raise fields.wrong("dims", f"{max(ndim, 1)} sizes, as the shape has")
    span = None
    if kind == "H5D_CONTIGUOUS_REF":
        span = fields.integer("offset"), fields.integer("size")
    return StoredLayout(
        kind=kind,
        dims=dims,
        file_uri=fields.text("file_uri", ""),
        spans=_spans(fields, len(dims)) if kind == "H5D_CHUNKED_REF" else {},
        span=span,
        chunk_table=_chunk_table(fields) if kind == "H5D_CHUNKED_REF_INDIRECT" else None,
        partitions=fields.integer("partition_count", 0, maximum=1 << 31),
    )


def parse_filters(fields: Fields) -> tuple[ChunkFilter, ...]:
    """The value of `filters`: objects, or names alone. Raises the error of `fields`."""
    found = []
    for given in fields.items("filters") if fields.values.get("filters") is not None else ():
        if isinstance(given, str):
            found.append(_NAMED.get(given, ChunkFilter(given, 0, given)))
        elif isinstance(given, Mapping):
            number, level = (one if type(one) is int else None for one in (given.get("id"), given.get("level")))
            found.append(ChunkFilter(str(given.get("class", "")), number or 0, str(given.get("name", "")), level))
        else:
            raise fields.wrong("filters", "a list of filters of HDF5")
    return tuple(found)


_NAMED = {name: one for one in (SHUFFLE, LZ4, ZSTD, DEFLATE) for name in (one.kind, one.name)}


def _spans(fields: Fields, ndim: int) -> dict[tuple[int, ...], Span]:
    found = {}
    for name, span in fields.mapping("chunks").items():
        position = parse_index(name)
        is_span = isinstance(span, list) and len(span) == 2
        if position is None or len(position) != ndim or not is_span:
            raise fields.wrong("chunks", f"offset and size by positions such as {'_'.join('0' * ndim)}")
        if not all(type(number) is int and 0 <= number <= MAX_INTEGER for number in span):
            raise fields.wrong("chunks", "offsets and sizes in bytes")
        found[position] = (span[0], span[1])
    return found


def _chunk_table(fields: Fields) -> ObjectId:
    try:
        found = parse_id(fields.text("chunk_table"))
    except ValueError as error:
        raise fields.wrong("chunk_table", "the id of a dataset") from error
    if found.kind != "d":
        raise fields.wrong("chunk_table", "the id of a dataset")
    return found
