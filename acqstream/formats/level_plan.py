"""Levels and chunks of an array, chosen before it is stored. Pure. A size of 0 is not known yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.array_options import MAX_LEVELS

PLANE = ("y", "x")
PLANE_SIDE = 512  # pixels: in most formats without a count there are levels until a plane fits into this


def check_axes(label: str, axes: Sequence[str]) -> None:
    """Raise ConfigError for an array without y or x, or with an axis twice. label: the name of the format."""
    if not set(PLANE) <= set(axes) or len(set(axes)) < len(axes):
        raise ConfigError(f"{label} needs an array with axes y and x, each once, not {tuple(axes)}")


def halved_plane(last: ArraySpec) -> tuple[int, ...]:
    """The factors of the level after `last`: half as long along y and x, never shorter than one item."""
    sizes = zip(last.axes, last.factors, last.shape, strict=True)
    return tuple(factor * (2 if name in PLANE and size > 1 else 1) for name, factor, size in sizes)


def reduced_levels(
    full: ArraySpec,
    count: int | None,
    plane: tuple[int, int] = (PLANE_SIDE, PLANE_SIDE),
    next_factors: Callable[[ArraySpec], tuple[int, ...]] = halved_plane,
) -> list[ArraySpec]:
    """The levels of an array, the full resolution first: `count`; None: until a plane fits into this one (y, x).

    next_factors gives those of the level after the one that it gets; the same ones end the levels.
    """
    levels = [full]
    while len(levels) < (MAX_LEVELS if count is None else count):
        last = levels[-1]
        sides = (last.shape[last.axes.index(name)] for name in PLANE)
        if count is None and all(size <= side for size, side in zip(sides, plane, strict=True)):
            break
        factors = next_factors(last)
        if factors == last.factors:
            break
        levels.append(full.reduced(factors))
    return levels


def chunk_shape(level: ArraySpec, sides: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a chunk with these sides, 1 along other axes, and never longer than the level."""
    wanted = ((sides.get(name, 1), size) for name, size in zip(level.axes, level.shape, strict=True))
    return tuple(min(side, size) if size else side for side, size in wanted)
