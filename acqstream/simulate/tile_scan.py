"""A stage that goes over a grid of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileScan:
    """Rows of tiles, each from left to right, or to and fro with `snake`. overlap is (y, x) in pixels."""

    rows: int
    columns: int
    overlap: tuple[int, int]
    snake: bool = False

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def cell(self, number: int) -> tuple[int, int]:
        """(row, column) of tile `number`; the scan begins again after the last one."""
        row, column = divmod(number % self.count, self.columns)
        return row, self.columns - 1 - column if self.snake and row % 2 else column

    def origin(self, cell: tuple[int, int], shape: tuple[int, ...]) -> tuple[int, int]:
        """(y, x) of the first pixel of a tile of this shape in the stitched picture."""
        return cell[0] * (shape[0] - self.overlap[0]), cell[1] * (shape[1] - self.overlap[1])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """All cells in the order of the scan."""
        return map(self.cell, range(self.count))


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns from "5x7". Raises ValueError."""
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise ValueError(f"{text!r} must be ROWSxCOLUMNS, e.g. 5x7")
    return int(rows), int(columns)


def parse_overlap(text: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """(y, x) from "64,64" for frames of this shape. Raises ValueError."""
    y, _, x = text.partition(",")
    if not (y.isdecimal() and x.isdecimal()):
        raise ValueError(f"{text!r} must be Y,X in pixels, e.g. 64,64")
    if int(y) >= shape[0] or int(x) >= shape[1]:
        raise ValueError(f"{text!r} must be less than the frame, which has {shape[0]},{shape[1]} pixels")
    return int(y), int(x)
