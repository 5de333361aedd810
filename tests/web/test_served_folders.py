"""The names of a data directory: listed again only if one came or went, or a link may lead elsewhere by now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from acqstream.errors import StorageError
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
