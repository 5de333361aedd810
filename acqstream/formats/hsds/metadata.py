"""Documents of an HSDS domain in JSON, and the options of a mirror. Pure.

Every document is a small JSON file of its own: the domain, its groups and its datasets, with their attributes. The
server needs `owner` and `acls` of a domain, and `id`, `root`, `created`, `lastModified` and `attributes` of a group or
dataset; with one of them missing it answers 500. Times are in seconds since 1970. A container of ours with pixels has

level 0, level 1, ...   the levels, (axes of the frames..., y, x[, c]), as hard links of the root group

Source: HDF Group, HSDS object storage schema, "Domain", "Group", "Dataset" and "Attributes", as versions 1.0.2 and
0.9.4 read it; HDF5/JSON, "Attribute".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset
from acqstream.formats.array_note import plain_value
from acqstream.formats.array_options import OptionReader
from acqstream.formats.hsds.dataset_layout import (
    DEFLATE,
    LZ4,
    SHUFFLE,
    ZSTD,
    ChunkFilter,
    StoredLayout,
    is_reference,
    parse_filters,
    parse_layout,
)
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, Dataspace, DType, parse_dataspace, parse_type, type_to_json
from acqstream.formats.hsds.object_id import ObjectId, domain_key, object_id, parse_id, root_id
from acqstream.grid.block_sizes import reduced_shape
from acqstream.model.fields import Fields
from acqstream.model.metadata import finite_number
from acqstream.storage.files.small_file import parse_fields

Pixels = Literal["reference", "copy"]
Compression = Literal["lz4", "zstd", "zlib", "none"]

PIXELS: tuple[Pixels, ...] = get_args(Pixels)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
_MAX_CHUNK_ITEMS = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class HsdsOptions:
    """pixels: "copy" stores chunks of the array; "reference" refers to those in the stacks.

    compression: "lz4" and "zstd" are blosc-1 with byte shuffle, "zlib" is deflate after the shuffle of HDF5. chunks:
    extents (z, y, x); None: a frame, or several small ones. levels: number of resolution levels; None: until a plane
    fits into 512 x 512.
    """

    pixels: Pixels = "reference"
    compression: Compression = "lz4"
    chunks: tuple[int, int, int] | None = None
    levels: int | None = None


def parse_options(given: Mapping[str, object]) -> HsdsOptions:
    """From what a user wrote, e.g. {"pixels": "copy", "compression": "zlib", "chunks": [1, 512, 512], "levels": 3}.

    The other options need pixels of their own: with one of them "copy" is the default.

    Raises ConfigError naming the option and what was expected.
    """
    names = ("pixels", "compression", "chunks", "levels")
    options = OptionReader("HSDS", given, names)
    others = [name for name in names[1:] if name in given]
    pixels = options.choice("pixels", PIXELS, "copy" if others else "reference", verb="are")
    if pixels == "reference" and others:
        raise ConfigError(f'HSDS {others[0]} needs chunks of its own: expected pixels "copy", found "reference"')
    return HsdsOptions(
        pixels=pixels,
        compression=options.choice("compression", COMPRESSIONS),
        chunks=options.chunks(max_items=_MAX_CHUNK_ITEMS),
        levels=options.levels(),
    )


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value with its type and shape. value is plain JSON: a number, a string, a nested list. Compare `attribute`."""

    dtype: DType
    space: Dataspace
    value: Any

    def to_json(self, created: float) -> dict[str, Any]:
        """The entry in `attributes` of an object. created: seconds since 1970."""
        return {
            "type": type_to_json(self.dtype),
            "shape": self.space.to_json(),
            "value": self.value,
            "created": created,
        }


