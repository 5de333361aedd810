"""Groups that hold images: what they list, and how a place is told from others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorstore

from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.ome_zarr.foreign import detect, open_array
from acqstream.formats.ome_zarr.hierarchy import image_paths, read_node
from acqstream.storage.stores.data_path import DataPath, data_path_of
from tests.formats.ome_zarr.ome_zarr_golden import EXPECTED, GOLDEN


def listed(place: DataPath) -> list[str]:
    """The images of a group, in order."""
    store = place.store(follows_links=False)
    node = read_node(store)
    assert node is not None
    return list(image_paths(store, node))


@pytest.mark.parametrize("entry", EXPECTED["collections"], ids=lambda entry: entry["path"])
def test_that_the_images_are_listed_in_order(entry: dict[str, Any]) -> None:
    place = data_path_of(GOLDEN / entry["path"])
    assert listed(place) == entry["images"]
    with pytest.raises(DatasetError, match=r"open the path of one image") as caught:
        open_array(place)
    assert all(path in str(caught.value) for path in entry["images"])
    for path in entry["images"]:
        assert open_array(place / path)


def test_that_a_plain_group_lists_its_children() -> None:
    with pytest.raises(DatasetError, match=r"a Zarr group, not one image; .*: plate$"):
        open_array(data_path_of(GOLDEN / "aq_plate.ome.zarr"))


def _create(folder: Path, schema: dict[str, Any]) -> None:
    """An array by tensorstore."""
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}, "create": True, "dtype": "uint16"}
    tensorstore.open(spec, **schema).result()


def _write(folder: Path, ome: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}}
    (folder / "zarr.json").write_text(json.dumps(document), encoding="utf-8")


def test_that_a_long_list_is_cut(tmp_path: Path) -> None:
    _write(tmp_path, {"labels": [f"cells{number}" for number in range(205)]})
    with pytest.raises(DatasetError, match=r"cells0, .*cells199 and 5 more$") as caught:
        open_array(data_path_of(tmp_path))
    assert "cells200" not in str(caught.value)


def test_that_a_group_lists_all_that_is_in_it(tmp_path: Path) -> None:
    for group in ("", "masks", "masks/deep", "tables", "empty"):
        _write(tmp_path / "a.zarr" / group, {})
    for path in ("raw", "masks/nuclei", "masks/deep/cells", "tables/0"):
        _create(tmp_path / "a.zarr" / path, {"shape": [4, 4]})
    with pytest.raises(DatasetError, match=r": masks/deep/cells, masks/nuclei, raw, tables/0$"):
        open_array(data_path_of(tmp_path / "a.zarr"))
    _write(tmp_path / "a.zarr", {"bioformats2raw.layout": 3})  # a series lists images, and has more
    _write(tmp_path / "a.zarr" / "OME", {"series": ["0"]})
    with pytest.raises(DatasetError, match=r": 0, masks/deep/cells, masks/nuclei, raw, tables/0$"):
        open_array(data_path_of(tmp_path / "a.zarr"))


def test_that_distances_of_tensorstore_are_read(tmp_path: Path) -> None:
    _create(tmp_path / "a.zarr", {"shape": [2, 2, 4, 4], "dimension_units": ["2 s", None, "0.5 um", "nm"]})
    (level,) = open_array(data_path_of(tmp_path / "a.zarr"))
    assert level.spec.units == ("s", "", "um", "um")
    assert level.spec.scale == pytest.approx((2.0, 1.0, 0.5, 0.001))


def test_that_an_empty_group_says_so(tmp_path: Path) -> None:
    _write(tmp_path, {})
    with pytest.raises(DatasetError, match=r"without any image"):
        open_array(data_path_of(tmp_path))


@pytest.mark.parametrize("path", ["../x", "/x", "", "a//b", 3])
def test_that_paths_that_lead_out_are_refused(tmp_path: Path, path: object) -> None:
    _write(tmp_path, {"plate": {"wells": [{"path": path}]}})
    with pytest.raises(CorruptDataset, match=r"path"):
        listed(data_path_of(tmp_path))


def test_that_0_5_wins_beside_0_4(tmp_path: Path) -> None:
    _write(tmp_path, {"labels": ["new"]})
    (tmp_path / ".zattrs").write_text('{"labels": ["old"]}', encoding="utf-8")
    assert listed(data_path_of(tmp_path)) == ["new"]


def test_kinds_of_places(tmp_path: Path) -> None:
    image = GOLDEN / "oz_04.ome.zarr"
    assert open_array(data_path_of(image))
    assert open_array(data_path_of(image / ".zattrs"))
    assert len(open_array(data_path_of(GOLDEN / "zp_plain.ome.zarr" / "0"))) == 1
    assert len(open_array(data_path_of(GOLDEN / "zp_plain.ome.zarr" / "0" / "zarr.json"))) == 1
    (tmp_path / "x.txt").write_text("x", encoding="utf-8")
    for nothing in (tmp_path, tmp_path / "x.txt", tmp_path / "gone", GOLDEN / "zp_plain.ome.zarr" / "0" / "c"):
        assert not detect(data_path_of(nothing))
        with pytest.raises(UnknownFormat):
            open_array(data_path_of(nothing))
