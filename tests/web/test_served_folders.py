"""The names of a data directory: listed again only if one came or went, or a link may lead elsewhere by now."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from acqstream.errors import StorageError
from acqstream.storage.files import folder_tree
from acqstream.web.data import dataset_shelf
from acqstream.web.data.dataset_shelf import ServedFolders


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that has not changed for long; each question looks again."""
    monkeypatch.setattr(dataset_shelf, "LISTED_S", 0.0)
    (tmp_path / "data" / "cells").mkdir(parents=True)
    os.utime(tmp_path / "data", (1000, 1000))
    return tmp_path / "data"


def test_a_large_directory_is_listed_once(data: Path) -> None:
    folders = ServedFolders(data)
    first = folders.all()
    assert set(first) == {"cells"}
    assert folders.all() is first
    (data / "more").mkdir()
    assert set(folders.all()) == {"cells", "more"}
    (data / "more").rmdir()
    assert set(folders.all()) == {"cells"}, "also just after another change"
    os.rename(data, data.with_name("elsewhere"))
    with pytest.raises(StorageError, match="list the data directory"):
        folders.all()


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_where_a_link_leads_is_looked_at_again(data: Path) -> None:
    """It may lead out of the directory later, without a change of the directory itself."""
    (data / ".hop").symlink_to(data / "cells")
    (data / "link").symlink_to(".hop")
    os.utime(data, (1000, 1000))
    folders = ServedFolders(data)
    assert set(folders.all()) == {"cells", "link"}
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


def settle(data: Path) -> None:
    """All folders as if they had not changed for long."""
    for path in (data, *data.rglob("*")):
        os.utime(path, (1000, 1000))


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
    settle(data)
    found = folders.all()
    assert folders.all() is found
    touch(data / "anna" / "day" / "three" / "NDTiff.index")
    assert set(folders.all()) == {*expected, "anna/day/three"}


def test_an_empty_folder_becomes_a_dataset_or_gets_one(data: Path) -> None:
    (data / "anna").mkdir()
    settle(data)
    folders = ServedFolders(data)
    assert set(folders.all()) == {"anna", "cells"}
    touch(data / "anna" / "day" / "run" / "NDTiff.index")
    touch(data / "cells" / "NDTiff.index")
    os.utime(data, (1000, 1000))
    assert set(folders.all()) == {"anna/day/run", "cells"}
    (data / "cells" / "more").mkdir()
    settle(data)
    assert set(folders.all()) == {"anna/day/run", "cells"}


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
    monkeypatch.setattr(dataset_shelf, "MAX_BRANCHES", 4)
    for number in range(6):
        touch(data / f"user{number}" / "run" / "NDTiff.index")
    folders = ServedFolders(data)
    for _ in range(2):
        assert len([name for name in folders.all() if name.endswith("/run")]) < 4
    assert [one.getMessage() for one in caplog.records] == [
        f"not served: datasets in further folders of {data}, which has more than 4 without a dataset"
    ]


def test_the_bucket_of_a_server_is_one_container(data: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "hsds" / "hsds_1.0.2" / "bkt", data / "bkt")
    assert set(ServedFolders(data).all()) == {"bkt", "cells"}


def test_no_junction_is_followed_to_look_for_datasets(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python before 3.12 reports it as a folder."""
    touch(data / "anna" / "run" / "NDTiff.index")
    monkeypatch.setattr(folder_tree, "is_junction", lambda status: True)
    assert set(ServedFolders(data).all()) == {"anna", "cells"}
