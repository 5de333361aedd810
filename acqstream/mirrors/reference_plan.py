"""Plans the array of a mirror by reference, and refuses frames that a chunk table cannot point to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.errors import DatasetError
from acqstream.mirrors.run_plan import plan_run
from acqstream.views.base import ViewSource

_NO_TILES = (
    "tiles overlap, so the picture that they make up lies in no stack: a mirror by reference cannot have it; "
    "pixels=copy can"
)


def plan_references(source: ViewSource, row: int) -> ArrayPlan:
    """As `plan_run`. Raises DatasetError for tiles."""
    if source.reader.tile_overlap is not None:
        raise DatasetError(_NO_TILES)
    plan = plan_run(source, row)
    assert plan is not None  # only the size of a mosaic may be unknown
    return plan


def check_references(request: Mapping[str, Any]) -> None:
    """Raise DatasetError if the frames of a requested acquisition cannot be referred to, as far as it tells."""
    if isinstance(request.get("tiles"), Mapping):
        raise DatasetError(_NO_TILES)
