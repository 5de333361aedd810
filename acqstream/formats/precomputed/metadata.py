"""Options, axes and documents of a container of precomputed volumes. Pure.

`info` describes a volume; per-axis values of it are in the order of the file: x, y, z. Everything else has the slowest
axis first. Source: the Neuroglancer precomputed volume format.

A volume has x, y, z and the components of a voxel only. z, or time where there is no z, is its depth. Each combination
of positions along all other axes is a volume, a member, in a folder of its own: `time3/channel1`.

`acqstream-volume.json` is our note at the top of the container: the array, beyond what `info` can state. Other software
ignores it. Everything inside its shapes is stored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from acqstream.arrays.array_spec import Position
from acqstream.errors import ConfigError, CorruptDataset
from acqstream.formats.array_members import numbers_after
from acqstream.formats.array_options import OptionReader
from acqstream.formats.precomputed.sharding import Hash, Packing, Sharding, Three, encode_sharding, parse_sharding
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

Encoding = Literal["raw", "png", "jpeg", "compressed_segmentation"]

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
HASHES: tuple[Hash, ...] = get_args(Hash)
PACKINGS: tuple[Packing, ...] = get_args(Packing)
DEFAULT_CHUNKS = (1, 512, 512)
DEFAULT_QUALITY = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """Parameters of shards, as in `Sharding`; None: chosen for each scale."""

    preshift_bits: int | None = None
    minishard_bits: int | None = None
    shard_bits: int | None = None
    hash: Hash = "identity"
    minishard_index_encoding: Packing = "gzip"
    data_encoding: Packing = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecomputedOptions:
    """chunks: extents (z, y, x) of a chunk. levels: how many resolution levels; None: until a plane fits into
    512 x 512, and one only for compressed segmentation. shards: None: a file for each chunk. jpeg_quality: 1 to 100.
    """

    encoding: Encoding = "raw"
    chunks: tuple[int, int, int] = DEFAULT_CHUNKS
    levels: int | None = None
    shards: ShardOptions | None = None
    jpeg_quality: int = DEFAULT_QUALITY


def parse_options(given: Mapping[str, object]) -> PrecomputedOptions:
    """From what a user wrote, e.g. {"encoding": "png", "chunks": [1, 1024, 1024], "levels": 3}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("precomputed", given, ("encoding", "chunks", "levels", "shards", "jpeg_quality"))
    encoding = options.choice("encoding", ENCODINGS)
    return PrecomputedOptions(
        encoding=encoding,
        chunks=options.chunks() or DEFAULT_CHUNKS,
        levels=options.levels(),
        shards=_shards(given.get("shards", False)),
        jpeg_quality=_quality(given, is_jpeg=encoding == "jpeg"),
    )


def _shards(given: object) -> ShardOptions | None:
    if isinstance(given, bool):
        return ShardOptions() if given else None
    if not isinstance(given, Mapping):
        raise ConfigError(f"precomputed shards are {given!r:.80}, expected true, false or their parameters")
    choices: dict[str, tuple[str, ...]] = {
        "hash": HASHES,
        "minishard_index_encoding": PACKINGS,
        "data_encoding": PACKINGS,
    }
    most = {"preshift_bits": 63, "minishard_bits": 32, "shard_bits": 64}
    for name, value in given.items():
        if name in choices:
            if value not in choices[name]:
                text = f"precomputed shards: {name} is {value!r:.80}, expected one of {', '.join(choices[name])}"
                raise ConfigError(text)
        elif name not in most:
            raise ConfigError(f"precomputed shards have no {name!r:.80}, only {', '.join((*most, *choices))}")
        elif not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most[name]:
            raise ConfigError(f"precomputed shards: {name} is {value!r:.80}, expected 0 to {most[name]}")
    known: dict[str, Any] = dict(given)
    return ShardOptions(**known)


def _quality(given: Mapping[str, object], *, is_jpeg: bool) -> int:
    quality = given.get("jpeg_quality", DEFAULT_QUALITY)
    if "jpeg_quality" in given and not is_jpeg:
        raise ConfigError("precomputed: jpeg_quality is for encoding 'jpeg'")
    if type(quality) is int and 0 < quality <= 100:
        return quality
    raise ConfigError(f"precomputed jpeg_quality is {quality!r:.80}, expected 1 to 100")


