"""The Java reference library opens what the log writes, and finds what was sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.oracles import java_reader
from tests.oracles.java_reader import JavaDataset
from tests.oracles.sample_datasets import NAMES, SUMMARY, Sample, key_of

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first one may fetch the library


@pytest.fixture(scope="module")
def found(samples: Mapping[str, Sample], tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, JavaDataset]:
    paths = [sample.path for sample in samples.values()]
    try:
        return java_reader.read(paths, tmp_path_factory.mktemp("classes"))
    except java_reader.JavaUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("sample", NAMES, indirect=True)
def test_java_finds_every_frame_as_it_was_sent(sample: Sample, found: Mapping[Path, JavaDataset]) -> None:
    dataset = found[sample.path]
    assert not dataset.error
    assert SUMMARY.items() <= dataset.summary.items()
    images = {key_of(image["axes"]): image for image in dataset.images}
    assert len(images) == len(dataset.images) == len(sample.latest)
    for frame in sample.latest:
        image = images[key_of(frame.axes)]
        assert (image["height"], image["width"]) == frame.pixels.shape[:2]
        assert (image["bits"], image["rgb"]) == (frame.bits, frame.pixels.ndim == 3)
        assert image["sha256"] == hashlib.sha256(frame.pixels.tobytes()).hexdigest(), frame.axes
        assert image["metadata"] == frame.metadata
