"""The sample datasets, written once for all oracles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.oracles import sample_datasets
from tests.oracles.sample_datasets import Sample


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sample]:
    return sample_datasets.write_all(tmp_path_factory.mktemp("oracles"))


@pytest.fixture
def sample(samples: Mapping[str, Sample], request: pytest.FixtureRequest) -> Sample:
    """The sample whose name is the parameter."""
    return samples[request.param]
