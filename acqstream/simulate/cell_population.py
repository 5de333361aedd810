"""Cells of an unbounded culture: where each one is at a time, and how far its division has come.

The plane is cut into squares, and each square is home to one cell, whose properties follow from the seed and the place
of the square. So any part of the plane, at any time, is computed without the rest. Integers throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

PITCH_PX = 84  # sides of the squares
_JITTER_PX = 26  # of a cell's home around the middle of its square, in each direction
_DRIFT_PX = 16
_MAX_APART_PX = 24  # of each daughter from the middle of the two
REACH_PX = PITCH_PX // 2 + _JITTER_PX + _DRIFT_PX + _MAX_APART_PX
"""Max distance of a cell from the middle of its square, in y and in x."""
_MASK = 2**64 - 1
N_ANGLES = 8
DIRECTIONS = ((65, 0), (60, 25), (52, 39), (25, 60), (0, 65), (-25, 60), (-52, 39), (-60, 25))
"""(y, x) of vectors with length 65, about evenly spread over half a turn: integers, so equal on every computer."""
_UNIT = 65
# Parts of a cell's cycle, in percent.
_APPEARED, _ROUND, _SPLIT, _FADING = 8, 60, 68, 92


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell at one time. y, x: pixels; z: twentieths of a plane; share: brightness in 1/256; variant: of its look.

    size: 0 (smallest) to 3. is_dividing: condensed, before the two daughters part.
    """

    y: int
    x: int
    z: int
    angle: int
    size: int
    variant: int
    share: int
    is_dividing: bool


@dataclass(frozen=True, slots=True)
class _Founder:
    y: int
    x: int
    z: int
    angle: int
    variant: int
    cycle: int  # in time points
    shift: int
    drift: tuple[int, int]  # periods in y and x, in time points


@dataclass(frozen=True, slots=True)
class Area:
    """Pixels [top, top + height) x [left, left + width)."""

    top: int
    left: int
    height: int
    width: int


def cells_near(seed: int, area: Area, *, depth: int, time: int) -> Iterator[CellState]:
    """All cells whose middle lies in the area, and some around it. In a fixed order.

    depth: number of planes over which the cells are spread.
    """
    for row in range((area.top - REACH_PX) // PITCH_PX, (area.top + area.height + REACH_PX) // PITCH_PX + 1):
        for column in range((area.left - REACH_PX) // PITCH_PX, (area.left + area.width + REACH_PX) // PITCH_PX + 1):
            yield from _states(_founder(seed, row, column, depth), time)


@lru_cache(maxsize=2**14)
def _founder(seed: int, row: int, column: int, depth: int) -> _Founder:
    digits = _mixed(seed, row, column)

    def take(count: int) -> int:
        """A value below `count`, from the next digits."""
        nonlocal digits
        digits, value = divmod(digits, count)
        return value

    around = 2 * _JITTER_PX + 1
    return _Founder(
        y=row * PITCH_PX + PITCH_PX // 2 + take(around) - _JITTER_PX,
        x=column * PITCH_PX + PITCH_PX // 2 + take(around) - _JITTER_PX,
        z=take(20 * depth) - 10 if depth > 1 else take(9) - 4,
        angle=take(N_ANGLES),
        variant=take(4),
        cycle=60 + take(60),
        shift=take(120),
        drift=(40 + take(50), 40 + take(50)),
    )


def _states(founder: _Founder, time: int) -> Iterator[CellState]:
    """The cell, or its two daughters."""
    percent = 100 * ((time + founder.shift) % founder.cycle) // founder.cycle
    y = founder.y + _swing(time + founder.shift, founder.drift[0])
    x = founder.x + _swing(time + 2 * founder.shift, founder.drift[1])
    looks = founder.z, founder.angle
    if percent < _SPLIT:
        share = min(256, 32 + 256 * percent // _APPEARED)
        size = 1 + min(2, 3 * percent // _ROUND)
        yield CellState(y, x, *looks, size, founder.variant, share, percent >= _ROUND)
        return
    apart = 9 + (_MAX_APART_PX - 9) * (percent - _SPLIT) // (100 - _SPLIT)
    share = 256 if percent < _FADING else 256 * (100 - percent) // (100 - _FADING)
    down, right = DIRECTIONS[founder.angle]
    for side in (-1, 1):
        place = y + side * apart * down // _UNIT, x + side * apart * right // _UNIT
        yield CellState(*place, *looks, 0, (founder.variant + side) % 4, share, is_dividing=False)


def _swing(time: int, period: int) -> int:
    """A place between -_DRIFT_PX and +_DRIFT_PX, to and fro at an even speed."""
    return abs(time % (2 * period) - period) * 2 * _DRIFT_PX // period - _DRIFT_PX


def _mixed(*values: int) -> int:
    """64 bits that look random and follow from the values (the finalizer of SplitMix64, once for each)."""
    state = 0
    for value in values:
        state = (state + value + 0x9E3779B97F4A7C15) & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state
