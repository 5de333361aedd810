"""The layout of a container of precomputed volumes: how an array is cut into chunks, and where each lies. Pure.

A chunk is a file named after its voxels, whose ends are cut at the size of the scale. Along y and x the size is known
from the start. Along z it may grow: the last chunk is cut at the size that was declared when the container was made,
and no chunk is cut without one. So the name of a chunk never changes. Otherwise `info` states complete chunks along z.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.codecs.images import JPEG_CHANNELS, MAX_JPEG_SIDE, PNG_CHANNELS, load_pillow
from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import ConfigError, DatasetExists, UnsupportedFeature
from acqstream.formats.array_members import MAX_MEMBERS, has_too_many
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.array_options import MAX_LEVELS
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan
from acqstream.formats.level_plan import check_axes, chunk_shape, reduced_levels
from acqstream.formats.precomputed.codec import (
    JPEG_DTYPES,
    LABEL_DTYPES,
    MAX_LABEL_VOXELS,
    PNG_DTYPES,
    decode_chunk,
    encode_chunk,
    max_chunk_bytes,
)
from acqstream.formats.precomputed.metadata import (
    COMPONENT,
    DEFAULT_QUALITY,
    DTYPES,
    ENCODINGS,
    INFO_NAME,
    MAX_CHUNK_BYTES,
    NOTE_FORMAT,
    NOTE_NAME,
    WRITTEN_DTYPES,
    Encoding,
    PrecomputedOptions,
    Scale,
    VolumeInfo,
    encode_info,
    is_note,
    is_single,
    member_count,
    member_folder,
    parse_member_folder,
    stored_axes,
)
from acqstream.formats.precomputed.shard_slots import MAX_SLOTS, MAX_Z_BITS, ShardSlots
from acqstream.formats.precomputed.sharding import Three, encode_sharding, parse_sharding
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

_RANGE = r"(-?[0-9]{1,20})-(-?[0-9]{1,20})"
_NAME = re.compile(f"{_RANGE}_{_RANGE}_{_RANGE}")


def chunk_name(starts: Sequence[int], ends: Sequence[int]) -> str:
    """The name of the file with these voxels; items in the order x, y, z."""
    return "_".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def parse_chunk_name(name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Starts and ends in a name; None if it is not that of a chunk."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    numbers = [*map(int, found.groups())]
    starts, ends = tuple(numbers[::2]), tuple(numbers[1::2])
    return (starts, ends) if chunk_name(starts, ends) == name else None


NM_PER_UNIT = {"nm": 1.0, "um": 1e3, "µm": 1e3, "μm": 1e3, "mm": 1e6, "cm": 1e7, "m": 1e9, "angstrom": 0.1}
NM_PER_UNIT |= {"nanometer": 1.0, "micrometer": 1e3, "micron": 1e3, "millimeter": 1e6, "meter": 1e9}
_BLOCK = 8  # voxels a side, of compressed segmentation


def scale_folder(level: int) -> str:
    """The folder of a level in its volume, which is the scale's key. Resolutions may be known later than chunks."""
    return f"s{level}"


def block_of(level: ArraySpec) -> tuple[int, int, int]:
    """Blocks (z, y, x) of compressed segmentation, not larger than a chunk."""
    z, y, x = (min(_BLOCK, side) for side in level.chunk_shape[-3:])
    return z, y, x


