"""The layout of an N5 container: how an array is cut into blocks, and where each block lies. Pure.

A block is a file of its own, written in full size; at the end of the array it is padded with zeros. So an array becomes
longer without any block written again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.array_members import Numbering, is_plain_number
from acqstream.formats.chunk_layout import BESIDE, ChunkLayout, Encoded, Plan
from acqstream.formats.compression import N5_COMPRESSION, Compressor
from acqstream.formats.level_plan import check_axes, chunk_shape, halved_plane, reduced_levels
from acqstream.formats.n5.bdv_xml import make_xml, xml_name
from acqstream.formats.n5.codec import decode_block, encode_items, make_header
from acqstream.formats.n5.member_folders import (
    COMPONENT,
    SPATIAL,
    TIME,
    N5Options,
    folder_axes,
    group_folder,
    has_too_many,
    level_folder,
    may_grow,
    numbering_of,
    parse_group_folder,
    too_many_text,
)
from acqstream.formats.n5.metadata import (
    MAX_BLOCK_BYTES,
    DatasetAttributes,
    MemberDocuments,
    attributes_key,
    container_document,
    dtype_name,
    is_dataset,
    member_documents,
    parse_attributes,
    parse_dataset,
    parse_notes,
)
from acqstream.grid.block_sizes import reduced_shape

_Z_EXTENT = 16
_SIDE, _SIDE_OF_PLANES = 512, 1024  # in y and x: 8 MiB of 16 bit, 2 MiB where a block is one plane


@dataclass(frozen=True)
class N5Layout(ChunkLayout):
    """`create_layout` makes that of a new container."""

    options: N5Options
    numbering: Numbering

    byte_order: ClassVar[Literal["<", ">"]] = ">"

    @property
    def needs_distances(self) -> bool:
        """See ChunkLayout: the XML file does."""
        return self.options.layout == "bdv"

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout: the items in big-endian, the codec's own memory and its result."""
        swapped = spec.chunk_bytes if spec.dtype.itemsize > 1 else 0
        compression = self.options.compression
        if compression.name == "raw":
            return swapped
        return swapped + 2 * spec.chunk_bytes + SPARE_BYTES + compression.working_bytes

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout. The names of the last three folders and the file are numbers, x first."""
        leading = len(self.plan.member_axes)
        group = self._group(position[:leading])
        return "/".join((*group, level_folder(level), *map(str, reversed(position[leading:]))))

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout."""
        full = self.plan.full
        count = len(full.axes) - len(self.plan.member_axes)
        parts = key.split("/")
        if len(parts) <= count:
            return None
        *folders, level_name = parts[:-count]
        names = parts[-count:]
        member = parse_group_folder(self.options.layout, full.axes, full.shape, folders, self.numbering)
        levels = {level_folder(number): number for number in range(len(self.plan.levels))}
        if member is None or level_name not in levels or not all(map(is_plain_number, names)):
            return None
        return levels[level_name], (*member, *map(int, reversed(names)))

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Chunks in big-endian are not copied."""
        spec = self.plan.levels[level]
        self.check_chunk(level, position, chunk)
        header = make_header(spec.chunk_shape[len(self.plan.member_axes) :])
        return header, memoryview(self.options.compression.encode(encode_items(chunk), spec.dtype.itemsize))

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        spec, leading = self.plan.levels[level], len(self.plan.member_axes)
        attributes = DatasetAttributes(
            dimensions=spec.shape[leading:][::-1],
            block_size=spec.chunk_shape[leading:][::-1],
            dtype=spec.dtype,
            compression=self.options.compression.name,
        )
        block = decode_block(data, attributes, spec.chunk_shape[leading:], where)
        return block.reshape(spec.chunk_shape)

    def raw_head(self, level: int, position: Position) -> bytes | None:
        """See ChunkLayout. A raw block has its full size, also at the end of the array."""
        del position
        if self.options.compression.name != "raw":
            return None
        return make_header(self.plan.levels[level].chunk_shape[len(self.plan.member_axes) :])

    def check_growth(self, shape: Sequence[int]) -> None:
        """See ChunkLayout."""
        full, layout = self.plan.full, self.options.layout
        if has_too_many(layout, full.axes, shape):
            raise ConfigError(too_many_text(layout))
        for axis, (before, after) in enumerate(zip(full.shape, shape, strict=False)):
            if after > before and not may_grow(layout, full.axes, axis, self.numbering):
                text = f"N5 layout {layout} cannot get longer along {full.axes[axis]!r}: it was declared with {before}"
                raise ConfigError(f"{text}, and setups are numbered by that. Made again afterwards the mirror has all")

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        documents = self._member_documents
        if self._has_own_documents:
            documents = member_documents(self.plan.member_levels(member), self.options)
        return documents.of_group(self._group(member))

    @property
    def member_version(self) -> Hashable:
        """See ChunkLayout."""
        full = self.plan.full
        return self._member_documents, (full.places, repr(full.own)) if self._has_own_documents else ()

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        content = container_document(self.plan.levels, self.options, self.numbering, complete=complete)
        return {attributes_key(()): content}

    def listings(self, container_name: str) -> Mapping[str, bytes]:
        """See ChunkLayout. BigDataViewer's XML file, and the attributes of every setup in it: it looks at each."""
        if self.options.layout != "bdv":
            return {}
        full = self.plan.full
        shape = [1 if axis == TIME else size for axis, size in zip(full.axes, full.shape, strict=True)]
        first_times = self.plan.with_levels([replace(full, shape=tuple(shape))])
        found = {attributes_key(self._group(one)[:1]): self._member_documents.setup for one in first_times.members()}
        return {
            **found,
            BESIDE + xml_name(container_name): make_xml(full, container_name, self.numbering, self.plan.name),
        }

    def resume_keys(self) -> Sequence[str]:
        """See ChunkLayout."""
        first = self._group((0,) * len(self.plan.member_axes))
        levels = range(len(self.plan.levels))
        return [attributes_key(()), *(attributes_key((*first, level_folder(level))) for level in levels)]

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        own, *of_levels = self.resume_keys()
        notes = parse_notes(parse_attributes(documents[own], f"{where}/{own}"))
        full = self.plan.full
        if notes is None or (notes.layout, notes.axes) != (self.options.layout, full.axes):
            text = f"not an N5 container of acqstream with layout {self.options.layout} and axes {full.axes}"
            raise DatasetExists(f"{where} exists and is {text}")
        compression = self.options.compression
        for level, key in enumerate(of_levels):
            if key in documents:
                compression = self._resumed_compression(compression, level, documents[key], f"{where}/{key}")
        existing = [replace(level, shape=reduced_shape(notes.shape, level.factors)) for level in self.plan.levels]
        plan = self.plan.resumed(existing, complete=notes.complete)
        options = replace(self.options, compression=compression)
        return replace(self, plan=plan, options=options, numbering=notes.numbering), notes.complete

    def _group(self, member: Sequence[int]) -> tuple[str, ...]:
        full = self.plan.full
        return group_folder(self.options.layout, full.axes, full.shape, member, self.numbering)

    @property
    def _has_own_documents(self) -> bool:
        """True if members differ. Places of layout bdv are in the XML file: BigStitcher may have moved them there."""
        return self.options.layout == "multiscale" or bool(self.plan.full.own)

    @cached_property
    def _member_documents(self) -> MemberDocuments:
        return member_documents(self.plan.levels, self.options)

    def _resumed_compression(self, asked: Compressor, level: int, document: bytes, path: str) -> Compressor:
        """The compression of existing blocks. Raises DatasetExists if they are cut or encoded in another way."""
        attributes = parse_attributes(document, path)
        if not is_dataset(attributes):
            return asked
        spec, found = self.plan.levels[level], parse_dataset(attributes, path)
        existing = attributes.get("compression")
        try:
            compression = asked.resumed(N5_COMPRESSION.parse(existing))
        except ConfigError as error:
            raise DatasetExists(f"{path}: {error}") from error
        expected = (spec.chunk_shape[len(self.plan.member_axes) :], spec.dtype)
        if (found.chunk_shape, found.dtype) != expected or existing != compression.to_json():
            blocks = f"blocks of {found.chunk_shape} of {found.dtype}, {existing}"
            text = f"{expected[0]} of {expected[1]}, {compression.to_json()}"
            raise DatasetExists(f"{path}: holds {blocks}, expected {text}")
        return compression


