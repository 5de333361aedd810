"""The layout of an OME-Zarr container. Pure.

    cells.ome.zarr/zarr.json          the image, or a collection of images; our note
    cells.ome.zarr/0/zarr.json        level 0; c/0/0/0 and so on: its shards
    cells.ome.zarr/3/0/zarr.json      level 0 of image 3, in a collection
    cells.ome.zarr/OME/zarr.json      the list of the images; METADATA.ome.xml beside it
    cells.ome.zarr/A/1/0/0/zarr.json  level 0 of field 0 of well A1, in a plate

Sources: Zarr v3 core and codec `sharding_indexed`; OME-NGFF 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.array_members import MAX_MEMBERS, has_too_many, member_number, member_part
from acqstream.formats.array_note import note_of_array, note_of_level, read_array, read_level
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, InPlace, Plan
from acqstream.formats.ome_zarr import metadata as docs
from acqstream.formats.ome_zarr.codec import MISSING, ChunkCodecs, IndexCodec, KeyEncoding, ZarrArray
from acqstream.formats.ome_zarr.image_folders import ImageFolders, has_fields, image_axis, split_axes
from acqstream.formats.ome_zarr.metadata import is_well, planned_wells, plate_metadata, well_metadata
from acqstream.formats.ome_zarr.plan import OmeZarrOptions, parse_options
from acqstream.formats.ome_zarr.zarr_json import DTYPES, MAX_NDIM, array_document, parse_array
from acqstream.model.axes import POSITION
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields
from acqstream.storage.stores.store import Capability

KEY = "acqstream"
_VERSION = 1


def note_to_json(layout: OmeZarrLayout, *, complete: bool) -> dict[str, Any]:
    """The note as it stands in zarr.json. complete: nothing more will come."""
    full, folders = layout.plan.full, layout.folders
    return {
        "format": "acqstream-ome-zarr",
        "version": _VERSION,
        "complete": complete,
        "dtype": full.dtype.name,
        **note_of_array(full),
        "planned": [*folders.planned],
        **({"wells": [*folders.wells]} if folders.wells else {}),
        "options": layout.options.to_json(),
        "levels": [note_of_level(level) for level in layout.plan.levels],
    }


def has_note(attributes: object) -> bool:
    """Return True if these attributes of a group have a note of ours."""
    note = attributes.get(KEY) if isinstance(attributes, dict) else None
    return isinstance(note, dict) and note.get("format") == "acqstream-ome-zarr"


def parse_note(attributes: Fields) -> tuple[OmeZarrLayout, bool]:
    """The layout in our note in the attributes of a group, its levels without chunks, and whether it is complete.

    Raises the error of `attributes` for a damaged note.
    """
    fields = attributes.child(KEY)
    if (fields.text("format"), fields.integer("version")) != ("acqstream-ome-zarr", _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format acqstream-ome-zarr")
    axes = fields.texts("axes")
    if len(axes) > MAX_NDIM:
        raise fields.wrong("axes", f"at most {MAX_NDIM}")
    if fields.text("dtype") not in DTYPES:
        raise fields.wrong("dtype", f"one of {', '.join(DTYPES)}")
    try:
        members, image = split_axes(axes)
        options = parse_options(fields.mapping("options"))
    except ConfigError as error:
        raise fields.wrong("axes", f"those of an image, with options of acqstream ({error})") from error
    if axes != (*members, *image):
        raise fields.wrong("axes", "those of separate images first")
    array = read_array(fields, axes, np.dtype(fields.text("dtype")))
    levels = tuple(_noted_level(level, array, len(members)) for level in fields.children("levels"))
    if not levels:
        raise fields.wrong("levels", "one level at least")
    folders = _noted_folders(fields, members)
    return OmeZarrLayout(Plan(levels=levels, member_axes=members), options, folders), fields.flag("complete")


def _noted_folders(fields: Fields, members: tuple[str, ...]) -> ImageFolders:
    planned = fields.integers("planned", len(members))
    wells = fields.texts("wells") if "wells" in fields else ()
    if wells and not (has_fields(members, planned) and len(wells) <= MAX_MEMBERS and all(map(is_well, wells))):
        raise fields.wrong("wells", 'paths such as "A/1", one for each position')
    return ImageFolders(members, planned, wells)


def _noted_level(level: Fields, array: ArraySpec, members: int) -> ArraySpec:
    found = read_level(level, array)
    if has_too_many(found.shape[:members]):
        raise level.wrong("shape", "at most a million images")
    return found


@dataclass(frozen=True)
class OmeZarrLayout(ChunkLayout):
    """`create_layout` makes that of a new container. folders are those of its images; present: members that exist."""

    options: OmeZarrOptions
    folders: ImageFolders
    present: frozenset[Position] = frozenset()

    keys: ClassVar[KeyEncoding] = KeyEncoding()
    version: ClassVar[str] = docs.VERSION
    announces_indices: ClassVar[bool] = True

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout."""
        return 0 if self.options.is_raw else 2 * spec.chunk_bytes + self.options.compression.working_bytes

    @property
    def needs(self) -> Capability:
        """See ChunkLayout."""
        return "in_place" if self._is_in_place else "whole"

    def with_members(self, members: Collection[Position]) -> Self:
        """See ChunkLayout."""
        return replace(self, present=frozenset(members)) if self.folders.wells else self

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout: the shard, which has many chunks of the engine if it is raw."""
        spec, members = self.plan.levels[level], len(self.plan.member_axes)
        shard = [at // count for at, count in zip(position, _shard_counts(spec), strict=True)]
        return "/".join((*self.folders.parts(position[:members]), str(level), self.keys.key(shard[members:])))

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout: the first chunk of the shard."""
        members, parts = len(self.plan.member_axes), key.split("/")
        ndim = len(self.plan.full.axes) - members
        count = ndim + self.keys.has_prefix  # of the parts of a chunk's own key
        if len(parts) <= count:
            return None
        *image, level = parts[:-count]
        if level not in map(str, range(len(self.plan.levels))):
            return None
        spec = self.plan.levels[int(level)]
        shard, member = self.keys.parse("/".join(parts[-count:]), ndim), self.folders.member(image)
        if shard is None or member is None:
            return None
        counts = _shard_counts(spec)[members:]
        return int(level), (*member, *(at * count for at, count in zip(shard, counts, strict=True)))

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Raw chunks in little-endian are not copied."""
        return self.encode_present(level, position, chunk, np.zeros((1,) * len(self.plan.full.axes), np.bool_))

    def encode_present(
        self, level: int, position: Position, chunk: NDArray[np.generic], present: NDArray[np.bool_]
    ) -> Encoded:
        """See ChunkLayout. Chunks of zeros without frames are left out of a compressed shard."""
        spec, codecs = self.plan.levels[level], self.codecs(level)
        self.check_chunk(level, position, chunk)
        if not spec.block_shape or self._is_in_place:
            whole = ChunkCodecs(chunk.shape, codecs.dtype, codecs.compressors)
            return [whole.encode(chunk)]
        blocks = chunk.reshape(-1, *codecs.shape)
        index = IndexCodec(len(blocks))
        extents = np.full((len(blocks), 2), MISSING, np.uint64)
        encoded: list[bytes | memoryview] = []
        end = 0
        kept = _blocks_with(present, position, spec)
        for number, block in enumerate(blocks):
            if kept[number] or block.item(0) or block.any():  # `any` converts all of a chunk, and few begin with a zero
                encoded.append(codecs.encode(block))
                extents[number] = end, len(encoded[-1])
                end += len(encoded[-1])
        return [*encoded, index.encode(extents)]

    def in_place(self, level: int, position: Position, encoded: Encoded) -> InPlace:
        """See ChunkLayout. The index is the same for all shards of a level, and exists from the shard's birth on."""
        spec, codecs = self.plan.levels[level], self.codecs(level)
        index, number = _index_of(spec), _number_in_shard(spec, position)
        end = index.count * codecs.raw_bytes
        tail = [index.consecutive(codecs.raw_bytes)]
        return InPlace([(number * spec.chunk_bytes, encoded)], [], end + index.length, tail)

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        spec, codecs = self.plan.levels[level], self.codecs(level)
        if not spec.block_shape:
            return codecs.decode(data, where)
        index = _index_of(spec)
        extents = index.decode(data[-index.length :], len(data), where)
        if self._is_in_place:
            number, count = _number_in_shard(spec, position), spec.chunk_bytes // codecs.raw_bytes
            extents = extents[number * count : (number + 1) * count]
        found = np.zeros((len(extents), *codecs.shape), spec.dtype)
        for number, (offset, length) in enumerate(extents.tolist()):
            if offset != MISSING:
                found[number] = codecs.decode(data[offset : offset + length], where)
        return found.reshape(spec.memory_shape)

    def raw_head(self, level: int, position: Position) -> bytes | None:
        """See ChunkLayout. A raw chunk that is a file of its own has no header, and its full size at the end, too."""
        del level, position
        return b"" if self.options.is_raw and not self.options.is_sharded else None

    def member_of(self, key: str) -> Position | None:
        """See ChunkLayout: documents of an image lie in its folder, in those of its levels, and in a plate above it."""
        *folders, _ = key.split("/")
        for parts in (folders, folders[:-1]):
            member = self.folders.member(parts)
            if member is not None:
                return member
        return self.folders.first_in(folders)

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        own = self._own_attributes(complete=complete)
        if self.folders.wells:
            return self._plate_documents(own, complete=complete)
        if self.plan.member_axes:
            return self.group((), {"bioformats2raw.layout": 3}, **own)
        return self.group((), self._image(self.plan.levels, self.plan.name), **own)

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout: row and well in a plate, the arrays of an image, then its group."""
        folders = self.folders.parts(member)
        levels = [self.image_level(level) for level in self.plan.member_levels(member)]
        found = dict(self.well_documents(member))
        for number in range(len(levels)):
            found.update(self._array_documents((*folders, str(number)), self.array(number)))
        image = self._image(levels, image_name(self.plan, member))
        if folders and image is not None:
            found.update(self.group(folders, image))
        return found

    def well_documents(self, member: Position) -> Mapping[str, bytes]:
        """Those of the row and the well that an image lies in; the well lists all planned fields. {} without a well."""
        well = self.folders.well(member)
        if not well:
            return {}
        row, _ = well.split("/")
        return {**self.group((row,), None), **self._well(well, self.folders.fields()[well])}

    def group(self, folders: Sequence[str], ome: Mapping[str, Any] | None, **others: Any) -> Mapping[str, bytes]:
        """The documents of a group with metadata of OME, and attributes beside them."""
        return {docs.document_key(*folders): docs.encode(docs.group(ome, **others))}

    @property
    def member_version(self) -> Hashable:
        """See ChunkLayout."""
        members = len(self.plan.member_axes)
        levels = [(level.shape[members:], level.scale, level.units, level.translation) for level in self.plan.levels]
        full = self.plan.full
        labels = tuple((name, tuple(labels)) for name, labels in full.labels.items())
        return (*levels, full.places, repr(full.own), full.looks, full.bits, labels)

    def listings(self, container_name: str) -> Mapping[str, bytes]:
        """See ChunkLayout: the series, and their names and sizes for readers of Bio-Formats."""
        if not self.plan.member_axes or self.folders.wells:
            return {}
        images = sorted((int(self.folders.parts(member)[0]), member) for member in self.plan.members())
        part = member_part(self.plan.full, len(self.plan.member_axes))
        return {
            f"{docs.SERIES_FOLDER}/{docs.XML_NAME}": docs.ome_xml(
                [(image_name(self.plan, member), part) for _, member in images]
            ),
            **self.group((docs.SERIES_FOLDER,), {"series": [str(number) for number, _ in images]}),
        }

    def resume_keys(self) -> Sequence[str]:
        """See ChunkLayout: the note, and the arrays of the first image."""
        return [docs.document_key(), *(self._array_key(number) for number in range(len(self.plan.levels)))]

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        key = docs.document_key()
        fields = parse_fields(documents[key], f"{where}/{key}")
        if not has_note(fields.values.get("attributes")):
            raise DatasetExists(f"{where} exists and is not an OME-Zarr container of acqstream")
        found, complete = parse_note(fields.child("attributes"))
        own = self.plan.levels
        options = self.options.resumed(found.options)
        if (found.plan.levels[0].axes, found.options) != (own[0].axes, options):
            text = f"axes {found.plan.levels[0].axes}, {found.options.to_json()}"
            raise DatasetExists(f"{where} exists with {text}, expected {own[0].axes}, {options.to_json()}")
        if found.plan.levels[0].dtype != own[0].dtype:
            raise DatasetExists(f"{where} exists with items of {found.plan.levels[0].dtype}, expected {own[0].dtype}")
        if [level.factors for level in found.plan.levels] != [level.factors for level in own]:
            raise DatasetExists(
                f"{where} exists with {len(found.plan.levels)} levels, expected {len(own)}, or other factors"
            )
        for number in range(len(own)):
            key = self._array_key(number)
            if key in documents:
                _check_shards(self.array(number), parse_array(documents[key], f"{where}/{key}"), f"{where}/{key}")
        plan = self.plan.resumed(found.plan.levels, complete=complete)
        return replace(self, plan=plan, options=options, folders=found.folders), complete

    def check_growth(self, shape: Sequence[int]) -> None:
        """See ChunkLayout."""
        members = len(self.plan.member_axes)
        if has_too_many(shape[:members]):
            raise ConfigError(f"OME-Zarr: {', '.join(self.plan.member_axes)} of {tuple(shape)} are too many images")
        self.folders.check(shape[:members])

    def image_level(self, level: ArraySpec) -> ArraySpec:
        """A level without the axes that separate images."""
        return member_part(level, len(self.plan.member_axes))

    def codecs(self, level: int) -> ChunkCodecs:
        """The codecs of a chunk of an image."""
        spec, members = self.plan.levels[level], len(self.plan.member_axes)
        shape = (spec.block_shape or spec.chunk_shape)[members:]
        return ChunkCodecs(shape, spec.dtype.newbyteorder("<"), self.options.compressors)

    def array(self, level: int) -> ZarrArray:
        """A level of an image."""
        spec = member_part(self.plan.levels[level], len(self.plan.member_axes))
        return ZarrArray(
            shape=spec.shape,
            codecs=self.codecs(level),
            shard_shape=spec.shard_shape,
            index=_index_of(spec) if spec.shard_shape else None,
            dimension_names=tuple(image_axis(axis).name for axis in spec.axes),
        )

    def _own_attributes(self, *, complete: bool) -> Mapping[str, Any]:
        """Those of the container beside its metadata of OME."""
        return {KEY: note_to_json(self, complete=complete)}

    def _array_documents(self, folders: Sequence[str], array: ZarrArray) -> Mapping[str, bytes]:
        return {docs.document_key(*folders): docs.encode(array_document(array))}

    def _image(self, levels: Sequence[ArraySpec], name: str) -> Mapping[str, Any] | None:
        """The metadata of an image; None without an item: viewers find it only when it has its first frames."""
        return None if 0 in levels[0].shape else docs.image_metadata(levels, name)

    def _array_key(self, level: int) -> str:
        """The document of a level of the first image."""
        first = (0,) * len(self.plan.member_axes)
        return docs.document_key(*self.folders.parts(first), str(level))

    @property
    def _is_in_place(self) -> bool:
        return self.options.is_sharded and self.options.is_raw

    def _plate_documents(self, attributes: Mapping[str, Any], *, complete: bool) -> Mapping[str, bytes]:
        """The wells of a complete plate with the fields that exist, then the plate.

        A growing one lists a well when all its fields exist, so that readers find what is listed.
        """
        plan, folders = self.plan, self.folders
        fields = folders.fields(plan.full.shape[plan.full.axes.index(POSITION)]) if complete else folders.fields()
        values = plan.full.axis_values.get(POSITION)  # None: a position without a frame is no well, as planned as it be
        at = plan.full.axes.index(POSITION)
        members = [
            member
            for member in (plan.members() if complete else self.present)
            if values is None or (member[at] < len(values) and values[member[at]] is not None)
        ]
        existing = Counter(map(folders.well, members))
        if complete:
            fields = Counter({well: count for well, count in fields.items() if existing[well]})
            existing |= fields
        is_empty = 0 in plan.full.shape[len(plan.member_axes) :]
        listed = [well for well, count in fields.items() if count <= existing[well] and not is_empty]
        found: dict[str, bytes] = {}
        for well in listed if complete else ():
            found.update(self._well(well, fields[well]))
        plate = plate_metadata(fields, listed, plan.full.attributes, self.version)
        return {**found, **self.group((), {"plate": plate}, **attributes)}

    def _well(self, well: str, fields: int) -> Mapping[str, bytes]:
        return self.group(well.split("/"), {"well": well_metadata(fields, self.version)})


def create_layout(plan: Plan, options: OmeZarrOptions) -> OmeZarrLayout:
    """The layout of a new container."""
    return OmeZarrLayout(plan, options, plan_folders(plan, options))


def plan_folders(plan: Plan, options: OmeZarrOptions) -> ImageFolders:
    """The folders of the images of a new container."""
    planned = plan.member(plan.full.shape)
    wells = planned_wells(plan.full) if options.is_plate and has_fields(plan.member_axes, planned) else ()
    return ImageFolders(plan.member_axes, planned, wells)


def image_name(plan: Plan, member: Position) -> str:
    """The name of an image: labels of its place, else axis and number."""
    parts = []
    for axis, at in zip(plan.member_axes, member, strict=True):
        labels = plan.full.labels.get(axis, ())
        parts.append(labels[at] if at < len(labels) and labels[at] else f"{axis} {at}")
    return ", ".join(parts)


def _index_of(spec: ArraySpec) -> IndexCodec:
    """The codec for the index of a shard."""
    steps = zip(spec.shard_shape, spec.block_shape, strict=True)
    return IndexCodec(math.prod(size // step for size, step in steps))


def _check_shards(own: ZarrArray, found: ZarrArray, where: str) -> None:
    """Raise CorruptDataset for an array in other chunks or shards: earlier versions did not cut large planes."""
    expected, stored = ((array.chunk_shape, array.shard_shape) for array in (own, found))
    if stored != expected:
        text = "has chunks of {} in shards of {}, expected {} in {}"
        raise CorruptDataset(text.format(*stored, *expected), path=where)


def _blocks_with(present: NDArray[np.bool_], position: Position, spec: ArraySpec) -> NDArray[np.bool_]:
    """Which blocks of a shard have frames inside the picture, in C order."""
    counts = [size // block for size, block in zip(spec.chunk_shape, spec.block_shape, strict=True)]
    split = [
        part
        for size, block in zip(present.shape, spec.block_shape, strict=True)
        for part in (-(-size // block), min(size, block))
    ]
    found = np.broadcast_to(present.reshape(split).any(axis=tuple(range(1, len(split), 2))), counts).copy()
    for axis in (spec.axes.index("y"), spec.axes.index("x")):
        inside = -(-(spec.shape[axis] - position[axis] * spec.chunk_shape[axis]) // spec.block_shape[axis])
        found[(slice(None),) * axis + (slice(max(0, inside), None),)] = False
    return found.reshape(-1)


def _shard_counts(spec: ArraySpec) -> list[int]:
    """How many chunks of the engine an object has along each axis."""
    return [size // step for size, step in zip(spec.object_shape, spec.chunk_shape, strict=True)]


def _number_in_shard(spec: ArraySpec, position: Position) -> int:
    """The number of a chunk of the engine in its shard."""
    counts = _shard_counts(spec)
    return member_number([at % count for at, count in zip(position, counts, strict=True)], counts, "rows")
