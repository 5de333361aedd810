"""Places that chunk formats read from: what they answer about files, folders and what is missing."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from acqstream.errors import CorruptDataset, DatasetError, FileMissing, StorageError, UnsupportedFeature
from acqstream.storage.platform import FILES
from acqstream.storage.stores.data_path import data_path_of
from tests.host_system import make_link


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "c.json").write_bytes(b"0123456789")
    return tmp_path / "a"


def test_a_folder_lists_its_children(folder: Path) -> None:
    place = data_path_of(folder)
    assert place.is_folder()
    assert not place.is_object()
    assert sorted(place.names()) == ["b", "c.json"]
    assert sorted(place.children()) == [place / "b", place / "c.json"]
    assert (place / "c.json").folder() == place == place.folder()


@pytest.mark.parametrize("name", ["missing", "c.json"])
def test_what_is_no_folder_has_no_children(folder: Path, name: str) -> None:
    for ask in (data_path_of(folder / name).children, data_path_of(folder / name).names):
        with pytest.raises(FileMissing, match="list the folder"):
            ask()


def test_an_object_is_read_in_ranges_or_completely(folder: Path) -> None:
    place = data_path_of(folder) / "c.json"
    assert place.is_object()
    assert place.content() == b"0123456789"
    with pytest.raises(CorruptDataset, match="expected at most 9"):
        place.content(9)
    file = place.open()
    assert (file.read(2, 3), file.size()) == (b"234", 10)
    file.close()


def test_missing_objects_are_told_apart(folder: Path) -> None:
    for name in ("missing", "c.json/below"):
        place = data_path_of(folder) / name
        for ask in (place.content, place.open):
            with pytest.raises(FileMissing) as caught:
                ask()
            assert caught.value.filename == str(place)
        with pytest.raises(DatasetError, match="no such file or folder"):
            place.require()


def test_upwards_ends_at_the_root_and_at_the_limit(folder: Path) -> None:
    place = data_path_of(folder / "b")
    assert list(place.upwards(3)) == [place, place.parent, place.parent.parent]
    assert [str(one) for one in place.upwards(1000)] == [str(one) for one in (folder / "b", *(folder / "b").parents)]


def test_a_relative_path_stays_as_the_user_wrote_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert str(data_path_of("b")) == "b"
    assert data_path_of("b").absolute() == data_path_of(folder / "b")
    assert next(data_path_of("b").upwards(1)) == data_path_of(folder / "b")


def test_links_out_of_the_boundary_are_refused(folder: Path) -> None:
    make_link(folder / "b" / "link", folder / "c.json")
    place = data_path_of(folder / "b" / "link")
    assert place.is_link()
    assert place.real() == data_path_of(folder / "c.json").real()
    with place.parent.boundary().inside(), pytest.raises(UnsupportedFeature, match="follow_links=True"):
        place.open()
    with data_path_of(folder).boundary().inside():
        assert place.content() == b"0123456789"


def test_a_place_is_sent_to_another_process(folder: Path) -> None:
    place = data_path_of(folder)
    assert pickle.loads(pickle.dumps(place)) == place  # noqa: S301 - our own bytes


def test_a_file_url_is_a_local_place(folder: Path) -> None:
    assert data_path_of(folder.as_uri()) == data_path_of(folder)


def test_a_store_has_the_folder_as_its_root(folder: Path) -> None:
    assert data_path_of(folder).store(follows_links=False).get("c.json", 2, 3) == b"234"


def test_a_file_whose_folder_is_moved_while_it_is_opened_is_gone(tmp_path: Path) -> None:
    """No link led away: to pass follow_links=True would be wrong advice."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"x")
    boundary = data_path_of(tmp_path / "set").boundary()
    descriptor = FILES.open_for_reading(str(tmp_path / "set" / "a"))
    try:
        (tmp_path / "set").rename(tmp_path / "moved")
        with pytest.raises(StorageError, match="it is gone"):
            boundary.check(tmp_path / "set" / "a", descriptor)
    finally:
        FILES.close(descriptor)
