"""Options of a precomputed container."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from acqstream.errors import ConfigError

Encoding = Literal["raw", "png", "compressed_segmentation"]

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
MAX_LEVELS = 16
DEFAULT_CHUNKS = (1, 512, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecomputedOptions:
    """chunks: extents (z, y, x) of a chunk. levels: how many resolution levels; None: until a plane fits into
    512 x 512, and one only for compressed segmentation.
    """

    encoding: Encoding = "raw"
    chunks: tuple[int, int, int] = DEFAULT_CHUNKS
    levels: int | None = None


def parse_options(given: Mapping[str, object]) -> PrecomputedOptions:
    """From what a user wrote, e.g. {"encoding": "png", "chunks": [1, 1024, 1024], "levels": 3}.

    Raises ConfigError naming the option and what was expected.
    """
    known = ("encoding", "chunks", "levels")
    for name in given:
        if name not in known:
            raise ConfigError(f"precomputed has no option {name!r}, only {', '.join(known)}")
    encoding = given.get("encoding", "raw")
    if encoding not in ENCODINGS:
        raise ConfigError(f"precomputed encoding is {encoding!r:.80}, expected one of {', '.join(ENCODINGS)}")
    return PrecomputedOptions(
        encoding=encoding,
        chunks=_chunks(given.get("chunks", "auto")),
        levels=_levels(given.get("levels", "auto")),
    )


def _chunks(given: object) -> tuple[int, int, int]:
    if given == "auto":
        return DEFAULT_CHUNKS
    if isinstance(given, (list, tuple)) and len(given) == 3 and all(map(_is_count, given)) and math.prod(given) < 2**31:
        z, y, x = given
        return z, y, x
    text = f"precomputed chunks are {given!r:.80}"
    raise ConfigError(f'{text}, expected "auto" or three positive integers: the extents in z, y, x')


def _levels(given: object) -> int | None:
    if given == "auto":
        return None
    if isinstance(given, int) and _is_count(given) and given <= MAX_LEVELS:
        return given
    raise ConfigError(f'precomputed levels are {given!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
