"""Pictures: contrast, means and facts, against numpy."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from acqstream.web.previews import BINS, facts_of, jpeg_bytes, small_picture

RAMP = np.arange(256 * 256, dtype=np.uint16).reshape(256, 256)


def expected_grey(frame: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip(np.round((frame.astype(np.float64) - low) * 255 / (high - low)), 0, 255)


@given(
    low=st.integers(0, 60_000),
    width=st.integers(1, 60_000),
    dtype=st.sampled_from(["uint8", "uint16", "float32", "int32"]),
)
def test_black_and_white(low: int, width: int, dtype: str) -> None:
    frame = (np.random.default_rng(1).integers(0, 65_536, (40, 50)) % (256 if dtype == "uint8" else 65_536)).astype(
        dtype
    )
    picture = small_picture(frame, low, low + width, 64)
    assert picture.dtype == np.uint8
    assert np.abs(picture - expected_grey(frame, low, low + width)).max() <= 1


def test_a_large_frame_is_shown_by_means_of_blocks() -> None:
    frame = np.kron(np.array([[0, 100], [200, 1000]], np.uint16), np.ones((96, 96), np.uint16))
    picture = small_picture(frame, 0, 1000, 64)
    assert picture.shape == (64, 64)
    corners = [picture[3, 3], picture[3, -3], picture[-3, 3], picture[-3, -3]]
    assert [int(corner) for corner in corners] == [0, 26, 51, 255]


def test_colours_stay() -> None:
    frame = np.random.default_rng(2).integers(0, 256, (128, 64, 3)).astype(np.uint8)
    assert np.array_equal(small_picture(frame, 0, 1, 128), frame)
    assert small_picture(frame, 0, 1, 64).shape == (64, 32, 3)


def test_the_frame_chooses_its_contrast() -> None:
    frame = np.full((200, 200), 1000, np.uint16)
    frame[::20, ::20] = 65_535  # hot pixels
    frame[50:150, 50:150] = 3000
    facts = facts_of(frame, 16, None)
    assert facts.auto_low == 1000
    assert facts.auto_high >= 3000
    assert (facts.low, facts.high) == (facts.auto_low, facts.auto_high)
    held = facts_of(frame, 16, (50.0, 60.0))
    assert (held.low, held.high, held.auto_low) == (50.0, 60.0, 1000)


@pytest.mark.parametrize(("bits", "share"), [(12, 0.25), (13, 0.0), (None, None)])
def test_saturation_goes_by_significant_bits(bits: int | None, share: float | None) -> None:
    frame = np.full((64, 64), 500, np.uint16)
    frame[:32, :32] = 4095
    assert facts_of(frame, bits, None).saturated == share


def test_the_histogram_counts_every_fourth_pixel() -> None:
    facts = facts_of(RAMP, 16, (0.0, 65_535.0), top=65_535.0)
    assert (len(facts.histogram), sum(facts.histogram)) == (BINS, RAMP.size // 4)
    assert max(facts.histogram) - min(facts.histogram) < 140
    dark = facts_of(np.zeros((8, 8), np.uint16), 16, None)
    assert sum(dark.histogram) == dark.histogram[0] == 16


def test_a_jpeg_can_be_read_back() -> None:
    picture = small_picture(RAMP, 0, 65_535, 256)
    with Image.open(io.BytesIO(jpeg_bytes(picture))) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "L")
        assert np.abs(np.asarray(image).astype(int) - picture).mean() < 3