COMPONENT = "c"
_SPATIAL = ("y", "x")
_DEPTHS = ("z", "time")  # the first that there is
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def stored_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """The axes in the order of a container: members, components of RGB, depth (z added if missing), y, x."""
    depth = next((name for name in _DEPTHS if name in axes), _DEPTHS[0])
    members = [name for name in axes if name not in (*_SPATIAL, COMPONENT, depth)]
    return (*members, *((COMPONENT,) if COMPONENT in axes else ()), depth, *_SPATIAL)


def member_count(axes: Sequence[str]) -> int:
    """Number of axes, from the first one on, that are members; axes are in the order of a container."""
    return len(axes) - 3 - (axes[-4:-3] == (COMPONENT,))


def is_single(axes: Sequence[str], shape: Sequence[int]) -> bool:
    """Return True if the array is one volume, which lies at the top. A size of 0 is not known yet."""
    return all(size == 1 for size in shape[: member_count(axes)])


def member_folder(axes: Sequence[str], member: Sequence[int]) -> str:
    """The folder of a member, with "/" at its end."""
    return "".join(f"{_ODD.sub('_', axis)}{at}/" for axis, at in zip(axes, member, strict=False))


def parse_member_folder(axes: Sequence[str], folder: str) -> Position | None:
    """The inverse of `member_folder`; None for any other folder."""
    prefixes = [_ODD.sub("_", axis) for axis in axes[: member_count(axes)]]
    member = numbers_after(prefixes, folder.split("/")[:-1])
    return member if member is not None and member_folder(axes, member) == folder else None


INFO_NAME = "info"
VOLUME_TYPE = "neuroglancer_multiscale_volume"
MAX_INFO_BYTES = 16 * 2**20
MAX_CHUNK_BYTES = 2**31 - 1  # not encoded
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64")
DTYPES = {name: np.dtype(name) for name in (*_INTEGERS, "float32", "int64", "float64")}
"""Types of items. The last two are in the files of some writers; most readers refuse them."""

WRITTEN_DTYPES = tuple(name for name in DTYPES if name not in ("int64", "float64"))
_MAX_SCALES = 1000
_MAX_BLOCK_VOXELS = 2**18  # of compressed segmentation: blocks are padded, which costs memory
_MAX_NUMBER = 2**62
_CSEG = "compressed_segmentation"


