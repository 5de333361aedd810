"""The document that tells our readers how much is there."""

from __future__ import annotations

import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.wkw.foreign import read_depths
from acqstream.formats.wkw.layout import encode_rows
from acqstream.storage.stores.data_path import place_of


def test_the_file_leads_back(tmp_path):
    path = tmp_path / "acqstream-stored.json"
    assert read_depths(place_of(path)) is None
    path.write_bytes(encode_rows({(0, 0): 3, (1, 12): 2}, [32, 16]))
    assert read_depths(place_of(path)) == {(0, 0): 96, (1, 12): 32}


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"0": 1}', '{"0/0": -1}', '{"0/0": "1"}', '{"a/b": 1}', '{"0/9999999999": 1}']
)
def test_a_file_that_cannot_be_is_named(tmp_path, text):
    path = tmp_path / "acqstream-stored.json"
    path.write_text(text)
    with pytest.raises(CorruptDataset, match=r"acqstream-stored\.json"):
        read_depths(place_of(path))
