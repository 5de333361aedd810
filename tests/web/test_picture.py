"""Pictures: contrast, means and facts, against numpy."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from acqstream.grid.block_mean import small_picture
from acqstream.web.previews import BINS, facts_of, jpeg_bytes

RAMP = np.arange(256 * 256, dtype=np.uint16).reshape(256, 256)


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
    facts = facts_of(RAMP, 16, (0.0, 65_535.0))
    assert (len(facts.histogram), sum(facts.histogram)) == (BINS, RAMP.size // 4)
    assert max(facts.histogram) - min(facts.histogram) < 140
    dark = facts_of(np.zeros((8, 8), np.uint16), 16, None)
    assert sum(dark.histogram) == dark.histogram[0] == 16


def test_a_jpeg_can_be_read_back() -> None:
    picture = small_picture(RAMP, 0, 65_535, 256)
    with Image.open(io.BytesIO(jpeg_bytes(picture))) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "L")
        assert np.abs(np.asarray(image).astype(int) - picture).mean() < 3
