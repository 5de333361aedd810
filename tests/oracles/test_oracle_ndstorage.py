"""The Python reference library opens what the log writes, and finds what was sent."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import ndstorage
import pytest

from tests.oracles.sample_datasets import NAMES, SUMMARY, Sample, assert_same_pixels, key_of

pytestmark = pytest.mark.oracle


@pytest.fixture
def dataset(sample: Sample) -> Iterator[ndstorage.NDTiffDataset]:
    with contextlib.redirect_stdout(io.StringIO()):
        opened = ndstorage.Dataset(str(sample.path))
    yield opened
    opened.close()


@pytest.mark.promise("other-readers")
@pytest.mark.parametrize("sample", NAMES, indirect=True)
def test_ndstorage_finds_every_frame_as_it_was_sent(sample: Sample, dataset: ndstorage.NDTiffDataset) -> None:
    assert SUMMARY.items() <= dataset.summary_metadata.items()
    assert (dataset.major_version, dataset.minor_version) == (3, 3)
    keys = [key_of(axes) for axes in dataset.get_image_coordinates_list()]
    assert keys == [key_of(frame.axes) for frame in sample.latest]
    for frame in sample.latest:
        assert_same_pixels(dataset.read_image(**frame.axes), frame)
        assert dataset.read_metadata(**frame.axes) == frame.metadata
