"""The names of a data directory: listed again only if one came or went, or a link may lead elsewhere by now."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from acqstream.errors import StorageError
from acqstream.storage.files import folder_tree
from acqstream.web.data import dataset_shelf
from acqstream.web.data.dataset_shelf import ServedFolders
from tests.waiting import until


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that has not changed for long; each question looks again."""
    monkeypatch.setattr(dataset_shelf, "LISTED_S", 0.0)
    (tmp_path / "data" / "cells").mkdir(parents=True)
    os.utime(tmp_path / "data", (1000, 1000))
    return tmp_path / "data"


def names_when_settled(data: Path, folders: ServedFolders) -> Mapping[str, Path]:
    """List all folders as if they had not changed for long."""
    for path in (data, *data.rglob("*")):
        os.utime(path, (1000, 1000), follow_symlinks=os.utime not in os.supports_follow_symlinks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_shelf, "SETTLED_NS", -(10**20))
        return folders.all()


def test_a_large_directory_is_listed_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "anna" / "day" / "empty").mkdir(parents=True)
    folders = ServedFolders(data)
    first = names_when_settled(data, folders)
    assert set(first) == {"cells", "anna/day/empty"}
    with monkeypatch.context() as patch:
        patch.delattr(ServedFolders, "_look")
        assert folders.all() is first
    (data / "more").mkdir()
    assert set(folders.all()) == {*first, "more"}
    (data / "more").rmdir()
    assert set(folders.all()) == set(first), "also just after another change"
    os.rename(data, data.with_name("elsewhere"))
    with pytest.raises(StorageError, match="list the data directory"):
        folders.all()


