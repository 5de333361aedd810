"""The request of a producer that opens an acquisition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from acqstream.model.view_spec import ViewSpec, stored_views

DurabilityMode = Literal["close", "batch"] | float
DEFAULT_DURABILITY_S = 1.0
MAX_LEVELS = 16
MAX_OVERLAP_PX = 65_535
MAX_WAIT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """A declared axis; everything but its name is a hint. size counts its integers from `start` on."""

    name: str
    size: int | None = None
    unit: str | None = None
    scale: float | None = None
    labels: tuple[str, ...] = ()
    start: int = 0


@dataclass(frozen=True, slots=True)
class FrameHint:
    """Kind of the expected frames. dtype is a numpy type string, shape is (Y, X), or (Y, X, 3) for RGB."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def payload_bytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype[2:])


@dataclass(frozen=True, slots=True)
class TileSpec:
    """Frames are tiles of larger images, placed by their axes `row` and `column`.

    overlap is (y, x), the pixels that a tile shares with the next one. levels counts the lower resolution levels to
    make; None until one tile shows all. wait_s is the max time that a tile of a lower level waits for its missing
    parts, None until the end.
    """

    overlap: tuple[int, int]
    levels: int | None = None
    wait_s: float | None = None

    @property
    def is_one_way(self) -> bool:
        """True if they overlap in one direction only."""
        return (self.overlap[0] == 0) != (self.overlap[1] == 0)

    @staticmethod
    def of(values: object) -> TileSpec:
        """From plain values, as on the wire and in acqstream.json. Raises ValueError naming what is wrong."""
        if not isinstance(values, Mapping):
            raise ValueError(f'must be {{"overlap": [y, x]}} with "levels" and "wait_s" if wanted, not {values!r:.60}')
        overlap, levels, wait_s = values.get("overlap"), values.get("levels"), values.get("wait_s")
        if not isinstance(overlap, list | tuple) or len(overlap) != 2:
            raise ValueError(f"overlap {overlap!r:.60} must be two numbers of pixels, [y, x]")
        for length in overlap:
            if type(length) is not int or not 0 <= length <= MAX_OVERLAP_PX:
                raise ValueError(f"overlap {length!r:.60} must be a number of pixels from 0 to {MAX_OVERLAP_PX}")
        if levels == "auto":
            levels = None
        if levels is not None and (type(levels) is not int or not 0 <= levels <= MAX_LEVELS):
            raise ValueError(f'levels {levels!r:.60} must be "auto" or a number from 0 to {MAX_LEVELS}')
        if wait_s is not None and not _is_wait(wait_s):
            raise ValueError(f"wait_s {wait_s!r:.60} must be a number of seconds from 0 to {MAX_WAIT_S:g}")
        return TileSpec((overlap[0], overlap[1]), levels, None if wait_s is None else float(wait_s))


def _is_wait(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquisitionSpec:
    """One acquisition as requested.

    dataset_id is the uuid (32 hex digits) that the producer chose. summary is the NDTiff summary metadata. frame
    is the kind of the expected frames and expect their number, if known. durability is the time when journal and index
    are forced: at "close", after a number of seconds, or with every "batch". resume continues an interrupted dataset.
    epoch counts the connections of a producer to its acquisition, from 0. views are to be made. default_mirrors: the
    daemon's configuration names the mirrors, not the request. tiles is None for a flat dataset. given are the names of
    the fields in the request, which a resumed run may not follow.
    """

    dataset_id: str
    name: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    frame: FrameHint | None = None
    axes: tuple[AxisSpec, ...] = ()
    expect: int | None = None
    durability: DurabilityMode = DEFAULT_DURABILITY_S
    replace_duplicates: bool = False
    number_if_taken: bool = False
    resume: bool = False
    epoch: int = 0
    views: tuple[ViewSpec, ...] = ()
    default_mirrors: bool = True
    tiles: TileSpec | None = None
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def as_request(self) -> dict[str, Any]:
        """Plain values: the field `request` of acqstream.json."""
        values = dataclasses.asdict(self)
        del values["given"]
        for axis in values["axes"]:
            if not axis["start"]:  # as in the files of earlier versions
                del axis["start"]
        request: dict[str, Any] = {}
        for name, value in values.items():
            request |= stored_views(self.views) if name == "views" else {name: value}
        return request

    @property
    def frame_bytes(self) -> int | None:
        """The payload of a frame, where known."""
        return None if self.frame is None else self.frame.payload_bytes
