"""Overlap and places of the tiles of a sequence with grids."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acqstream.client.pymmcore.sequence_plan import SequencePlan, sequence_parts

if TYPE_CHECKING:
    from useq import MDASequence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TilePlan:
    """overlap is (y, x) in whole pixels; step, (y, x) in pixels, is the way of the stage from tile to tile."""

    overlap: tuple[int, int]
    step: tuple[float, float]

    def place(self, axes: Mapping[str, Any]) -> dict[str, int]:
        """Metadata keys: the first pixel of a tile in its grid. Rounded here, so that errors do not add up.

        Source: NDTiff metadata keys; viewers use them where all tiles have them.
        """
        return {
            "XPositionPix": round(axes["column"] * self.step[1]),
            "YPositionPix": round(axes["row"] * self.step[0]),
        }


def plan_tiles(sequence: MDASequence, plan: SequencePlan, shape: Sequence[int] | None) -> TilePlan | None:
    """The tiles of `sequence` for images of this shape; None where its frames are not tiles.

    That is without a grid, with random points, with images of unknown size, and with grids that overlap differently,
    as a dataset has one overlap.
    """
    if plan.cells is None or shape is None:
        return None
    grids = [part.grid_plan for part in sequence_parts(sequence) if part.grid_plan is not None]
    overlaps = {tuple(getattr(grid, "overlap", (0.0, 0.0)))[::-1] for grid in grids}
    if len(overlaps) > 1:
        logger.warning(
            "the grids overlap by %s percent: a tiled dataset has one overlap, so this is a flat one", overlaps
        )
        return None
    percent = overlaps.pop()
    if max(percent) >= 100:
        return None
    step = (shape[0] * (1 - percent[0] / 100), shape[1] * (1 - percent[1] / 100))
    # Gaps between tiles, a negative overlap, show in their places only.
    overlap = (max(0, round(shape[0] - step[0])), max(0, round(shape[1] - step[1])))
    return TilePlan(overlap, step) if overlap[0] < shape[0] and overlap[1] < shape[1] else None
