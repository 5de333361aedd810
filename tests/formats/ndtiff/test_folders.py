"""Where a dataset lies, for the folder or file that a user points at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import CorruptDataset, UnknownFormat
from acqstream.formats.ndtiff import folders
from acqstream.formats.ndtiff.folders import container_of, find_folders, level_of, overlap_in
from acqstream.formats.registry import chunk_formats
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image


def add_dataset(folder: Path) -> None:
    Folder(folder).add({"time": 0}, image(0))


@pytest.mark.parametrize("name", ["flat", "java_pyramid_u16", "v1_5_rgb"])
def test_a_folder_with_one_dataset_opens_it(tmp_path: Path, name: str) -> None:
    if name == "flat":
        add_dataset(tmp_path / "flat")
    else:
        shutil.copytree(GOLDEN / name / "data", tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes.txt").touch()
    with acqstream.open(tmp_path) as ds, acqstream.open(tmp_path / name) as same:
        assert list(ds.keys()) == list(same.keys())
        assert len(ds.levels) == len(same.levels)
    with pytest.raises(UnknownFormat, match="no known format"):
        acqstream.open(tmp_path / "notes.txt")


def test_a_folder_with_several_lists_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        add_dataset(tmp_path / name)
    with pytest.raises(UnknownFormat, match=r"holds several datasets, name one of them: a, b$"):
        acqstream.open(tmp_path)
    for n in range(30):
        (tmp_path / f"c{n}" / "Full resolution").mkdir(parents=True)
    with pytest.raises(UnknownFormat, match=r"name one of them: .*, \.\.\.$"):
        acqstream.open(tmp_path)


def test_two_levels_up_is_too_far(tmp_path: Path) -> None:
    add_dataset(tmp_path / "day" / "cells")
    with pytest.raises(UnknownFormat, match="no known format"):
        acqstream.open(tmp_path)


def test_a_dataset_with_a_lost_index_is_no_parent(tmp_path: Path) -> None:
    add_dataset(tmp_path)
    add_dataset(tmp_path / "inner")
    (tmp_path / "NDTiff.index").unlink()
    with pytest.raises(CorruptDataset, match="acqstream repair"):
        acqstream.open(tmp_path)


def test_all_that_works_on_a_dataset_finds_the_same_one(tmp_path: Path) -> None:
    add_dataset(tmp_path / "cells")
    for place in (tmp_path, tmp_path / "cells", tmp_path / "cells" / "NDTiff.index"):
        assert container_of(place) == tmp_path / "cells" == find_folders(place).container
    add_dataset(tmp_path / "others")
    assert container_of(tmp_path) == tmp_path


def test_a_dataset_that_begins_is_its_own_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "cells"
    assert container_of(place) == place
    place.mkdir()

    def begin(folder: Path) -> None:
        add_dataset(folder / "Full resolution")

    monkeypatch.setattr(folders, "_first_magic", begin)  # between the first look and the list of folders
    assert container_of(place) == place


def test_files_of_a_container(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "tiled")
    assert len(find_folders(tmp_path / "tiled" / "display_settings.txt").levels) == 4


def test_an_empty_full_resolution_is_told(tmp_path: Path) -> None:
    (tmp_path / "Full resolution").mkdir()
    with pytest.raises(UnknownFormat, match="Full resolution: no NDTiff dataset"):
        acqstream.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "level"), [("cells", 0), ("Full resolution", 0), ("Downsampled_x2", 1), ("Downsampled_x1024", 10)]
)
def test_levels_by_their_folders(name: str, level: int) -> None:
    assert level_of(Path(name)) == level


def test_overlaps_that_are_none() -> None:
    tiled = {"TiledImageStorage": True}
    assert overlap_in({}) is None
    assert overlap_in(tiled) == (0, 0)
    assert overlap_in({"GridPixelOverlapX": 3}) == (0, 3)
    assert overlap_in({**tiled, "GridPixelOverlapX": "3", "GridPixelOverlapY": 1}) == (1, 0)
    assert overlap_in({"TiledImageStorage": False, "GridPixelOverlapX": 3}) is None


FORMATS = Path(__file__).parents[2] / "golden"
CONTAINERS = [
    path
    for kind in ("n5", "ome_zarr", "precomputed", "wkw", "mirrors/data")
    for path in sorted((FORMATS / kind).iterdir())
    if path.is_dir() and path.name != "corrupt"
]


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_no_container_is_a_folder_for_runs(path: Path) -> None:
    names = {one.name for one in path.parent.iterdir()}
    subfolders = [one for one in path.iterdir() if one.is_dir()]
    assert not folders.holds_runs(path.parent, path.name, names) or not subfolders


@pytest.mark.parametrize("name", sorted(folders._DOCUMENTS))
def test_a_run_that_is_called_as_a_file_of_a_container_makes_none(tmp_path: Path, name: str) -> None:
    add_dataset(tmp_path / "anna" / name)
    assert folders.holds_runs(tmp_path, "anna", {"anna"})
    assert not [one.name for one in chunk_formats() if one.detect(data_path_of(tmp_path / "anna"))]


def test_a_folder_for_runs_is_one(tmp_path: Path) -> None:
    (tmp_path / "anna.2026").mkdir()
    (tmp_path / "anna.2026" / "notes.txt").touch()
    add_dataset(tmp_path / "anna")
    names = {"anna", "anna.2026"}
    for name in ("info", "acqstream_demo", "zarr.json"):
        (tmp_path / "anna.2026" / name).mkdir()
    (tmp_path / "anna.2026" / "acqstream.log").touch()
    assert folders.holds_runs(tmp_path, "anna.2026", names), "of a name that a part could have, and is none"
    assert not folders.holds_runs(tmp_path, "anna", names)
