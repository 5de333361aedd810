"""Options of a precomputed container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from acqstream.errors import ConfigError
from acqstream.formats.array_options import OptionReader
from acqstream.formats.precomputed.sharding import Hash, Packing

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
