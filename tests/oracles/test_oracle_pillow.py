"""Pillow reads the pages of every stack that the log writes."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from tests.oracles.sample_datasets import NAMES, Sample, assert_same_pixels

pytestmark = pytest.mark.oracle

METADATA_TAG = 51123


@pytest.mark.promise("other-readers")
@pytest.mark.parametrize("sample", NAMES, indirect=True)
def test_pillow_finds_every_page_in_order(sample: Sample) -> None:
    found = 0
    for path in sample.stacks:
        with Image.open(path) as stack, warnings.catch_warnings():
            assert isinstance(stack, TiffImagePlugin.TiffImageFile)
            if sample.growing:
                # In the middle of a run the last page points to where the next one will be: behind the end of the file.
                warnings.filterwarnings("ignore", "Corrupt EXIF data.  Expecting to read 2 bytes but only got 0")
            for _ in pages_of(stack, chain_goes_on=sample.growing and path == sample.stacks[-1]):
                frame = sample.frames[found]
                assert_same_pixels(np.asarray(stack), frame)
                assert json.loads(stack.tag_v2[METADATA_TAG]) == frame.metadata
                found += 1
    assert found == len(sample.frames)


def pages_of(stack: Image.Image, *, chain_goes_on: bool) -> Iterator[int]:
    """Page after page, up to the end; where the chain goes on behind the end of the file Pillow cannot count them."""
    for page in itertools.count():
        try:
            stack.seek(page)
        except EOFError:
            assert not chain_goes_on
            return
        except TypeError:
            if not chain_goes_on:
                raise
            return
        yield page
