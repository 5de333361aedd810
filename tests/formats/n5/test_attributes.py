"""attributes.json: what is taken, and what is told of what is not."""

from __future__ import annotations

import json

import pytest

import acqstream
from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat, UnsupportedFeature
from tests.formats.n5.n5_samples import block, make_dataset, put_block

WRONG = {
    "a float": ({"dimensions": [4.5, 2]}, "'dimensions.*' must be"),
    "negative": ({"dimensions": [4, -2]}, "'dimensions.*' must be"),
    "true": ({"dimensions": [4, True]}, "'dimensions.*' must be"),
    "more than 64 bits": ({"dimensions": [4, 1 << 64]}, "'dimensions.*' must be"),
    "no list": ({"dimensions": 4}, "'dimensions' must be a list, not 4"),
    "no dimensions": ({"dimensions": [], "blockSize": []}, "'dimensions.*' must be"),
    "many dimensions": ({"dimensions": [1] * 33, "blockSize": [1] * 33}, "'dimensions.*' must be"),
    "an empty block": ({"blockSize": [0, 2]}, "'blockSize.*' must be"),
    "another rank": ({"blockSize": [2, 2, 2]}, "2 dimensions, but a blockSize of 3"),
    "a huge block": ({"blockSize": [1 << 31, 1 << 31]}, "at most 2147483647 are allowed"),
    "an unknown type": ({"dataType": "float16"}, "dataType is 'float16'"),
    "no type": ({"dataType": None}, "dataType is None"),
    "no compression": ({"compression": None}, "compression is None"),
    "compression without type": ({"compression": {"level": 5}}, "expected an object with a type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_attributes_are_named(tmp_path, name):
    attributes, text = WRONG[name]
    folder = make_dataset(tmp_path / "a.n5" / "d", [4, 2], [2, 2], **attributes)
    with pytest.raises(CorruptDataset, match=text) as caught:
        acqstream.open(folder)
    assert caught.value.path == str(folder / "attributes.json")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"dataType": "string"}, "dataType string is not a pixel type"),
        ({"dataType": "object"}, "dataType object is not a pixel type"),
        ({"compression": {"type": "jpeg"}}, "unknown compression 'jpeg', expected one of raw, gzip"),
    ],
)
def test_what_is_not_handled_is_named(tmp_path, attributes, text):
    folder = make_dataset(tmp_path / "a.n5" / "d", [4, 2], [2, 2], **attributes)
    with pytest.raises(UnsupportedFeature, match=text):
        acqstream.open(folder)


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", '{"dimensions": ' + "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"]
)
def test_attributes_that_are_no_json_object_are_named(tmp_path, text):
    folder = tmp_path / "a.n5" / "d"
    folder.mkdir(parents=True)
    (folder / "attributes.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptDataset, match=r"attributes\.json"):
        acqstream.open(folder)


def test_attributes_of_gigabytes_are_not_read(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [4, 2], [2, 2])
    with (folder / "attributes.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptDataset, match="has 1099511627776 bytes"):
        acqstream.open(folder)


def test_what_old_and_foreign_writers_add_or_leave_out_does_not_matter(tmp_path):
    folder = make_dataset(
        tmp_path / "a.n5" / "d",
        [2, 2],
        [2, 2],
        compression={"type": "raw", "id": "raw", "level": "x"},
        axes=3,
        resolution={},
    )
    put_block(folder, (0, 0), block((2, 2), [1, 2, 3, 4]))
    with acqstream.open(folder) as ds:
        assert ds.levels[0].read().tolist() == [[1, 2], [3, 4]]
        assert ds.summary_metadata["axes"] == 3
    attributes = json.loads((folder / "attributes.json").read_text())
    del attributes["compression"]
    (folder / "attributes.json").write_text(json.dumps({**attributes, "compressionType": "raw"}))  # before 1.0.0
    with acqstream.open(folder) as ds:
        assert ds.levels[0].read().tolist() == [[1, 2], [3, 4]]


def test_dimensions_of_zero_are_an_empty_array(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [0, 5], [2, 2])
    with acqstream.open(folder) as ds:
        assert (ds.shape, ds.levels[0].read().shape, ds.levels[0].missing_count) == ((5, 0), (5, 0), 0)


def test_an_array_of_absurd_size_opens_and_parts_of_it_are_read(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [1 << 40, 1 << 20], [2, 2])
    put_block(folder, (0, 0), block((2, 2), [1, 2, 3, 4]))
    with acqstream.open(folder) as ds:
        assert ds.shape == (1 << 20, 1 << 40)
        assert ds.levels[0].read((slice(0, 3), slice(0, 3))).tolist() == [[1, 2, 0], [3, 4, 0], [0, 0, 0]]
        assert ds.levels[0].read((-1, slice(-3, None))).tolist() == [0, 0, 0]
        assert ds.levels[0].missing(limit=1) == [{"y": 0, "x": 1}]
        assert ds.levels[0].missing_count == (1 << 19) * (1 << 39) - 1


def test_a_group_without_arrays_says_so(tmp_path):
    (tmp_path / "a.n5" / "empty").mkdir(parents=True)
    with pytest.raises(DatasetError, match="without any array"):
        acqstream.open(tmp_path / "a.n5" / "empty")
    with pytest.raises(DatasetError, match="without any array"):
        acqstream.open(tmp_path / "a.n5")


def test_a_folder_of_something_else_is_not_n5(tmp_path):
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "notes.json").write_text("{}")
    (tmp_path / "a" / "page.xml").write_text("<a/>")
    for path in ("a", "a/1", "a/notes.json", "a/page.xml"):
        with pytest.raises(UnknownFormat, match=r"n5: attributes\.json"):
            acqstream.open(tmp_path / path)