def create_layout(plan: Plan, options: N5Options) -> N5Layout:
    """The layout of a new container; plan is that of `plan`."""
    return N5Layout(plan, options, numbering_of(options.layout, plan.full.axes, plan.full.shape))


def plan(array: ArraySpec, options: N5Options) -> Plan:
    """Cut an array into blocks. The order of axes is: the others, c of RGB, z (added with extent 1 if missing), y, x.

    Lower levels have floor(size / factor) items along an axis, at least 1. A size of 0 is not known yet. Raises
    ConfigError for an array without y or x, for a dtype that N5 does not have, and for blocks that are too large.
    """
    if dtype_name(array.dtype) is None:
        raise ConfigError(f"N5 has no items of dtype {array.dtype}")
    full = _ordered(array)
    blocks = options.blocks or _default_blocks(full)
    full = replace(full, chunk_shape=chunk_shape(full, dict(zip(SPATIAL, blocks, strict=True))))
    if full.chunk_bytes > MAX_BLOCK_BYTES:
        sides = [*full.chunk_shape[-3:]]
        raise ConfigError(f"N5 blocks of {sides} of {full.dtype} (z, y, x) are larger than {MAX_BLOCK_BYTES} bytes")
    if has_too_many(options.layout, full.axes, full.shape):
        raise ConfigError(f"{too_many_text(options.layout)} ({', '.join(full.axes)}: {full.shape})")
    _, height, width = full.chunk_shape[-3:]
    levels = reduced_levels(full, options.levels, (height, width), partial(_next_factors, options))
    leading = folder_axes(options.layout, full.axes)
    return Plan(levels=tuple(levels), member_axes=full.axes[:leading])


def _ordered(array: ArraySpec) -> ArraySpec:
    """The same array with its axes in our order; z added where there is none."""
    check_axes("N5", array.axes)
    others = [name for name in array.axes if name not in (*SPATIAL, COMPONENT)]
    names = (*others, *((COMPONENT,) if COMPONENT in array.axes else ()), *SPATIAL)
    return array.ordered(names)


def _default_blocks(full: ArraySpec) -> tuple[int, int, int]:
    depth = min(_Z_EXTENT, full.shape[-3] or _Z_EXTENT)
    side = _SIDE if depth > 1 else _SIDE_OF_PLANES
    return depth, side, side


def _next_factors(options: N5Options, last: ArraySpec) -> tuple[int, ...]:
    """Twice those of the last level along the axes with the smallest items: anisotropic ones become isotropic."""
    finest = min(last.scale[-2:])
    has_neighbours = last.shape[-3] != 1 and not last.is_uneven("z")
    halve_z = options.downsample == "xyz" and has_neighbours and last.scale[-3] < 2 * finest
    *leading, z, y, x = halved_plane(last)
    return (*leading, 2 * z if halve_z else z, y, x)
