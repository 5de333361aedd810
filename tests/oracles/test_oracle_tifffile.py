"""tifffile reads what the log writes: the pages of every stack, and the dataset as one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tifffile

from acqstream.formats.ndtiff.layout import resolution
from tests.oracles.sample_datasets import NAMES, PLANS, SUMMARY, Sample, assert_same_pixels

pytestmark = pytest.mark.oracle

# A series is one array: a frame for every combination of axis values, all of one shape.
SERIES = [name for name, plan in PLANS.items() if len(set(plan.shapes)) == 1]
AXIS_CODES = {"time": "T", "channel": "C", "z": "Z", "position": "R", "row": "K", "column": "J"}
METADATA_TAG = 51123
CENTIMETER = 3


@pytest.mark.promise("other-readers")
@pytest.mark.parametrize("sample", NAMES, indirect=True)
def test_tifffile_finds_every_page_in_order(sample: Sample, caplog: pytest.LogCaptureFixture) -> None:
    found = 0
    for path in sample.stacks:
        with tifffile.TiffFile(path) as stack:
            assert stack.micromanager_metadata is not None
            assert SUMMARY.items() <= stack.micromanager_metadata["Summary"].items()
            for page in stack.pages:
                assert isinstance(page, tifffile.TiffPage)
                frame = sample.frames[found]
                assert_same_pixels(page.asarray(), frame)
                assert page.tags[METADATA_TAG].value == frame.metadata
                assert page.tags["XResolution"].value == page.tags["YResolution"].value == resolution(0.65)
                assert page.tags["ResolutionUnit"].value == CENTIMETER
                found += 1
    assert found == len(sample.frames)
    # In the middle of a run the last page points to where the next one will be: behind the end of the copied file.
    words = [record.getMessage() for record in caplog.records]
    assert all(sample.growing and "invalid page offset" in text for text in words), words


@pytest.mark.parametrize("sample", SERIES, indirect=True)
def test_tifffile_finds_the_dataset_as_one_array_whichever_stack_is_opened(
    sample: Sample, caplog: pytest.LogCaptureFixture
) -> None:
    for path in sample.stacks:
        with tifffile.TiffFile(path) as stack:
            array, codes = whole_array(stack)
        assert array.size == sum(frame.pixels.size for frame in sample.latest)
        for frame, position in zip(sample.latest, positions_in_array(sample, codes), strict=True):
            assert_same_pixels(array[position], frame)
    assert not caplog.records


def whole_array(stack: tifffile.TiffFile) -> tuple[np.ndarray, str]:
    """tifffile's array of a dataset, and the codes of its axes: those of length 1 too."""
    series: Any = stack.series
    is_new = callable(series)  # since 2026.5
    one = series(squeeze=False)[0] if is_new else series[0]
    assert one.kind == "ndtiff"
    shape, codes = (one.shape, one.axes) if is_new else (one.get_shape(False), one.get_axes(False))
    return one.asarray().reshape(shape), codes


def positions_in_array(sample: Sample, codes: str) -> list[tuple[int, ...]]:
    """Where each frame is in tifffile's array: integers from the smallest on, strings as they first appear."""
    names = [name for code in codes for name, own in AXIS_CODES.items() if own == code]
    places: dict[str, list[Any]] = {}
    for name in names:
        values = list(dict.fromkeys(frame.axes[name] for frame in sample.latest))
        places[name] = list(values) if isinstance(values[0], str) else sorted(values, key=int)
    return [tuple(places[name].index(frame.axes[name]) for name in names) for frame in sample.latest]
