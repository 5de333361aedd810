"""Morton codes against the definition, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.formats.wkw.codec import COORDINATE_BITS, morton_code

coordinate = st.integers(0, 2**COORDINATE_BITS - 1)


def by_definition(x: int, y: int, z: int) -> int:
    return sum(
        (value >> bit & 1) << (3 * bit + axis) for axis, value in enumerate((x, y, z)) for bit in range(COORDINATE_BITS)
    )


@pytest.mark.parametrize(
    ("x", "y", "z", "code"),
    [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 0, 2), (1, 1, 0, 3), (0, 0, 1, 4), (2, 0, 0, 8), (0, 2, 0, 16), (0, 0, 2, 32)],
)
def test_first_codes(x, y, z, code):
    assert morton_code(x, y, z) == code


@given(coordinate, coordinate, coordinate)
def test_codes_are_the_bits_in_turn(x, y, z):
    assert int(morton_code(x, y, z)) == by_definition(x, y, z)


def test_a_cube_of_codes_is_a_permutation():
    side = np.arange(16)
    codes = morton_code(side[None, None, :], side[None, :, None], side[:, None, None])
    assert sorted(codes.ravel()) == list(range(16**3))


def test_coordinates_beyond_the_bits_are_refused():
    with pytest.raises(ValueError, match="2097152 has more than 21 bits"):
        morton_code([0, 2**21], 0, 0)
