"""Layouts for viewers, in which no mirror is made: OME-Zarr 0.4, and a Zarr v3 group for xarray. Pure.

OME-Zarr 0.4 (Zarr v2) is for viewers that read nothing newer: an image, a collection or a plate. Its chunks are those
of the layout for 0.5 without shards and compressors. Sources: Zarr v2, "Arrays"; OME-NGFF 0.4.

    .zgroup, .zattrs          the image, or the collection
    0/.zarray, 0/.zattrs      level 0; 0/0/0/0/0/0 and so on: its chunks
    3/.zgroup, 3/.zattrs      image 3 of a collection
    A/1/.zgroup, A/1/.zattrs  well A1 of a plate, with its fields A/1/0 and so on

The group for xarray has the image with its own axes, and coordinates. xarray lists nothing over HTTP, so it finds the
arrays in a copy of all documents, the "consolidated metadata". Sources: Zarr v3 core; zarr-python, "consolidated
metadata"; CF conventions, "units" and "long_name".

    zarr.json             the group, with a copy of all documents below it
    image/zarr.json       the image; image/c/0/0/0 and so on: its chunks
    z/zarr.json, z/c/0    coordinates along z
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan
from acqstream.formats.ome_zarr import metadata as docs
from acqstream.formats.ome_zarr.codec import ChunkCodecs, KeyEncoding, ZarrArray
from acqstream.formats.ome_zarr.layout import OmeZarrLayout, plan_folders
from acqstream.formats.ome_zarr.plan import OmeZarrOptions
from acqstream.formats.ome_zarr.zarr_json import array_document
from acqstream.model.axes import PICTURE_AXES

GROUP_NAME, ATTRIBUTES_NAME, ARRAY_NAME = ".zgroup", ".zattrs", ".zarray"
VERSION = "0.4"
_GROUP = docs.encode({"zarr_format": 2})


@dataclass(frozen=True)
class OmeZarrV2Layout(OmeZarrLayout):
    """`create_layout_v2` makes it."""

    keys: ClassVar[KeyEncoding] = KeyEncoding(has_prefix=False)
    version: ClassVar[str] = VERSION

    def _own_attributes(self, *, complete: bool) -> Mapping[str, Any]:
        del complete
        return {}  # our note is in 0.5 alone

    def _array_documents(self, folders: Sequence[str], array: ZarrArray) -> Mapping[str, bytes]:
        return {
            "/".join((*folders, ARRAY_NAME)): docs.encode(array_document_v2(array)),
            "/".join((*folders, ATTRIBUTES_NAME)): docs.encode({"_ARRAY_DIMENSIONS": [*array.dimension_names]}),
        }

    def group(self, folders: Sequence[str], ome: Mapping[str, Any] | None, **others: Any) -> Mapping[str, bytes]:
        """See OmeZarrLayout: in 0.4 the attributes are in a document of their own."""
        attributes = {**(ome or {}), **others}
        return {
            "/".join((*folders, GROUP_NAME)): _GROUP,
            "/".join((*folders, ATTRIBUTES_NAME)): docs.encode(attributes),
        }

    def _image(self, levels: Sequence[ArraySpec], name: str) -> Mapping[str, Any] | None:
        found = super()._image(levels, name)
        if found is None:
            return {}
        # In 0.4 each image states the version; in 0.5 its group does.
        return {**found, "multiscales": [{"version": VERSION, **one} for one in found["multiscales"]]}


def create_layout_v2(plan: Plan, options: OmeZarrOptions) -> OmeZarrV2Layout:
    """The layout for a plan without shards. Raises ValueError for options with shards or a compressor."""
    if options.is_sharded or not options.is_raw:
        raise ValueError("OME-Zarr 0.4 is for chunks without shards and compressors")
    return OmeZarrV2Layout(plan, options, plan_folders(plan, options))


def array_document_v2(array: ZarrArray) -> dict[str, Any]:
    """`.zarray` of an array without shards, compressors and `order`. Source: Zarr v2, "Metadata"."""
    return {
        "zarr_format": 2,
        "shape": [*array.shape],
        "chunks": [*array.chunk_shape],
        "dtype": array.codecs.dtype.str,
        "compressor": None,
        "fill_value": False if array.dtype.kind == "b" else 0,
        "order": "C",
        "filters": None,
        "dimension_separator": "/",
    }


IMAGE = "image"
_COLOUR = "c"
_KEYS = KeyEncoding()
_SAMPLES = ("R", "G", "B")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class XarrayLayout(ChunkLayout):
    """`plan_for_xarray` makes its plan, which has one level and no members."""

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout."""
        del level
        return f"{IMAGE}/{_KEYS.key(position)}"

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout."""
        folder, _, rest = key.partition("/")
        position = _KEYS.parse(rest, len(self.plan.full.axes)) if folder == IMAGE else None
        return None if position is None else (0, position)

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Chunks in little-endian are not copied."""
        self.check_chunk(level, position, chunk)
        return [self._codecs.encode(chunk)]

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        del level, position
        return self._codecs.decode(data, where)

    def raw_head(self, level: int, position: Position) -> bytes | None:
        """See ChunkLayout."""
        del level, position
        return b""

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout. Chunks of coordinates are among them: they are short."""
        del complete
        full = self.plan.full
        attributes = dict(full.attributes)
        image = ZarrArray(shape=full.shape, codecs=self._codecs, dimension_names=full.axes, attributes=attributes)
        arrays: dict[str, dict[str, Any]] = {IMAGE: array_document(image)}
        found: dict[str, bytes] = {}
        for axis in full.axes:
            arrays[axis], found[f"{axis}/{_KEYS.key((0,))}"] = _coordinate(full, axis)
        for name, document in arrays.items():
            found[docs.document_key(name)] = docs.encode(document)
        copy = {"kind": "inline", "must_understand": False, "metadata": arrays}
        found[docs.document_key()] = docs.encode({**docs.group(None, **attributes), "consolidated_metadata": copy})
        return found

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """Raises NotImplementedError: no mirror is made in this layout."""
        raise NotImplementedError(f"{where}: no mirror is made for xarray")

    @cached_property
    def _codecs(self) -> ChunkCodecs:
        full = self.plan.full
        return ChunkCodecs(full.chunk_shape, full.dtype.newbyteorder("<"))


def plan_for_xarray(array: ArraySpec, chunk: tuple[int, int]) -> Plan:
    """Cut an array into chunks (y, x) of single frames; its axes come as readers show them. One level."""
    shown = array.shown_axes or array.axes
    hidden = [name for name in array.axes if name not in shown]
    full = array.ordered((*hidden, *shown))
    sides = dict(zip(("y", "x"), chunk, strict=True))
    sizes = zip(full.axes, full.shape, strict=True)
    steps = [min(sides[name], size) if name in sides else size if name == _COLOUR else 1 for name, size in sizes]
    return Plan(levels=(replace(full, chunk_shape=tuple(steps)),))


def _coordinate(full: ArraySpec, axis: str) -> tuple[dict[str, Any], bytes]:
    """The document of a coordinate array, and its only chunk.

    Distances have their unit; names are strings; other axes have the values of the frames, and places without a frame
    their own number.
    """
    at = full.axes.index(axis)
    size, unit = full.shape[at], full.units[at]
    names = _names(full, axis, size)
    if names:
        return _text_document(axis, size), _texts(names)
    values: NDArray[Any] = np.arange(size, dtype="<i8")
    attributes = {}
    if unit:
        values = (full.translation[at] + full.scale[at] * np.arange(size)).astype("<f8")
        attributes = {"units": unit}
    elif axis in full.axis_values:
        seen = full.axis_values[axis]
        known = [value if isinstance(value, int) else place for place, value in enumerate(seen[:size])]
        values = np.array([*known, *range(len(known), size)], "<i8")
    codecs = ChunkCodecs((max(1, size),), values.dtype)
    array = ZarrArray(shape=(size,), codecs=codecs, dimension_names=(axis,), attributes=attributes)
    return array_document(array), values.tobytes()


def _names(full: ArraySpec, axis: str, size: int) -> list[str]:
    """Names of all places; empty for an axis without names."""
    if axis == _COLOUR and axis in PICTURE_AXES:
        return [*_SAMPLES[:size]]
    values = full.axis_values.get(axis, ())
    if any(isinstance(value, str) for value in values):
        texts = ["" if value is None else str(value) for value in values[:size]]
        return [*texts, *[""] * (size - len(texts))]
    labels = full.labels.get(axis, ())
    return [*labels] if len(labels) == size else []


def _text_document(axis: str, size: int) -> dict[str, Any]:
    """Source: zarr-extensions, data type `string` and codec `vlen-utf8`."""
    codecs = ChunkCodecs((max(1, size),), np.dtype(np.uint8))
    document = array_document(ZarrArray(shape=(size,), codecs=codecs, dimension_names=(axis,)))
    return {**document, "data_type": "string", "fill_value": "", "codecs": [{"name": "vlen-utf8"}]}


def _texts(names: Sequence[str]) -> bytes:
    """A chunk of strings: their number, then length and UTF-8 of each; integers of 32 bits, little-endian."""
    encoded = [name.encode("utf-8", "replace") for name in names]
    return _LENGTH.pack(len(encoded)) + b"".join(_LENGTH.pack(len(one)) + one for one in encoded)
