"""`info`: the description of a volume. Source: the Neuroglancer precomputed volume format.

Per-axis values here are in the order of the file: x, y, z. Everything else in the package has the slowest axis first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from acqstream.errors import CorruptDataset
from acqstream.formats.precomputed.sharding import Sharding, encode_sharding, parse_sharding
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

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

Three = tuple[int, int, int]


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
    scales = tuple(_scale(item, f"scales[{at}].", path) for at, item in enumerate(given))
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


def _scale(given: object, place: str, path: str) -> Scale:
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
