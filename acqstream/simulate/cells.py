"""Cells of an unbounded culture: where each one is at a time, how far its division has come, and its small picture.

The plane is cut into squares, and each square is home to one cell, whose properties follow from the seed and the index
of the square. So any part of the plane, at any time, is computed without the rest, in integers. A picture shows one
cell as a stain does, in and out of focus, by sums, products, quotients and roots only, which every computer rounds
alike: any one can compute stored frames again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
        center = y + side * apart * down // _UNIT, x + side * apart * right // _UNIT
        yield CellState(*center, *looks, 0, (founder.variant + side) % 4, share, is_dividing=False)


def _swing(time: int, period: int) -> int:
    """An offset between -_DRIFT_PX and +_DRIFT_PX, to and fro at an even speed."""
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


HALF_PX = 42
"""A sprite has 2 * HALF_PX + 1 rows and columns; the cell is in the middle."""
MAX_BLUR = 7  # steps of defocus
_BLUR_PX = 1.6  # more softness with each step
_RADII_PX = (15.0, 18.0, 21.0, 23.0)  # of the cell, by size
_NUCLEUS = 0.48  # of the cell's radius
_N_GRANULES = 22


class Stain(IntEnum):
    """What a channel shows."""

    NUCLEI = 0
    MEMBRANE = 1
    GRANULES = 2
    TRANSMITTED = 3


@lru_cache(maxsize=1024)
def sprite(stain: Stain, size: int, angle: int, variant: int, blur: int, *, is_dividing: bool) -> NDArray[np.int32]:
    """Counts of one cell above the background (TRANSMITTED: also below), shape (2 * HALF_PX + 1,) * 2, int32.

    blur: steps of defocus, 0 to MAX_BLUR. The array is shared: do not write to it.
    """
    y, x = (axis.astype(np.float64) for axis in np.mgrid[-HALF_PX : HALF_PX + 1, -HALF_PX : HALF_PX + 1])
    down, right = DIRECTIONS[angle]
    along, across = (y * down + x * right) / 65, (x * down - y * right) / 65
    radius, soft = _RADII_PX[size], 1.2 + _BLUR_PX * blur
    if stain is Stain.NUCLEI:
        values = _nucleus(along, across, radius * _NUCLEUS, soft, variant, is_dividing=is_dividing)
    elif stain is Stain.MEMBRANE:
        values = _membrane(_distance(along, across, radius, variant, is_dividing=is_dividing), soft)
    elif stain is Stain.GRANULES:
        values = _granules(along, across, radius, soft, variant)
    else:
        values = _transmitted(_distance(along, across, radius, variant, is_dividing=is_dividing), soft)
    # Out of focus the same light spreads over more pixels.
    spread = 1 + 0.16 * blur * blur if stain is Stain.GRANULES else 1 + 0.10 * blur * blur
    counts: NDArray[np.int32] = np.rint(values / spread).astype(np.int32)
    counts.flags.writeable = False
    return counts


def _distance(
    along: NDArray[np.float64], across: NDArray[np.float64], radius: float, variant: int, *, is_dividing: bool
) -> NDArray[np.float64]:
    """Pixels inside of the outline (negative: outside), which has three soft corners; round before a division."""
    stretch = 1.0 if is_dividing else 1.18
    u, v = along / stretch, across * stretch
    square = u * u + v * v
    r = np.sqrt(square)
    # cos(3 phi) of the angle phi, by its polynomial
    corners = u * (u * u - 3 * v * v) / np.maximum(square * r, 1.0)
    strength = 0.0 if is_dividing else (0.06, 0.10, -0.08, -0.11)[variant]
    return radius * (1 + strength * corners) - r


def _step(inside: NDArray[np.float64], soft: float) -> NDArray[np.float64]:
    """0 outside, 1 inside, over `soft` pixels on both sides (3 t^2 - 2 t^3)."""
    t = np.clip(inside / (2 * soft) + 0.5, 0, 1)
    return t * t * (3 - 2 * t)


def _bump(distance: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """1 at distance 0, 0 from `width` on."""
    t = np.clip(1 - (distance / width) * (distance / width), 0, 1)
    return t * t


def _nucleus(
    along: NDArray[np.float64],
    across: NDArray[np.float64],
    radius: float,
    soft: float,
    variant: int,
    *,
    is_dividing: bool,
) -> NDArray[np.float64]:
    if is_dividing:  # chromosomes in a bright plate, across the way that the daughters will take
        r = np.sqrt((along * 2.4) * (along * 2.4) + across * across)
        return 3300 * _step(radius * 1.1 - r, soft)
    r = np.sqrt(along * along / 1.25 + across * across * 1.25)
    shell = 1450 * _step(radius - r, soft)
    # darker and brighter chromatin, and a nucleolus or two
    for number in range(3 + variant):
        row, column = _scattered(number, variant, radius * 0.6)
        spot = _bump(np.sqrt((along - row) * (along - row) + (across - column) * (across - column)), 3.2 + soft)
        shell *= 1 + (0.55 if number % 3 else -0.5) * spot / (1 + 0.25 * (soft - 1.2))
    return shell


def _membrane(inside: NDArray[np.float64], soft: float) -> NDArray[np.float64]:
    ring = _bump(inside - 0.5, 1.6 + soft)
    return 1350 * ring / (1 + 0.12 * (soft - 1.2)) + 260 * _step(inside, soft + 1)


def _granules(
    along: NDArray[np.float64], across: NDArray[np.float64], radius: float, soft: float, variant: int
) -> NDArray[np.float64]:
    values = 130 * _step(radius - np.sqrt(along * along / 1.3 + across * across * 1.3), soft + 2)
    for number in range(_N_GRANULES):
        row, column = _scattered(number, variant + 4, radius * 0.92)
        if row * row + column * column < (radius * _NUCLEUS) * (radius * _NUCLEUS):
            continue  # none in the nucleus
        down, right = 1.12 * row, 0.86 * column  # as long and as narrow as the outline
        r = np.sqrt((along - down) * (along - down) + (across - right) * (across - right))
        values += (1100 + 90 * (number % 9)) * _bump(r, 2.0 + soft)
    return values


def _transmitted(inside: NDArray[np.float64], soft: float) -> NDArray[np.float64]:
    edge = _bump(inside - 1, 2.2 + soft)
    halo = _bump(inside + 4 + soft, 3 + soft)
    return 260 * halo - 620 * edge + 150 * _step(inside - 4, soft + 2)


def _scattered(number: int, variant: int, radius: float) -> tuple[float, float]:
    """An offset within a circle, by number; spread evenly by two irrational steps."""
    u = (0.5 + 0.7548776662466927 * (number + 7 * variant + 1)) % 1 * 2 - 1
    v = (0.5 + 0.5698402909980532 * (number + 7 * variant + 1)) % 1 * 2 - 1
    scale = radius / max(1.0, math.sqrt(u * u + v * v))
    return u * scale, v * scale
