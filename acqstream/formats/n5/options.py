"""Options of an N5 container."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from acqstream.errors import ConfigError
from acqstream.formats.n5.compression import Compression

Layout = Literal["bdv", "multiscale", "array"]
Downsample = Literal["xyz", "xy"]

MAX_LEVELS = 16
DEFAULT_COMPRESSION = "blosc"


@dataclass(frozen=True, slots=True, kw_only=True)
class N5Options:
    """layout: for BigDataViewer (a 3-D array per channel and time, and an XML file beside the container), for n5-viewer
    and COSEM (the same without XML), or one array with all axes. blocks: extents (z, y, x) of a block; None: chosen to
    hold a few MiB. levels: how many resolution levels; None: until one fits into a block in y and x. downsample: the
    axes that lower levels are reduced along; z only once its steps are not larger than those of the others.
    """

    layout: Layout = "bdv"
    compression: Compression
    blocks: tuple[int, int, int] | None = None
    levels: int | None = None
    downsample: Downsample = "xyz"


def parse_options(given: Mapping[str, object]) -> N5Options:
    """From what a user wrote, e.g. {"compression": "gzip", "blocks": [64, 128, 128], "levels": 1}.

    Raises ConfigError naming the option and what was expected.
    """
    known = ("layout", "compression", "blocks", "levels", "downsample")
    for name in given:
        if name not in known:
            raise ConfigError(f"N5 has no option {name!r}, only {', '.join(known)}")
    return N5Options(
        layout=cast("Layout", _choice(given, "layout", "bdv", get_args(Layout))),
        compression=Compression.parse(given.get("compression", DEFAULT_COMPRESSION)),
        blocks=_blocks(given.get("blocks", "auto")),
        levels=_levels(given.get("levels", "auto")),
        downsample=cast("Downsample", _choice(given, "downsample", "xyz", get_args(Downsample))),
    )


def _choice(given: Mapping[str, object], name: str, default: str, allowed: tuple[str, ...]) -> str:
    found = given.get(name, default)
    if found not in allowed:
        raise ConfigError(f"N5 {name} is {found!r:.80}, expected one of {', '.join(allowed)}")
    return str(found)


def _blocks(given: object) -> tuple[int, int, int] | None:
    if given == "auto":
        return None
    if isinstance(given, (list, tuple)) and len(given) == 3 and all(map(_is_count, given)):
        z, y, x = given
        if math.prod(given) < 2**31:
            return z, y, x
    raise ConfigError(
        f'N5 blocks are {given!r:.80}, expected "auto" or three positive integers: the extents in z, y, x'
    )


def _levels(given: object) -> int | None:
    if given == "auto":
        return None
    if isinstance(given, int) and _is_count(given) and given <= MAX_LEVELS:
        return given
    raise ConfigError(f'N5 levels are {given!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