def test_folders_that_take_long_to_list_are_listed_less_often(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0, 100.1, 101.9, 102.2, 202.2, 207.1, 207.3, 207.4]
    clock = SimpleNamespace(monotonic=lambda: now_s.pop(0), time_ns=time.time_ns)
    monkeypatch.setattr(dataset_shelf, "time", clock)
    monkeypatch.setattr(dataset_shelf, "LISTED_S", 0.5)
    folders = ServedFolders(data)
    assert set(folders.all()) == {"cells"}  # in 0.1 s
    (data / "more").mkdir()
    assert set(folders.all()) == {"cells"}, "1.8 s later"
    assert set(folders.all()) == {"cells", "more"}, "2.1 s later; in 100 s"
    (data / "more").rmdir()
    assert set(folders.all()) == {"cells", "more"}, "4.9 s later"
    assert set(folders.all()) == {"cells"}, "5.1 s later"


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_where_a_link_leads_is_looked_at_again(data: Path) -> None:
    """It may lead out of the directory later, without a change of the directory itself."""
    (data / ".hop").symlink_to(data / "cells")
    (data / "link").symlink_to(".hop")
    folders = ServedFolders(data)
    assert set(names_when_settled(data, folders)) == {"cells", "link"}
    (data / ".hop").unlink()
    (data / ".hop").symlink_to(data.parent)
    os.utime(data, (1000, 1000))
    assert set(folders.all()) == {"cells"}


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these systems keep such names out")
def test_a_name_that_is_not_utf8_hides_no_other(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkdir(os.fsencode(data) + b"/bad-\xff")
    folders = ServedFolders(data)
    for _ in range(3):
        assert set(folders.all()) == {"cells"}
    assert [one.getMessage() for one in caplog.records if "not UTF-8" in one.getMessage()] == [
        f"not served, since their names are not UTF-8: 1 folders or files in {data}, such as 'bad-\\udcff'; rename them"
    ]


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_datasets_in_folders_of_users_and_days(data: Path) -> None:
    folders = ServedFolders(data)
    assert set(folders.all()) == {"cells"}
    for name in ("anna/day/one", "anna/day/two", "bob", "a/b/c/d/e/f", "a/b/c/d/e2/f/g"):
        touch(data / name / "NDTiff.index")
    touch(data / "anna" / "day" / "one" / "inside" / "NDTiff.index")
    touch(data / "anna" / "day" / "one.n5" / "c" / "0")
    (data / "anna" / "day" / "one.n5.view").mkdir()
    touch(data / "anna" / ".stage" / "cells" / "NDTiff.index")
    touch(data / "zarr" / "zarr.json")
    touch(data / "zarr" / "c" / "NDTiff.index")
    days = {f"anna/day/{name}" for name in ("one", "two", "one.n5", "one.n5.view")}
    expected = {"cells", *days, "bob", "zarr", "a/b/c/d/e/f", "a/b/c/d/e2/f"}
    found = folders.all()
    assert set(found) == expected
    assert found["anna/day/one"] == data / "anna" / "day" / "one"
    found = names_when_settled(data, folders)
    assert folders.all() is found
    touch(data / "anna" / "day" / "three" / "NDTiff.index")
    assert set(folders.all()) == {*expected, "anna/day/three"}


def test_an_empty_folder_becomes_a_dataset_or_gets_one(data: Path) -> None:
    (data / "anna").mkdir()
    folders = ServedFolders(data)
    assert set(names_when_settled(data, folders)) == {"anna", "cells"}
    touch(data / "anna" / "day" / "run" / "NDTiff.index")
    touch(data / "cells" / "NDTiff.index")
    os.utime(data, (1000, 1000))
    assert set(folders.all()) == {"anna/day/run", "cells"}
    (data / "cells" / "more").mkdir()
    assert set(names_when_settled(data, folders)) == {"anna/day/run", "cells"}


def test_a_folder_that_could_hold_no_datasets_and_now_can(data: Path) -> None:
    touch(data / "anna" / "info")
    touch(data / "anna" / "run" / "NDTiff.index")
    folders = ServedFolders(data)
    assert set(names_when_settled(data, folders)) == {"anna", "cells"}
    (data / "anna" / "info").unlink()
    assert set(folders.all()) == {"anna/run", "cells"}
    touch(data / "anna" / "info")
    assert set(folders.all()) == {"anna", "cells"}


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
@pytest.mark.parametrize("has_change_time", [True, False], ids=["Linux", "Windows"])
@pytest.mark.parametrize("swapped", ["anna", "anna/day", "anna/day/run"])
def test_a_link_in_place_of_a_listed_folder_is_not_followed(
    data: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, *, has_change_time: bool
) -> None:
    """The times of the folder around it are set back, so that nothing seems to have come or gone."""
    stamp_of = dataset_shelf._stamp
    if not has_change_time:
        monkeypatch.setattr(dataset_shelf, "_stamp", lambda found: (found.st_dev, found.st_ino, found.st_mtime_ns))
    inside = "anna/day/run".removeprefix(swapped).strip("/")
    touch(data.parent / "private" / inside / "NDTiff.index")
    touch(data / "anna" / "day" / "run" / "NDTiff.index")
    folders = ServedFolders(data)
    assert set(names_when_settled(data, folders)) == {"cells", "anna/day/run"}
    place = data / swapped
    before = stamp_of(os.lstat(place.parent))
    place.rename(place.with_name(".away"))
    place.symlink_to(data.parent / "private")

    def is_set_back() -> bool:
        os.utime(place.parent, (1000, 1000))
        return stamp_of(os.lstat(place.parent)) != before

    with monkeypatch.context() as patch:
        patch.setattr(folders, "_list_at_s", time.monotonic() + 600)
        assert set(folders.all()) == {"cells", "anna/day/run"}, "listed before"
        assert folders.find("anna/day/run") is None
    until(is_set_back, "another time of the last change")
    assert folders.find("anna/day/run") is None
    if has_change_time or swapped != "anna/day/run":
        assert not [name for name in folders.all() if f"{name}/".startswith(f"{swapped}/")]
    place.unlink()
    place.with_name(".away").rename(place)
    assert folders.find("anna/day/run") == data / "anna" / "day" / "run"


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_no_link_is_followed_to_look_for_datasets(data: Path, tmp_path: Path) -> None:
    touch(tmp_path / "outside" / "day" / "run" / "NDTiff.index")
    touch(data / "anna" / "run" / "NDTiff.index")
    (data / "anna" / "out").symlink_to(tmp_path / "outside")
    (data / "anna" / "out-run").symlink_to(tmp_path / "outside" / "day" / "run")
    (data / "anna" / "up").symlink_to(data)
    (data / "anna" / "same").symlink_to(data / "anna" / "run")
    assert set(ServedFolders(data).all()) == {"cells", "anna/run", "anna/same"}


def test_the_folders_that_are_looked_into_are_bounded(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last changed are listed, and the others are found by their names. Folders without folders do not count."""
    monkeypatch.setattr(dataset_shelf, "MAX_BRANCHES", 4)
    for number in range(6):
        touch(data / "anna" / f"day{number}" / "run" / "NDTiff.index")
        touch(data / f"pictures{number}" / "one.tif")
    folders = ServedFolders(data)
    plain = {"cells", *(f"pictures{number}" for number in range(6))}
    for newest in ([3, 4, 5], [0, 4, 5]):
        for number in range(6):
            os.utime(data / "anna" / f"day{number}", (1000 + number, 1000 + number))
        os.utime(data / "anna" / f"day{newest[0]}", (2000, 2000))
        for _ in range(2):
            assert set(folders.all()) == {*plain, *(f"anna/day{number}/run" for number in newest)}
    assert [one.getMessage() for one in caplog.records] == [
        f"not listed: datasets in 3 of the folders of {data}, which has more than 4 of users and days"
    ]
    monkeypatch.setattr(dataset_shelf, "SETTLED_NS", -(10**20))
    for most, listed in ((4, 3), (7, 6), (4, 3)):
        monkeypatch.setattr(dataset_shelf, "MAX_BRANCHES", most)
        assert len(folders.all()) == len(plain) + listed


def test_a_dataset_that_is_not_listed_is_found_by_its_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_shelf, "MAX_BRANCHES", 1)
    for name in ("run", "run/inside", ".hidden/run"):
        touch(data / "anna" / "day" / name / "NDTiff.index")
    touch(data / "anna" / "day" / "run.n5" / "attributes.json")
    touch(data / "a" / "b" / "c" / "d" / "e" / "f" / "g" / "NDTiff.index")
    touch(data / "anna" / "day" / "file")
    (data / "anna" / "day" / "plain").mkdir()
    folders = ServedFolders(data)
    assert not [name for name in folders.all() if "/" in name]
    for name in ("anna/day/run", "anna/day/run.n5", "cells"):
        assert folders.find(name) == data / name
    for name in ("anna", "anna/day", "anna/day/plain", "anna/day/file", "anna/day/none", "anna/day/run/inside"):
        assert folders.find(name) is None
    for name in ("", "/", "anna/", "anna//day/run", "anna/./day/run", "anna/../anna/day/run", "../data/cells", "\0"):
        assert folders.find(name) is None
    for name in ("ANNA/day/run", "anna/day/RUN", "anna/day/.hidden/run", "a/b/c/d/e/f/g", "anna\\day\\run"):
        assert folders.find(name) is None


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_no_link_is_followed_to_find_a_dataset_that_is_not_listed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_shelf, "MAX_BRANCHES", 1)
    touch(data / "anna" / "day" / "run" / "NDTiff.index")
    touch(data / "bob" / "day" / "run" / "NDTiff.index")
    touch(data.parent / "private" / "run" / "NDTiff.index")
    for folder in ("anna", "bob"):
        (data / folder / "out").symlink_to(data.parent / "private")
        (data / folder / "day" / "run-out").symlink_to(data.parent / "private" / "run")
        (data / folder / "same").symlink_to("day")
    folders = ServedFolders(data)
    for folder in ("anna", "bob"):
        assert folders.find(f"{folder}/day/run") == data / folder / "day" / "run"
        assert folders.find(f"{folder}/out/run") is None
        assert folders.find(f"{folder}/day/run-out") is None
        assert folders.find(f"{folder}/same/run") is None


def test_the_bucket_of_a_server_is_one_container(data: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "hsds" / "hsds_1.0.2" / "bkt", data / "bkt")
    assert set(ServedFolders(data).all()) == {"bkt", "cells"}


def test_no_junction_is_followed_to_look_for_datasets(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python before 3.12 reports it as a folder."""
    touch(data / "anna" / "run" / "NDTiff.index")
    monkeypatch.setattr(folder_tree, "is_junction", lambda status: True)
    assert set(ServedFolders(data).all()) == {"anna", "cells"}