def attribute(value: object) -> Attribute:
    """The attribute for a string, a number, a bool, or a list, tuple or array of one of them.

    Strings become variable strings in UTF-8, integers I64LE, real numbers F64LE. Raises ValueError for another value,
    an empty list, a number that is not finite, and an integer beyond 64 bits.
    """
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    items = _flat(plain)
    dims = _dims(plain)
    if not items:
        raise ValueError(f"an attribute of {value!r:.80} has no items, so no type")
    if all(isinstance(item, str) for item in items):
        return Attribute(VARIABLE_TEXT, Dataspace(dims), _listed(plain))
    if all(type(item) is bool for item in items):
        return Attribute(np.dtype(np.bool_), Dataspace(dims), _listed(plain))
    if all(type(item) is int for item in items) and max(map(abs, items)) < 1 << 63:
        return Attribute(np.dtype("<i8"), Dataspace(dims), _listed(plain))
    if any(type(item) is float for item in items) and all(finite_number(item) is not None for item in items):
        return Attribute(np.dtype("<f8"), Dataspace(dims), _listed(plain))
    raise ValueError(f"an attribute of {value!r:.80}; expected strings, bools or finite numbers of one kind")


def attributes_to_json(attributes: Mapping[str, Attribute], created: float) -> dict[str, Any]:
    """The value of `attributes` of an object."""
    return {name: one.to_json(created) for name, one in attributes.items()}


def read_attributes(given: object) -> dict[str, Any]:
    """The values of `attributes` of any writer by name, as JSON; what has no value is left out."""
    found: dict[str, Any] = {}
    for name, entry in given.items() if isinstance(given, Mapping) else ():
        if isinstance(name, str) and isinstance(entry, Mapping) and "value" in entry:
            found[name] = entry["value"]
    return found


