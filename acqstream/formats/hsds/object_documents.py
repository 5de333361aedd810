"""The documents of an HSDS domain: the domain itself, its groups and its datasets. Pure.

Every document is a small JSON file of its own. The server needs `owner` and `acls` of a domain, and `id`, `root`,
`created`, `lastModified` and `attributes` of a group or dataset; with one of them missing it answers 500.
Times are in seconds since 1970.

Source: HDF Group, HSDS object storage schema, "Domain", "Group" and "Dataset", as versions 1.0.2 and 0.9.4 read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from acqstream.errors import CorruptDataset
from acqstream.formats.hsds.attribute import Attribute, attributes_to_json, read_attributes
from acqstream.formats.hsds.dataspace import Dataspace, parse_dataspace
from acqstream.formats.hsds.hdf_type import DType, parse_type, type_to_json
from acqstream.formats.hsds.object_id import ObjectId, parse_id
from acqstream.formats.hsds.stored_layout import ChunkFilter, StoredLayout, is_reference, parse_filters, parse_layout
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

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
