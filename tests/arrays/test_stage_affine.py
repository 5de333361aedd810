"""The map from pixels to the stage, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.description.stage import StageAffine, find_affine

PLACES = st.floats(-1e5, 1e5)


@st.composite
def affines(draw: st.DrawFn) -> StageAffine:
    """Rotated by any angle, stretched a little, and mirrored or not."""
    angle, size = draw(st.floats(-math.pi, math.pi)), draw(st.floats(0.01, 20))
    stretch, sign = draw(st.floats(0.5, 2)), draw(st.sampled_from((1, -1)))
    cosine, sine = math.cos(angle), math.sin(angle)
    return StageAffine(size * cosine, -sign * size * stretch * sine, size * sine, sign * size * stretch * cosine)


@given(affines(), PLACES, PLACES)
def test_pixels_to_the_stage_and_back(affine: StageAffine, column: float, row: float) -> None:
    assert affine.to_pixels(*affine.to_stage(column, row)) == pytest.approx((column, row), abs=1e-6)
    assert affine.to_stage(*affine.to_pixels(column, row)) == pytest.approx((column, row), abs=1e-6)


@given(affines(), PLACES, PLACES)
def test_numpy_finds_the_same(affine: StageAffine, x: float, y: float) -> None:
    matrix = np.array([[affine.xx, affine.xy], [affine.yx, affine.yy]])
    assert affine.to_pixels(x, y) == pytest.approx(np.linalg.solve(matrix, [x, y]), rel=1e-6, abs=1e-6)
    assert affine.pixel_size_um == pytest.approx(math.sqrt(abs(np.linalg.det(matrix))))


@given(affines(), st.floats(-1e4, 1e4))
def test_every_way_of_writing_it(affine: StageAffine, shift: float) -> None:
    rows = (affine.xx, affine.xy, shift, affine.yx, affine.yy, -shift)
    columns = (affine.xx, affine.yx, affine.xy, affine.yy)
    assert find_affine({"PixelSizeAffine": ";".join(map(repr, rows))}) == affine
    assert find_affine({"pixel_size_affine": list(rows)}) == affine
    assert find_affine({"image_infos": [{"pixel_size_affine": list(rows)}]}) == affine
    assert find_affine({"AffineTransform": "_".join(map(repr, columns))}) == affine


def test_a_camera_rotated_by_90_degrees_and_one_that_is_mirrored() -> None:
    rotated = find_affine({"PixelSizeAffine": "0.0;-0.5;0.0;0.5;0.0;0.0"})
    assert rotated is not None
    assert rotated.to_stage(10, 0) == (0, 5)
    assert rotated.to_pixels(0, 5) == (10, 0)
    assert rotated.pixel_size_um == 0.5
    mirrored = find_affine({"PixelSizeAffine": "-0.5;0.0;0.0;0.0;0.5;0.0"})
    assert mirrored is not None
    assert mirrored.to_pixels(5, 5) == (-10, 10)


@pytest.mark.parametrize(
    "value",
    [
        "0.0;0.0;0.0;0.0;0.0;0.0",
        "1.0;0.0;0.0;0.0;1.0;0.0",  # what Micro-Manager writes where nothing was measured
        "0.5;0.5;0.0;0.5;0.5;0.0",
        "0.5;0.5;0.0;0.5;0.50000001;0.0",
        "1;0;0;0;1",
        "nan;0;0;0;1;0",
        "1e308;0;0;0;1e308;0",
        "a;b;c;d;e;f",
        "Undefined",
        "1.0_0.0_0.0_1.0",
        "",
        [0.5, 0, 0, 0, None, 0],
        [],
        7,
        None,
        {"xx": 1},
    ],
)
def test_what_is_no_map(value: object) -> None:
    for key in ("PixelSizeAffine", "pixel_size_affine", "AffineTransform"):
        assert find_affine({key: value}) is None
    assert find_affine({"image_infos": value}) is None
    assert find_affine({"image_infos": [{"pixel_size_affine": value}]}) is None