def _dims(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        return ()
    inner = {_dims(item) for item in value}
    if len(inner) > 1:
        raise ValueError(f"an attribute of {value!r:.80}; expected a list without ragged items")
    return (len(value), *(inner.pop() if inner else ()))


def _flat(value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        return [value]
    return [item for part in value for item in _flat(part)]


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


OWNER = "admin"
_RIGHTS = ("create", "read", "update", "delete", "readACL", "updateACL")
_LINKS: dict[str, Literal["hard", "soft", "external"]] = {
    "H5L_TYPE_HARD": "hard",
    "H5L_TYPE_SOFT": "soft",
    "H5L_TYPE_EXTERNAL": "external",
}
_LINK_CLASSES = {kind: name for name, kind in _LINKS.items()}


@dataclass(frozen=True, slots=True)
class DomainDocument:
    """A domain, which clients see as an HDF5 file. root: None for a folder of domains."""

    root: ObjectId | None
    created: float = 0.0
    modified: float = 0.0

    def encode(self) -> bytes:
        """The bytes of the document. Everybody may read; only the owner may write."""
        acls = {OWNER: dict.fromkeys(_RIGHTS, True), "default": {right: right == "read" for right in _RIGHTS}}
        root = {} if self.root is None else {"root": str(self.root)}
        return _encode({**root, "owner": OWNER, "acls": acls, "created": self.created, "lastModified": self.modified})


@dataclass(frozen=True, slots=True)
class GroupLink:
    """A link in a group. target: an id of a hard link; the path in the file of a soft or external one.

    domain: the domain that an external link leads to.
    """

    kind: Literal["hard", "soft", "external"]
    target: str
    domain: str = ""

    def to_json(self, created: float) -> dict[str, Any]:
        """An entry of `links`."""
        found: dict[str, Any] = {"class": _LINK_CLASSES[self.kind], "created": created}
        if self.kind == "hard":
            return {**found, "id": self.target}
        return {**found, "h5path": self.target, **({"h5domain": self.domain} if self.domain else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDocument:
    """A group. attributes: to encode; values: the attributes of a parsed document by name, as JSON."""

    id: ObjectId
    root: ObjectId
    links: Mapping[str, GroupLink] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    created: float = 0.0
    modified: float = 0.0

    def encode(self) -> bytes:
        """The bytes of the document."""
        links = {name: link.to_json(self.created) for name, link in self.links.items()}
        attributes = attributes_to_json(self.attributes, self.created)
        return _encode({**_head(self), "attributes": attributes, "links": links})


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDocument:
    """A dataset. attributes and values: see GroupDocument.

    layout is the one that counts, and is encoded in both places. fill_value: JSON; None for the default, 0.
    """

    id: ObjectId
    root: ObjectId
    dtype: DType
    space: Dataspace
    layout: StoredLayout
    filters: tuple[ChunkFilter, ...] = ()
    fill_value: Any = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    created: float = 0.0
    modified: float = 0.0

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The shape of a chunk, slowest dimension first; that of the dataset where it has one chunk; () of a scalar."""
        dims = self.space.dims or ()
        return self.layout.dims if self.layout.dims and dims else dims

    def encode(self) -> bytes:
        """The bytes of the document."""
        layout = self.layout.to_json()
        properties: dict[str, Any] = {"layout": layout}
        if self.filters:
            properties["filters"] = [one.to_json() for one in self.filters]
        if self.fill_value is not None:
            properties["fillValue"] = self.fill_value
        return _encode(
            {
                **_head(self),
                "type": type_to_json(self.dtype),
                "shape": self.space.to_json(),
                "attributes": attributes_to_json(self.attributes, self.created),
                "creationProperties": properties,
                "layout": layout,
            }
        )


def parse_domain(content: bytes, where: str) -> DomainDocument:
    """The document of a domain. where names the file in errors. Raises CorruptDataset."""
    fields = parse_fields(content, where)
    return DomainDocument(_id(fields, "root") if fields.values.get("root") is not None else None, *_times(fields))


def parse_group(content: bytes, where: str) -> GroupDocument:
    """The document of a group. where names the file in errors. Raises CorruptDataset."""
    fields = parse_fields(content, where)
    links = {}
    for name in fields.mapping("links"):
        link = fields.child("links").child(name)
        kind = _LINKS[link.choice("class", tuple(_LINKS))]
        if kind == "hard":
            links[name] = GroupLink(kind, str(_id(link, "id")))
        else:
            # The published texts say `domain`, the server writes `h5domain`.
            domain = link.text("h5domain", link.text("domain", ""))
            links[name] = GroupLink(kind, link.text("h5path"), domain if kind == "external" else "")
    created, modified = _times(fields)
    return GroupDocument(
        id=_id(fields, "id"),
        root=_id(fields, "root"),
        links=links,
        values=read_attributes(fields.values.get("attributes")),
        created=created,
        modified=modified,
    )


def parse_dataset(content: bytes, where: str) -> DatasetDocument:
    """The document of a dataset. where names the file in errors. Raises CorruptDataset, UnsupportedFeature."""
    fields = parse_fields(content, where)
    space = parse_dataspace(fields.child("shape"))
    error = partial(CorruptDataset, path=where)
    properties = Fields(fields.mapping("creationProperties"), "creationProperties.", error)
    created, modified = _times(fields)
    return DatasetDocument(
        id=_id(fields, "id"),
        root=_id(fields, "root"),
        dtype=parse_type(fields.values.get("type"), where),
        space=space,
        layout=_layout(fields, properties, len(space.dims or ())),
        filters=parse_filters(properties),
        fill_value=properties.values.get("fillValue"),
        values=read_attributes(fields.values.get("attributes")),
        created=created,
        modified=modified,
    )


def _layout(fields: Fields, properties: Fields, ndim: int) -> StoredLayout:
    """The layout that counts: the top-level one, unless `creationProperties` refers to other files."""
    places = [at for at in (fields, properties) if at.values.get("layout") is not None]
    if not places:
        return StoredLayout(kind="H5D_CONTIGUOUS")
    counts = places[-1] if is_reference(places[-1].child("layout")) else places[0]
    return parse_layout(counts.child("layout"), ndim)


def _head(document: GroupDocument | DatasetDocument) -> dict[str, Any]:
    return {
        "id": str(document.id),
        "root": str(document.root),
        "created": document.created,
        "lastModified": document.modified,
    }


def _id(fields: Fields, name: str) -> ObjectId:
    try:
        return parse_id(fields.text(name))
    except ValueError as error:
        raise fields.wrong(name, "an id of HSDS such as d-282a787d-eb4b2feb-77ca-aa0596-7fc7c2") from error


def _times(fields: Fields) -> tuple[float, float]:
    found = (fields.number(name) if name in fields else 0.0 for name in ("created", "lastModified"))
    created, modified = found
    return created, modified


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


BUCKET = "acqstream"
DOMAIN = "/home/acq.h5"
_FIXED_AXES = ("y", "x", "c")
_COMPRESSORS = {"lz4": LZ4, "zstd": ZSTD, "zlib": DEFLATE}


def level_id(seed: str, level: int) -> ObjectId:
    """The id of the dataset of a level."""
    return object_id(root_id(seed), "d", level_name(level))


def level_name(level: int) -> str:
    """The name of a level in the root group."""
    return f"level {level}"


def filters_of(compression: Compression, item_bytes: int) -> tuple[ChunkFilter, ...]:
    """The filters that a dataset declares. Shuffle is declared with a compressor only: see codec."""
    if compression == "none":
        return ()
    return (*((SHUFFLE,) if item_bytes > 1 else ()), _COMPRESSORS[compression])


def stated_dims(spec: ArraySpec, planned: Sequence[int], *, complete: bool) -> tuple[int, ...]:
    """The sizes of a level for the server, which caches chunks: none covers a chunk that will be rewritten.

    spec has the announced shape, planned the sizes of this level when the container was created. Along an axis that is
    shorter or longer than planned, the last chunk may get more until the container is complete: frames, or rows of
    tiles along y.
    """
    sides = zip(spec.shape, spec.chunk_shape, planned, strict=True)
    return tuple(size if complete or size == expected else size // step * step for size, step, expected in sides)


def server_documents(
    levels: Sequence[ArraySpec],
    *,
    seed: str,
    created: float,
    planned: Sequence[int],
    compression: Compression,
    complete: bool,
) -> Iterator[tuple[str, bytes]]:
    """Keys below the bucket and bytes, in the order in which they must be put: the domain comes last.

    A layout has no clock, so all objects state the time at which the container was created.
    """
    root = root_id(seed)
    for number, spec in enumerate(levels):
        layout = StoredLayout(kind="H5D_CHUNKED", dims=spec.chunk_shape)
        expected = reduced_shape(planned, spec.factors)
        dims = stated_dims(spec, expected, complete=complete)
        dataset = DatasetDocument(
            id=level_id(seed, number),
            root=root,
            dtype=spec.dtype.newbyteorder("<"),
            space=Dataspace(dims, tuple(map(_max_size, spec.axes, dims, expected))),
            layout=layout,
            filters=filters_of(compression, spec.dtype.itemsize),
            attributes=level_attributes(spec),
            created=created,
            modified=created,
        )
        yield dataset.id.key, dataset.encode()
    links = {level_name(number): GroupLink("hard", str(level_id(seed, number))) for number in range(len(levels))}
    summary = json.dumps(dict(levels[0].attributes), ensure_ascii=False, default=plain_value)
    group = GroupDocument(
        id=root, root=root, links=links, attributes={"summary": attribute(summary)}, created=created, modified=created
    )
    yield root.key, group.encode()
    yield domain_key(DOMAIN), DomainDocument(root, created, created).encode()


def _max_size(axis: str, size: int, expected: int) -> int | None:
    return size if axis in _FIXED_AXES and expected and size == expected else None


def level_attributes(spec: ArraySpec) -> dict[str, Attribute]:
    """Axes, distances and names of a level."""
    found: dict[str, Any] = {
        "DIMENSION_LABELS": [*spec.axes],
        "axes": [*spec.axes],
        "scale": [*map(float, spec.scale)],
        "units": [*spec.units],
        "translation": [*map(float, spec.translation)],
        "factors": [*spec.factors],
        **({"valid_range": [0, 2**spec.bits - 1]} if spec.bits else {}),
        **{f"{axis} labels": [*map(str, names)] for axis, names in spec.labels.items() if names},
    }
    return {name: attribute(value) for name, value in found.items()}