def announced_depth(size: int, step: int, depth: int) -> int:
    """The size along z that `info` states: `size`, with the remainder of its last chunk of `step` planes.

    depth is the size at which the last chunk is cut, 0 for none.
    """
    full = -(-size // step) * step
    return min(full, depth) if size <= depth else full


def volume_info(
    levels: Sequence[ArraySpec], encoding: Encoding, depth: int, shards: Sequence[ShardSlots] = ()
) -> VolumeInfo | None:
    """The volume of each member; None while the full resolution has no items: no reader accepts a size of 0.

    shards are those of each level; empty: a file for each chunk.
    """
    full = levels[0]
    scales = []
    for number, level in enumerate(levels):
        if 0 in level.shape[member_count(level.axes) :]:
            break
        scale = _scale(number, level, encoding, depth)
        scales.append(_in_shards(scale, shards[number], depth) if shards else scale)
    if not scales:
        return None
    channels = full.shape[-4] if full.axes[-4:-3] == (COMPONENT,) else 1
    kind = "segmentation" if encoding == "compressed_segmentation" else "image"
    return VolumeInfo(kind, full.dtype.newbyteorder("="), channels, tuple(scales))


def _scale(number: int, level: ArraySpec, encoding: Encoding, depth: int) -> Scale:
    size, height, width = level.shape[-3:]
    step = level.chunk_shape[-3]
    return Scale(
        key=scale_folder(number),
        size=(width, height, announced_depth(size, step, depth)),
        offset=(0, 0, 0),
        resolution=_resolution(level),
        chunk=_reversed(level.chunk_shape[-3:]),
        encoding=encoding,
        block=_reversed(block_of(level)),
    )


def _in_shards(scale: Scale, shards: ShardSlots, depth: int) -> Scale:
    """The same scale; as deep as readers need it to find the ids of its chunks."""
    x, y, z = scale.size
    least = shards.min_depth * scale.chunk[2]
    return replace(scale, size=(x, y, max(z, min(least, depth or least))), sharding=shards.sharding)


def _resolution(level: ArraySpec) -> tuple[float, float, float]:
    """Distances (x, y, z) in nm; 1 for each item of the full resolution along an axis without a known length."""
    sides = zip(level.scale[-3:], level.units[-3:], level.factors[-3:], strict=True)
    z, y, x = (_nanometers(scale, unit, factor) for scale, unit, factor in sides)
    return x, y, z


def _nanometers(scale: float, unit: str, factor: int) -> float:
    size = scale * NM_PER_UNIT.get(unit, 0.0)
    # Binary fractions of decimal distances (0.65 um) would make 650.0000000000001.
    return float(f"{size:.12g}") if math.isfinite(size) and size > 0 else float(factor)


def _reversed(values: Sequence[int]) -> Three:
    z, y, x = values
    return x, y, z


_VOXEL_MEMORY = 160  # bytes that encoding a voxel as compressed segmentation takes at most, padding included


@dataclass(frozen=True)
class PrecomputedLayout(ChunkLayout):
    """`create_layout` makes that of a new container, `parse_note` that of an existing one.

    depth: the size along z, or time in its place, at which the last chunks are cut; 0: none is cut. is_single: the
    container is one volume. shards: those of each level; empty: a file for each chunk.
    """

    encoding: Encoding
    depth: int
    is_single: bool
    shards: tuple[ShardSlots, ...] = ()
    jpeg_quality: int = DEFAULT_QUALITY

    announces_indices: ClassVar[bool] = True
    names_picture: ClassVar[bool] = True

    @property
    def needs_distances(self) -> bool:
        """See ChunkLayout: `info` does."""
        return True

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout: its part inside the scale, and what the encoding needs."""
        if self.encoding == "compressed_segmentation":
            return _VOXEL_MEMORY * math.prod(spec.chunk_shape) + SPARE_BYTES
        return spec.chunk_bytes if self.encoding == "raw" else 5 * spec.chunk_bytes + SPARE_BYTES

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout."""
        spec = self.plan.levels[level]
        starts = [at * step for at, step in zip(position, spec.chunk_shape, strict=True)][-3:]
        ends = [start + size for start, size in zip(starts, self._extent(level, position)[1:], strict=True)]
        folder = self._folder(position[: self._leading])
        return f"{folder}{scale_folder(level)}/{chunk_name(starts[::-1], ends[::-1])}"

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout."""
        folder, _, name = key.rpartition("/")
        above, _, scale = folder.rpartition("/")
        found, levels = parse_chunk_name(name), {scale_folder(at): at for at in range(len(self.plan.levels))}
        member = self._parse_folder(f"{above}/" if above else "")
        if found is None or scale not in levels or member is None:
            return None
        spec = self.plan.levels[levels[scale]]
        places = [start // step for start, step in zip(found[0][::-1], spec.chunk_shape[-3:], strict=True)]
        components = (0,) * (len(spec.axes) - len(member) - 3)
        position = (*member, *components, *places)
        is_inverse = min(places) >= 0 and self.key(levels[scale], position) == key
        return (levels[scale], position) if is_inverse else None

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Raw chunks in little-endian that are not cut are not copied."""
        spec = self.plan.levels[level]
        self.check_chunk(level, position, chunk)
        extent = self._extent(level, position)
        inside = chunk.reshape(extent[0], *spec.chunk_shape[-3:])[tuple(slice(0, size) for size in extent)]
        return encode_chunk(inside, self.encoding, block_of(spec), self.jpeg_quality)

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        spec, extent = self.plan.levels[level], self._extent(level, position)
        part = decode_chunk(data, extent, spec.dtype, (self.encoding, block_of(spec)), where)
        if math.prod(extent) == math.prod(spec.chunk_shape):
            return part.reshape(spec.chunk_shape)
        chunk = np.zeros((extent[0], *spec.chunk_shape[-3:]), spec.dtype)
        chunk[tuple(slice(0, size) for size in extent)] = part
        return chunk.reshape(spec.chunk_shape)

    def raw_head(self, level: int, position: Position) -> bytes | None:
        """See ChunkLayout. A raw chunk has no header."""
        extent, shape = self._extent(level, position), self.plan.levels[level].chunk_shape
        is_cut = math.prod(extent) != math.prod(shape)
        return b"" if self.encoding == "raw" and not self.shards and not is_cut else None

    def member_of(self, key: str) -> Position | None:
        """See ChunkLayout."""
        folder, found, rest = key.rpartition(INFO_NAME)
        return self._parse_folder(folder) if found and not rest else None

    def max_chunk_bytes(self, level: int) -> int:
        """See ChunkLayout."""
        spec = self.plan.levels[level]
        shape = (math.prod(spec.chunk_shape[:-3]), *spec.chunk_shape[-3:])
        return max_chunk_bytes(shape, spec.dtype, (self.encoding, block_of(spec)))

    def check_growth(self, shape: Sequence[int]) -> None:
        """See ChunkLayout."""
        axes, step = self.plan.full.axes, self.plan.full.chunk_shape[-3]
        if has_too_many(shape[: self._leading]):
            raise ConfigError(f"precomputed: {axes} of {tuple(shape)} are more than a million volumes")
        again = "Rebuilt afterwards the mirror has all"
        if self.is_single and not is_single(axes, shape):
            raise ConfigError(f"precomputed: {axes} of {tuple(shape)}, but one volume was declared. {again}")
        if self.depth and shape[-3] > self.depth and self.depth % step:
            text = f"precomputed cannot get longer along {axes[-3]!r}: it was declared with {self.depth}"
            raise ConfigError(f"{text}, where the last chunk of {step} is cut. {again}")

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout. Empty until the array has items."""
        info = self._info_of(self.plan.member_levels(member)) if self.plan.full.own else self._info
        return {self._folder(member) + INFO_NAME: info} if info else {}

    @property
    def member_version(self) -> Hashable:
        """See ChunkLayout."""
        return self._info, repr(self.plan.full.own)

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        return {NOTE_NAME: encode_note(self, complete=complete)}

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        content = documents[NOTE_NAME]
        if not is_note(content):
            raise DatasetExists(f"{where} exists and is not a container of precomputed volumes of acqstream")
        found, complete = parse_note(content, f"{where}/{NOTE_NAME}")
        ours, theirs = (_kind(one.plan.levels, self._leading) for one in (self, found))
        if (ours, self.encoding, self.shards) != (theirs, found.encoding, found.shards):
            text = f"{found.encoding} chunks of {theirs} {_told(found.shards)}"
            expected = f"{self.encoding} chunks of {ours} {_told(self.shards)}"
            raise DatasetExists(f"{where} exists with {text}; expected {expected}")
        plan = self.plan.resumed(found.plan.levels, complete=complete)
        resumed = replace(self, plan=plan, depth=found.depth, is_single=found.is_single)
        resumed.check_growth(plan.full.shape)
        return resumed, complete

    @property
    def _leading(self) -> int:
        return len(self.plan.member_axes)

    @cached_property
    def _info(self) -> bytes:
        return self._info_of(self.plan.levels)

    def _info_of(self, levels: Sequence[ArraySpec]) -> bytes:
        info = volume_info(levels, self.encoding, self.depth)
        return b"" if info is None else encode_info(info)

    def _folder(self, member: Sequence[int]) -> str:
        return "" if self.is_single else member_folder(self.plan.full.axes, member)

    def _parse_folder(self, folder: str) -> Position | None:
        if self.is_single:
            return None if folder else (0,) * self._leading
        return parse_member_folder(self.plan.full.axes, folder)

    def _extent(self, level: int, position: Position) -> tuple[int, int, int, int]:
        """The extents (c, z, y, x) of a stored chunk: cut at the plane, and at the declared depth."""
        spec = self.plan.levels[level]
        z, y, x = (at * step for at, step in zip(position[-3:], spec.chunk_shape[-3:], strict=True))
        depth, height, width = spec.chunk_shape[-3:]
        if z < self.depth:
            depth = min(depth, self.depth - z)
        height, width = min(height, spec.shape[-2] - y), min(width, spec.shape[-1] - x)
        return math.prod(spec.chunk_shape[:-3]), depth, height, width


_VERSION, _SHARDED_VERSION = 1, 2
_MAX_AXES = 32
_MAX_EXTENT = 2**62


def encode_note(layout: PrecomputedLayout, *, complete: bool) -> bytes:
    """The content of the file. complete: nothing more will come."""
    first = layout.plan.full
    value = {
        "format": NOTE_FORMAT,
        "version": _SHARDED_VERSION if layout.shards else _VERSION,
        "complete": complete,
        "dtype": first.dtype.name,
        **note_of_array(first),
        "encoding": layout.encoding,
        "depth": layout.depth,
        "single": layout.is_single,
        "levels": [
            {
                **note_of_level(level),
                "chunks": [*level.chunk_shape],
                **({"sharding": encode_sharding(shards.sharding), "max_cells_z": shards.cells[2]} if shards else {}),
            }
            for level, shards in itertools.zip_longest(layout.plan.levels, layout.shards)
        ],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def parse_note(content: bytes, path: str) -> tuple[PrecomputedLayout, bool]:
    """The layout that the note in the file `path` describes, and whether it is complete. `noted_layout` reads shards.

    Raises CorruptDataset with the field and what was expected.
    """
    fields = parse_fields(content, path, max_integer=_MAX_EXTENT)
    version = fields.integer("version")
    if fields.text("format") != NOTE_FORMAT or version not in (_VERSION, _SHARDED_VERSION):
        raise fields.wrong("version", f"{_VERSION} or {_SHARDED_VERSION}, and format {NOTE_FORMAT}")
    axes = fields.texts("axes")
    if not 3 <= len(axes) <= _MAX_AXES or len(set(axes)) < len(axes) or stored_axes(axes) != axes:
        raise fields.wrong("axes", "those of a container: members, maybe c, z or time, y, x")
    dtype = DTYPES[fields.choice("dtype", WRITTEN_DTYPES)]
    common = read_array(fields, axes, dtype)
    levels = tuple(_noted_level(level, common) for level in fields.children("levels"))
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise fields.wrong("levels", f"1 to {MAX_LEVELS} levels")
    described = zip(fields.children("levels"), levels, strict=True) if version == _SHARDED_VERSION else ()
    layout = PrecomputedLayout(
        Plan(levels=levels, member_axes=axes[: member_count(axes)]),
        fields.choice("encoding", ENCODINGS),
        fields.integer("depth"),
        fields.flag("single"),
        tuple(_noted_shards(level, spec, path) for level, spec in described),
    )
    return layout, fields.flag("complete")


def _noted_shards(level: Fields, spec: ArraySpec, path: str) -> ShardSlots:
    sharding = parse_sharding(level.child("sharding"), path)
    y, x = (-(-size // step) for size, step in zip(spec.shape[-2:], spec.chunk_shape[-2:], strict=True))
    shards = ShardSlots(sharding, (x, y, level.integer("max_cells_z", minimum=1, maximum=2**MAX_Z_BITS)))
    if not shards.is_bounded:
        raise level.wrong("sharding", f"shards of at most {MAX_SLOTS} chunks")
    return shards


def _noted_level(level: Fields, common: ArraySpec) -> ArraySpec:
    count, leading = len(common.axes), member_count(common.axes)
    shape, chunks = level.integers("shape", count), level.integers("chunks", count, minimum=1)
    if has_too_many(shape[:leading]) or math.prod(shape) >= 2**63:
        raise level.wrong("shape", f"at most {MAX_MEMBERS} volumes and fewer than 2^63 items")
    has_all = common.axes[leading] != COMPONENT or chunks[leading] == max(1, shape[leading])
    if not (set(chunks[:leading]) <= {1} and has_all and math.prod(chunks) * common.dtype.itemsize <= MAX_CHUNK_BYTES):
        raise level.wrong("chunks", f"chunks of one volume with all of c, at most {MAX_CHUNK_BYTES} bytes")
    return replace(read_level(level, common), chunk_shape=chunks)


def plan(array: ArraySpec, options: PrecomputedOptions) -> Plan:
    """Cut an array into chunks; its axes come in the order of `stored_axes`. A size of 0 is not known yet.

    Lower levels are halved along y and x. Raises ConfigError for an array without y or x, a dtype that readers refuse,
    and an encoding that does not fit the array.
    """
    check_axes("precomputed", array.axes)
    full = array.ordered(stored_axes(array.axes))
    if has_too_many(full.shape[: member_count(full.axes)]):
        raise ConfigError(f"precomputed: {full.axes} of {full.shape} are more than a million volumes")
    has_labels = options.encoding == "compressed_segmentation"
    levels = reduced_levels(full, 1 if options.levels is None and has_labels else options.levels)  # means are no labels
    cut = tuple(replace(level, chunk_shape=_chunk_shape(level, options)) for level in levels)
    _check_encoding(cut[0], options)
    return Plan(levels=cut, member_axes=full.axes[: member_count(full.axes)])


def _chunk_shape(level: ArraySpec, options: PrecomputedOptions) -> tuple[int, ...]:
    sides = dict(zip(level.axes[-3:], options.chunks, strict=True))
    if COMPONENT in level.axes:
        sides[COMPONENT] = max(1, level.shape[level.axes.index(COMPONENT)])
    return chunk_shape(level, sides)


def _check_encoding(full: ArraySpec, options: PrecomputedOptions) -> None:
    """Raise ConfigError if chunks of this array cannot be stored in the encoding."""
    name, chunk = full.dtype.newbyteorder("=").name, full.chunk_shape[-3:]
    channels = math.prod(full.chunk_shape[:-3])
    if name not in WRITTEN_DTYPES:
        raise ConfigError(f"precomputed: readers refuse items of {full.dtype}; they take {', '.join(WRITTEN_DTYPES)}")
    if full.chunk_bytes > MAX_CHUNK_BYTES:
        raise ConfigError(f"precomputed chunks of {chunk} of {name} (z, y, x) have more than {MAX_CHUNK_BYTES} bytes")
    if options.encoding == "png" and (name not in PNG_DTYPES or channels not in PNG_CHANNELS):
        raise ConfigError(f"precomputed: png takes uint8 and uint16 with 1 to 4 components, not {channels} of {name}")
    if options.encoding == "jpeg":
        _check_jpeg(full, name, channels)
    if options.encoding == "compressed_segmentation" and (
        name not in LABEL_DTYPES or math.prod(chunk) > MAX_LABEL_VOXELS
    ):
        most = MAX_LABEL_VOXELS
        raise ConfigError(
            f"precomputed: compressed_segmentation takes uint32 or uint64 in chunks of at most {most} voxels, "
            f"not {name} in chunks of {chunk}"
        )


def _check_jpeg(full: ArraySpec, name: str, channels: int) -> None:
    depth, height, width = full.chunk_shape[-3:]
    if name not in JPEG_DTYPES or channels not in JPEG_CHANNELS:
        raise ConfigError(f"precomputed: jpeg takes uint8 with 1 or 3 components, not {channels} of {name}")
    if max(width, depth * height) > MAX_JPEG_SIDE:  # the planes of a chunk lie below each other
        text = f"chunks of {depth} planes of {height} x {width} are images of {depth * height} x {width} pixels"
        raise ConfigError(f"precomputed: {text}; jpeg takes at most {MAX_JPEG_SIDE} a side")
    try:
        load_pillow("JPEG")
    except UnsupportedFeature as error:
        raise ConfigError(f"precomputed: {error}") from error


def _told(shards: Sequence[ShardSlots]) -> str:
    return f"in shards of {[one.sharding for one in shards]}" if shards else "in files of their own"


def _kind(levels: Sequence[ArraySpec], leading: int) -> list[object]:
    """What a resumed container must have in common with ours."""
    return [
        (level.axes, level.dtype.name, level.chunk_shape, level.factors, level.shape[leading:-3], level.shape[-2:])
        for level in levels
    ]
