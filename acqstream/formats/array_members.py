"""Members: the arrays of a container that keeps one for each position along some axes, in folders. Pure.

Members are numbered in rows, the last axis fastest, if the sizes of all axes but the first are known. Else by the bits
of their positions taken in turn, the last axis lowest: these numbers depend on no size, and there are gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from acqstream.arrays.array_spec import ArraySpec, Position

Numbering = Literal["rows", "bits"]

MAX_MEMBERS = 1_000_000  # each has folders
_MAX_DIGITS = 19


def has_too_many(sizes: Sequence[int]) -> bool:
    """Return True if axes of these sizes make more than MAX_MEMBERS. A size of 0 is not known, and counts as 1."""
    return math.prod(max(1, size) for size in sizes) > MAX_MEMBERS


def member_part(spec: ArraySpec, leading: int) -> ArraySpec:
    """A level of a member: without the first axes, those that are folders."""
    return replace(
        spec,
        axes=spec.axes[leading:],
        shape=spec.shape[leading:],
        chunk_shape=spec.chunk_shape[leading:],
        block_shape=spec.block_shape[leading:],
        shard_shape=spec.shard_shape[leading:],
        factors=spec.factors[leading:],
        scale=spec.scale[leading:],
        units=spec.units[leading:],
        translation=spec.translation[leading:],
    )


def stacked(part: ArraySpec, axes: Sequence[str], sizes: Sequence[int]) -> ArraySpec:
    """An array of such parts: the inverse of `member_part`, with a part for each position along these axes."""
    ones = (1,) * len(axes)
    return replace(
        part,
        axes=(*axes, *part.axes),
        shape=(*sizes, *part.shape),
        chunk_shape=(*ones, *part.chunk_shape) if part.chunk_shape else (),
        factors=(*ones, *part.factors),
        scale=(*map(float, ones), *part.scale),
        units=(*("" for _ in axes), *part.units),
        translation=(*(0.0 for _ in axes), *part.translation),
    )


def numbering_of(sizes: Sequence[int]) -> Numbering:
    """The numbering of a new container with axes of these sizes; 0 is not known."""
    return "rows" if all(sizes[1:]) else "bits"


def member_number(member: Sequence[int], sizes: Sequence[int], numbering: Numbering) -> int:
    """The number of a member."""
    number = 0
    if numbering == "rows":
        for at, size in zip(member, sizes, strict=True):
            number = number * size + at
        return number
    # Bit b of the axis that is n-th from the last is bit b * axes + n of the number.
    for bit in range(max((at.bit_length() for at in member), default=0)):
        for axis, at in enumerate(reversed(member)):
            number |= (at >> bit & 1) << (bit * len(member) + axis)
    return number


def numbered_member(number: int, sizes: Sequence[int], numbering: Numbering) -> Position:
    """The inverse of `member_number`."""
    found = [0] * len(sizes)
    if not sizes:
        return ()
    if numbering == "rows":
        for axis in range(len(sizes) - 1, 0, -1):
            number, found[axis] = divmod(number, max(1, sizes[axis]))
        found[0] = number
        return tuple(found)
    for bit in range(number.bit_length()):
        axis = len(sizes) - 1 - bit % len(sizes)
        found[axis] |= (number >> bit & 1) << (bit // len(sizes))
    return tuple(found)


def number_after(prefix: str, name: str) -> int | None:
    """The number in a name that begins with the prefix and goes on with digits; None for any other name."""
    digits = name.removeprefix(prefix)
    is_number = name.startswith(prefix) and digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
    return int(digits) if is_number else None


def is_plain_number(text: str) -> bool:
    """Return True for digits as `str` writes a number, so that two names never mean one position."""
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0") and len(text) <= _MAX_DIGITS


def numbers_after(prefixes: Sequence[str], names: Sequence[str]) -> Position | None:
    """The numbers in names that begin with these prefixes, one each; None for any other names."""
    if len(names) != len(prefixes):
        return None
    found = [number_after(prefix, name) for prefix, name in zip(prefixes, names, strict=True)]
    return tuple(number for number in found if number is not None) if None not in found else None
