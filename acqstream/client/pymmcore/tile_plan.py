"""Overlap and places of the tiles of a sequence with grids."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acqstream.client.pymmcore.sequence_plan import Cell, GridCells, SequencePlan, sequence_parts
from acqstream.description.stage import StageAffine

if TYPE_CHECKING:
    from useq import MDASequence

logger = logging.getLogger(__name__)
_PARALLEL = StageAffine(1.0, 0.0, 0.0, 1.0)  # of a camera without a calibration


@dataclass(frozen=True, slots=True)
class GridTurn:
    """The way from rows and columns of a plan, which count along the stage, to those of the picture.

    swaps: rows of the plan are columns of the picture. flips, (y, x) of the picture: they count from the other end.
    """

    swaps: bool = False
    flips: tuple[bool, bool] = (False, False)

    @staticmethod
    def of_camera(affine: StageAffine | None) -> GridTurn:
        """The nearest one, as a camera may be turned by any angle.

        Source: row 0 of useq has the largest y of the stage, column 0 the smallest x.
        """
        seen = affine or _PARALLEL
        (right_x, right_y), (down_x, down_y) = seen.to_pixels(1.0, 0.0), seen.to_pixels(0.0, -1.0)
        if abs(right_x * down_y) < abs(right_y * down_x):
            return GridTurn(True, (right_y < 0, down_x < 0))
        return GridTurn(False, (down_y < 0, right_x < 0))

    def turn(self, cells: GridCells) -> GridCells:
        """The cells in the picture; each grid begins at row 0 and column 0."""
        return GridCells(self._turn(cells.main), {key: self._turn(own) for key, own in cells.by_position.items()})

    def _turn(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        turned = [cell[::-1] if self.swaps else cell for cell in cells]
        ends = [max((cell[side] for cell in turned), default=0) if self.flips[side] else 0 for side in (0, 1)]
        return tuple((abs(ends[0] - row), abs(ends[1] - column)) for row, column in turned)


@dataclass(frozen=True, slots=True)
class TilePlan:
    """overlap is (y, x) in whole pixels; step, (y, x) in pixels, is the way from tile to tile in the picture."""

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


def plan_tiles(
    sequence: MDASequence, plan: SequencePlan, shape: Sequence[int] | None, turn: GridTurn
) -> TilePlan | None:
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
    step = (shape[0] * (1 - percent[0] / 100), shape[1] * (1 - percent[1] / 100))  # as the engine moves the stage
    step = step[::-1] if turn.swaps else step
    # Gaps between tiles, a negative overlap, show in their places only.
    overlap = (max(0, round(shape[0] - step[0])), max(0, round(shape[1] - step[1])))
    return TilePlan(overlap, step) if overlap[0] < shape[0] and overlap[1] < shape[1] else None