@dataclass(frozen=True, slots=True)
class Scale:
    """One scale. size, offset and chunk are in voxels, resolution in nm; block is that of compressed segmentation."""

    key: str
    size: Three
    offset: Three
    resolution: tuple[float, float, float]
    chunk: Three
    encoding: str
    sharding: Sharding | None = None
    block: Three = (8, 8, 8)

    @property
    def grid(self) -> Three:
        """Number of chunks along x, y and z."""
        x, y, z = (-(-size // step) for size, step in zip(self.size, self.chunk, strict=True))
        return x, y, z


@dataclass(frozen=True, slots=True)
class VolumeInfo:
    """A volume. kind is "image" or "segmentation"; scales begin with the finest."""

    kind: str
    dtype: np.dtype[np.generic]
    channels: int
    scales: tuple[Scale, ...]


def parse_info(content: bytes, path: str) -> VolumeInfo:
    """The volume that the file `path` describes.

    Raises CorruptDataset with the field and what was expected, UnsupportedFeature for another kind of sharding.
    """
    fields = parse_fields(content, path, max_integer=_MAX_NUMBER)
    if fields.text("@type", VOLUME_TYPE) != VOLUME_TYPE:
        raise fields.wrong("@type", VOLUME_TYPE)
    dtype = DTYPES[fields.choice("data_type", tuple(DTYPES))]
    channels = fields.integer("num_channels", minimum=1, maximum=2**31)
    if not 1 <= len(fields.items("scales")) <= _MAX_SCALES:
        raise fields.wrong("scales", f"a list of 1 to {_MAX_SCALES}")
    given = fields.values["scales"]
    scales = tuple(_parse_scale(item, f"scales[{at}].", path) for at, item in enumerate(given))
    for at, scale in enumerate(scales):
        if math.prod(scale.chunk) * channels * dtype.itemsize > MAX_CHUNK_BYTES:
            text = f"scales[{at}]: chunks of {list(scale.chunk)} with {channels} channels of {dtype}"
            raise CorruptDataset(f"{text} have more than {MAX_CHUNK_BYTES} bytes", path=path)
        if math.prod(scale.size) * channels >= 2**63:
            raise CorruptDataset(f"scales[{at}]: size {list(scale.size)} is more than 2^63 items", path=path)
    return VolumeInfo(fields.choice("type", ("image", "segmentation")), dtype, channels, scales)


def is_info(content: bytes) -> bool:
    """Return True if this is the beginning of the description of a volume, right or wrong."""
    return VOLUME_TYPE.encode() in content or (b'"scales"' in content and b'"data_type"' in content)


def encode_info(info: VolumeInfo) -> bytes:
    """The content of the file."""
    value = {
        "@type": VOLUME_TYPE,
        "type": info.kind,
        "data_type": info.dtype.name,
        "num_channels": info.channels,
        "scales": [
            {
                "key": scale.key,
                "size": scale.size,
                "voxel_offset": scale.offset,
                "resolution": [_plain(value) for value in scale.resolution],
                "chunk_sizes": [scale.chunk],
                "encoding": scale.encoding,
                **({"compressed_segmentation_block_size": scale.block} if scale.encoding == _CSEG else {}),
                **({} if scale.sharding is None else {"sharding": encode_sharding(scale.sharding)}),
            }
            for scale in info.scales
        ],
    }
    return json.dumps(value, indent=1, allow_nan=False).encode()


def _parse_scale(given: object, place: str, path: str) -> Scale:
    error = partial(CorruptDataset, path=path)
    fields = Fields(given, place, error, _MAX_NUMBER)
    resolution = fields.numbers("resolution", 3)
    if not all(size > 0 for size in resolution):
        raise fields.wrong("resolution", "three positive numbers")
    encoding = fields.text("encoding", max_length=100)
    block = (8, 8, 8)
    if encoding == _CSEG:
        block = _three(fields.integers("compressed_segmentation_block_size", 3, minimum=1))
        if math.prod(block) > _MAX_BLOCK_VOXELS:
            raise fields.wrong("compressed_segmentation_block_size", f"at most {_MAX_BLOCK_VOXELS} voxels")
    sharding = None
    if fields.values.get("sharding") is not None:
        sharding = parse_sharding(fields.child("sharding"), path)
    return Scale(
        key=fields.text("key", max_length=4096),
        size=_three(fields.integers("size", 3)),
        offset=_three(
            fields.integers("voxel_offset", 3, minimum=-_MAX_NUMBER) if "voxel_offset" in fields else (0, 0, 0)
        ),
        resolution=(resolution[0], resolution[1], resolution[2]),
        chunk=_chunk_size(fields, place, error),
        encoding=encoding,
        sharding=sharding,
        block=block,
    )


def _chunk_size(fields: Fields, place: str, error: partial[CorruptDataset]) -> Three:
    """The first of the chunk sizes: each is a complete copy of the scale."""
    sizes = fields.items("chunk_sizes")
    if not sizes:
        raise fields.wrong("chunk_sizes", "a list of lists of three positive integers")
    first = Fields({"chunk_sizes[0]": sizes[0]}, place, error, _MAX_NUMBER)
    return _three(first.integers("chunk_sizes[0]", 3, minimum=1))


def _three(values: Sequence[int]) -> Three:
    x, y, z = values
    return x, y, z


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value


NOTE_NAME = "acqstream-volume.json"
NOTE_FORMAT = "acqstream-precomputed"


def is_note(content: bytes) -> bool:
    """Return True if this is the beginning of such a file, right or wrong."""
    return NOTE_FORMAT.encode() in content
