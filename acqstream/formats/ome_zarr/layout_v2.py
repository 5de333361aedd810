"""The layout of an image, a collection or a plate in OME-Zarr 0.4 (Zarr v2), for viewers that read nothing newer. Pure.

    .zgroup, .zattrs          the image, or the collection
    0/.zarray, 0/.zattrs      level 0; 0/0/0/0/0/0 and so on: its chunks
    3/.zgroup, 3/.zattrs      image 3 of a collection
    A/1/.zgroup, A/1/.zattrs  well A1 of a plate, with its fields A/1/0 and so on

No mirror is made in it. Chunks are those of the layout for 0.5 without shards and compressors. Sources: Zarr v2,
"Arrays"; OME-NGFF 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.ome_zarr import documents as docs
from acqstream.formats.ome_zarr.layout import OmeZarrLayout, image_name, plan_folders
from acqstream.formats.ome_zarr.options import OmeZarrOptions
from acqstream.formats.ome_zarr.zarr_array import KeyEncoding, ZarrArray

GROUP_NAME, ATTRIBUTES_NAME, ARRAY_NAME = ".zgroup", ".zattrs", ".zarray"
VERSION = "0.4"
_GROUP = docs.encode({"zarr_format": 2})


@dataclass(frozen=True)
class OmeZarrV2Layout(OmeZarrLayout):
    """`create_layout_v2` makes it."""

    keys: ClassVar[KeyEncoding] = KeyEncoding(has_prefix=False)
    version: ClassVar[str] = VERSION

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        if self.folders.wells:  # our note is in 0.5 alone
            return self._plate_documents({}, complete=complete)
        if self.plan.member_axes:
            return self.group((), {"bioformats2raw.layout": 3})
        return self.group((), self._image(self.plan.levels, self.plan.name))

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        folders = self.folders.parts(member)
        found = dict(self.well_documents(member))
        for number in range(len(self.plan.levels)):
            array = self.array(number)
            level = (*folders, str(number))
            found["/".join((*level, ARRAY_NAME))] = docs.encode(array_document_v2(array))
            names = {"_ARRAY_DIMENSIONS": [*array.dimension_names]}
            found["/".join((*level, ATTRIBUTES_NAME))] = docs.encode(names)
        if folders:
            levels = [self.image_level(level) for level in self.plan.member_levels(member)]
            found.update(self.group(folders, self._image(levels, image_name(self.plan, member))))
        return found

    def group(self, folders: Sequence[str], ome: Mapping[str, Any] | None, **others: Any) -> Mapping[str, bytes]:
        """See OmeZarrLayout: in 0.4 the attributes are in a document of their own."""
        attributes = {**(ome or {}), **others}
        return {
            "/".join((*folders, GROUP_NAME)): _GROUP,
            "/".join((*folders, ATTRIBUTES_NAME)): docs.encode(attributes),
        }

    def listings(self, container_name: str) -> Mapping[str, bytes]:
        """See ChunkLayout: the series in the words of 0.4, with the names and sizes that 0.5 has, too."""
        found = super().listings(container_name)
        if not found:
            return {}
        numbers = sorted(int(self.folders.parts(member)[0]) for member in self.plan.members())
        xml = f"{docs.SERIES_FOLDER}/{docs.XML_NAME}"
        series = {"series": [str(number) for number in numbers]}
        return {xml: found[xml], **self.group((docs.SERIES_FOLDER,), series)}

    def _image(self, levels: Sequence[ArraySpec], name: str) -> dict[str, Any]:
        if 0 in levels[0].shape:
            return {}
        found = docs.image_metadata(levels, name)
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
