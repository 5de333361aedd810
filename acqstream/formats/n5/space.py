"""Axes, pixel size and place of a level, as the viewers of N5 write and read them.

Three ways are in use, none of them part of the specification: `pixelResolution` with `downsamplingFactors` on each
level (n5-viewer, the Fiji plug-ins), `transform` (COSEM), and `axes`, `resolution` and `units` (neuroglancer on the
group, tensorstore on the dataset). Whatever does not have one item per axis is passed over, as the viewers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.model.metadata import finite_number

Attributes = Mapping[str, Any]

_SPATIAL = ("x", "y", "z")  # of an array that does not name its axes, N5 order


@dataclass(frozen=True, slots=True)
class Space:
    """As the fields of ArraySpec: an item per axis, slowest axis first."""

    axes: tuple[str, ...]
    factors: tuple[int, ...]
    scale: tuple[float, ...]
    units: tuple[str, ...]
    translation: tuple[float, ...]


def read_space(own: Attributes, groups: Sequence[Attributes], ndim: int, level: int) -> Space:
    """Space of a dataset of `ndim` dimensions; groups are the attributes of the folders above it, nearest first."""
    axes = _axes(own, groups, ndim)
    factors = _factors(own, groups, ndim, level)
    moved = _transform(own.get("transform"), axes, factors, ndim)
    if moved is not None:
        return moved
    nothing = ("",) * ndim
    scale = _numbers(own.get("resolution"), ndim)
    if scale is not None:  # that of this level
        full = tuple(size / factor for size, factor in zip(scale, factors, strict=True))
        return Space(axes, factors, scale, _texts(own.get("units"), ndim) or nothing, centres(full, factors))
    base, units = _base(own, groups, ndim)
    if base is None:
        return Space(axes, factors, tuple(map(float, factors)), nothing, centres((1.0,) * ndim, factors))
    scale = tuple(size * factor for size, factor in zip(base, factors, strict=True))
    return Space(axes, factors, scale, units or nothing, centres(base, factors))


def _axes(own: Attributes, groups: Sequence[Attributes], ndim: int) -> tuple[str, ...]:
    for attributes in (own, *groups):
        names = _texts(attributes.get("axes"), ndim)
        if names is not None and len(set(names)) == ndim and all(names):
            return names
    return tuple(_SPATIAL[axis] if axis < len(_SPATIAL) else f"dim{axis}" for axis in reversed(range(ndim)))


def _factors(own: Attributes, groups: Sequence[Attributes], ndim: int, level: int) -> tuple[int, ...]:
    found = _numbers(own.get("downsamplingFactors"), ndim)
    for attributes in groups:
        for key in ("downsamplingFactors", "scales"):
            listed = attributes.get(key)
            if found is None and isinstance(listed, list) and 0 <= level < len(listed):
                found = _numbers(listed[level], ndim)
    if found is None or any(factor < 1 or factor % 1 for factor in found):
        return (2 ** min(level, 30),) * ndim
    return tuple(map(int, found))


def _base(
    own: Attributes, groups: Sequence[Attributes], ndim: int
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None]:
    """Pixel size of the full resolution and its units."""
    for attributes in (own, *groups):
        given = attributes.get("pixelResolution")
        unit = given.get("unit") if isinstance(given, dict) else None
        size = _numbers(given.get("dimensions") if isinstance(given, dict) else given, ndim)
        if size is not None:
            listed = next((found for group in groups if (found := _texts(group.get("units"), ndim))), None)
            return size, listed or ((unit,) * ndim if isinstance(unit, str) else None)  # listed: one for each axis
    for attributes in groups:
        size = _numbers(attributes.get("resolution"), ndim)
        if size is not None:
            return size, _texts(attributes.get("units"), ndim)
    return None, None


def _transform(given: object, axes: tuple[str, ...], factors: tuple[int, ...], ndim: int) -> Space | None:
    """COSEM: slowest axis first unless it says otherwise; scale is that of this level."""
    if not isinstance(given, dict):
        return None
    is_reversed = given.get("ordering") != "F"
    scale = _numbers(given.get("scale"), ndim, is_reversed=is_reversed)
    if scale is None:
        return None
    names = _texts(given.get("axes"), ndim, is_reversed=is_reversed)
    units = _texts(given.get("units"), ndim, is_reversed=is_reversed)
    place = _numbers(given.get("translate"), ndim, is_reversed=is_reversed, may_be_negative=True)
    named = names if names is not None and len(set(names)) == ndim and all(names) else axes
    return Space(named, factors, scale, units or ("",) * ndim, place or (0.0,) * ndim)


def centres(base: Sequence[float], factors: Sequence[int]) -> tuple[float, ...]:
    """Centre of the first item, as levels are means of blocks of items."""
    return tuple((factor - 1) / 2 * size for size, factor in zip(base, factors, strict=True))


def _numbers(
    given: object, ndim: int, *, is_reversed: bool = False, may_be_negative: bool = False
) -> tuple[float, ...] | None:
    """`ndim` finite numbers, slowest axis first; given in N5 order unless is_reversed. None if they are not that."""
    if not isinstance(given, list) or len(given) != ndim:
        return None
    numbers: list[float] = []
    for value in given:
        number = finite_number(value)
        if number is None or (number <= 0 and not may_be_negative):
            return None
        numbers.append(number)
    return tuple(numbers if is_reversed else reversed(numbers))


def _texts(given: object, ndim: int, *, is_reversed: bool = False) -> tuple[str, ...] | None:
    if not isinstance(given, list) or len(given) != ndim or not all(isinstance(value, str) for value in given):
        return None
    return tuple(given if is_reversed else reversed(given))


def level_attributes(spec: ArraySpec, full: ArraySpec) -> dict[str, Any]:
    """Attributes for n5-viewer, Fiji and neuroglancer on a level of `full`, besides the mandatory ones."""
    return {
        "downsamplingFactors": [*reversed(spec.factors)],
        "pixelResolution": {"unit": full.units[-1], "dimensions": [*reversed(full.scale)]},
    }


def group_attributes(levels: Sequence[ArraySpec]) -> dict[str, Any]:
    """Attributes for neuroglancer and Paintera on the group of these levels."""
    full = levels[0]
    return {
        "downsamplingFactors": [[*reversed(level.factors)] for level in levels],
        "resolution": [*reversed(full.scale)],
        "units": [*reversed(full.units)],
        "axes": [*reversed(full.axes)],
        "multiScale": True,
    }


def cosem_transform(spec: ArraySpec) -> dict[str, Any]:
    """The `transform` of a level, slowest axis first."""
    return {
        "axes": [*spec.axes],
        "scale": [*spec.scale],
        "translate": [*spec.translation],
        "units": [*spec.units],
    }


def array_attributes(spec: ArraySpec) -> dict[str, Any]:
    """Attributes that tensorstore reads on a dataset of any rank."""
    return {
        "axes": [*reversed(spec.axes)],
        "resolution": [*reversed(spec.scale)],
        "units": [*reversed(spec.units)],
        "downsamplingFactors": [*reversed(spec.factors)],
    }
