"""The page's list: runs, and no part of one."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from acqstream.dataset.run_list import list_runs
from acqstream.formats.ndtiff.folders import run_of_part
from acqstream.model.units import shell_word
from acqstream.web.data.dataset_shelf import ServedFolders
from acqstream.web.page import dataset_list
from acqstream.web.page.dataset_list import DatasetCatalog, DatasetPage
from tests.dataset.made_runs import make_run
from tests.waiting import until
from tests.web.web_process import web_thread


def test_a_mirror_is_listed_only_if_its_dataset_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "cells")
    make_run(tmp_path / "cells.2", mirror=False)
    folders = {path.name: path for path in tmp_path.iterdir()}
    assert "cells.n5" in folders
    assert sorted(one.run.name for one in DatasetCatalog().page(folders, "", 0, 50).entries) == ["cells", "cells.2"]
    shutil.rmtree(folders.pop("cells"))
    assert sorted(one.run.name for one in DatasetCatalog().page(folders, "", 0, 50).entries) == ["cells.2", "cells.n5"]


def listed(catalog: DatasetCatalog, folder: Path, search: str = "") -> DatasetPage:
    return catalog.page({path.name: path for path in folder.iterdir()}, search, 0, 50)


def test_a_mirror_that_comes_later_is_listed_with_its_run(tmp_path: Path) -> None:
    """Also when the run's own folder has the same time of change."""
    make_run(tmp_path / "cells")
    os.rename(tmp_path / "cells.n5", tmp_path.parent / f"{tmp_path.name}.n5")
    os.utime(tmp_path / "cells", (1000, 1000))
    catalog = DatasetCatalog()
    assert [one.mirrors for one in listed(catalog, tmp_path).entries] == [()]
    os.rename(tmp_path.parent / f"{tmp_path.name}.n5", tmp_path / "cells.n5")
    os.utime(tmp_path / "cells", (1000, 1000))
    assert [one.mirrors for one in listed(catalog, tmp_path).entries] == [("cells.n5",)]
    for name in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(tmp_path / name)
    assert [one.mirrors for one in listed(catalog, tmp_path).entries] == [()]


def test_the_total_does_not_count_a_folder_twice(tmp_path: Path) -> None:
    """One that was no dataset, and became a part of one."""
    make_run(tmp_path / "cells", mirror=False)
    os.rename(tmp_path / "cells", tmp_path.parent / f"{tmp_path.name}.run")
    for name in ("cells.more", "cells.more.view"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000, 1000))
    catalog = DatasetCatalog()
    assert (listed(catalog, tmp_path).total, listed(catalog, tmp_path).total) == (0, 0)
    os.rename(tmp_path.parent / f"{tmp_path.name}.run", tmp_path / "cells")
    assert (listed(catalog, tmp_path).total, len(listed(catalog, tmp_path).entries)) == (1, 1)


def test_other_folders_do_not_count(tmp_path: Path) -> None:
    """Also those that no page has shown."""
    make_run(tmp_path / "cells", mirror=False)
    for number in range(5):
        (tmp_path / f"notes{number}").mkdir()
        os.utime(tmp_path / f"notes{number}", (1000 + number, 1000))
    folders = {path.name: path for path in tmp_path.iterdir()}
    page = DatasetCatalog().page(folders, "", 0, 1)
    assert (page.total, [one.run.name for one in page.entries]) == (1, ["cells"])


def test_a_folder_that_becomes_a_dataset_is_counted_at_once(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    os.utime(tmp_path / "cells", (1000, 1000))
    catalog = DatasetCatalog()
    assert listed(catalog, tmp_path).total == 0
    (tmp_path / "cells").rmdir()
    make_run(tmp_path / "cells", mirror=False)
    page = listed(catalog, tmp_path)
    assert (page.total, len(page.entries)) == (1, 1)


def test_a_search_finds_both_forms_of_a_letter(tmp_path: Path) -> None:
    make_run(tmp_path / unicodedata.normalize("NFD", "Zellen_Müller"))
    catalog = DatasetCatalog()
    for text in ("müller", unicodedata.normalize("NFD", "MÜLLER")):
        assert len(listed(catalog, tmp_path, text).entries) == 1


def test_the_line_to_check_a_copy_names_the_copy(tmp_path: Path) -> None:
    make_run(tmp_path / "cells", mirror=False)
    os.rename(tmp_path / "cells", tmp_path / "moved")
    (entry,) = listed(DatasetCatalog(), tmp_path).entries
    assert entry.receipt is not None
    assert entry.receipt["verify"] == f"acqstream verify {shell_word(str(tmp_path / 'moved'))}"


def test_runs_in_folders_have_their_folders_in_the_name(tmp_path: Path) -> None:
    for name in ("anna/day/cells", "bob/day/cells"):
        (tmp_path / name).parent.mkdir(parents=True)
        make_run(tmp_path / name)
    make_run(tmp_path / "cells", mirror=False)
    folders, catalog = ServedFolders(tmp_path).all(), DatasetCatalog()
    found = {one.run.name: one.mirrors for one in catalog.page(folders, "", 0, 50).entries}
    assert found == {
        "anna/day/cells": ("anna/day/cells.n5",),
        "bob/day/cells": ("bob/day/cells.n5",),
        "cells": (),
    }
    assert [one.run.name for one in catalog.page(folders, "CELLS ann", 0, 50).entries] == ["anna/day/cells"]
    shutil.rmtree(tmp_path / "anna/day/cells")
    folders = ServedFolders(tmp_path).all()
    names = [one.run.name for one in catalog.page(folders, "day", 0, 50).entries]
    assert sorted(names) == ["anna/day/cells.n5", "bob/day/cells"]


def test_the_page_says_of_a_run_what_ls_says(tmp_path: Path) -> None:
    """Also of one that begins, of one whose state cannot be read, and of a mirror whose dataset is gone."""
    data = tmp_path / "data"
    for name in ("cells", "damaged", "begins", "gone"):
        data.mkdir(exist_ok=True)
        make_run(data / name, mirror=name in ("cells", "gone"))
    (data / "damaged" / "acqstream.json").write_text("{")
    (data / "begins" / "NDTiff.index").unlink()
    shutil.rmtree(data / "gone")
    (data / "notes").mkdir()
    listed_runs = {run.name: run for run in list_runs(data, cache=tmp_path / "cache")}
    found = {one.run.name: one.run for one in listed(DatasetCatalog(), data).entries}
    assert found.keys() == listed_runs.keys() == {"cells", "damaged", "begins", "gone.n5"}
    for name, run in found.items():
        assert (run.format, run.state or "complete") == (listed_runs[name].format, listed_runs[name].state)
        assert set(run.parts) <= set(listed_runs[name].parts)
    assert found["damaged"].doubt == listed_runs["damaged"].doubt == "state unknown: acqstream.json is damaged"


def test_only_what_came_went_or_changed_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("day.1", "day.2"):
        make_run(tmp_path / name, mirror=False)
        os.utime(tmp_path / name, (10, 10))
    for number in range(8):
        (tmp_path / f"cells{number}").mkdir()
        (tmp_path / f"cells{number}" / "NDTiff.index").touch()
        os.utime(tmp_path / f"cells{number}", (1000 + number, 1000))
    for name in ("cells0.n5", "cells0.n5.view"):
        (tmp_path / name).mkdir()
    looks: list[str] = []
    judged: set[str] = set()
    look = DatasetCatalog._look

    def spied_look(catalog: DatasetCatalog, name: str) -> bool:
        looks.append(name)
        return look(catalog, name)

    def spied_run(folder: Path, name: str, names: set[str]) -> str:
        judged.add(name)
        return run_of_part(folder, name, names)

    monkeypatch.setattr(dataset_list, "N_TIMED", 2)
    monkeypatch.setattr(DatasetCatalog, "_look", spied_look)
    monkeypatch.setattr(dataset_list, "run_of_part", spied_run)
    catalog = DatasetCatalog()
    assert listed(catalog, tmp_path).total == 10
    assert (len(looks), judged) == (12, {"cells0", "cells0.n5", "cells0.n5.view", "day.1", "day.2"})
    looks.clear()
    judged.clear()
    (tmp_path / "cells1.n5").mkdir()
    (tmp_path / "cells1.n5.view").mkdir()
    shutil.rmtree(tmp_path / "cells2")
    page = listed(catalog, tmp_path)
    assert (page.total, [one.mirrors for one in page.entries if one.run.name == "cells1"]) == (9, [("cells1.n5",)])
    assert sorted(looks) == ["cells1.n5", "cells1.n5.view", "cells2", "cells6", "cells7"]
    assert judged == {"cells1.n5", "cells1.n5.view"}
    judged.clear()
    (tmp_path / "day.2.n5").mkdir()
    listed(catalog, tmp_path)
    assert judged == {"day.2.n5"}, "not all that begin with day"


def test_a_part_that_becomes_a_run_is_listed_within_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "cells")
    catalog = DatasetCatalog()
    assert [one.run.name for one in listed(catalog, tmp_path).entries] == ["cells"]
    shutil.rmtree(tmp_path / "cells.n5")
    shutil.rmtree(tmp_path / "cells.n5.view", ignore_errors=True)
    make_run(tmp_path / "cells.n5", mirror=False)
    monkeypatch.setattr(dataset_list, "ALL_TIMES_S", 0.0)  # the minute is over
    assert sorted(one.run.name for one in listed(catalog, tmp_path).entries) == ["cells", "cells.n5"]


def test_a_mirror_is_judged_again_when_its_dataset_goes_and_comes(tmp_path: Path) -> None:
    """While it is a part, nobody looks at its time; then its present time counts."""
    make_run(tmp_path / "cells")
    make_run(tmp_path / "other", mirror=False)
    here, away, catalog = tmp_path / "cells", tmp_path.parent / f"{tmp_path.name}.away", DatasetCatalog()

    def names(mirror_s: int) -> list[str]:
        """Names in the list after the mirror has changed."""
        for path, changed_s in ((tmp_path / "other", 2000), (tmp_path / "cells.n5", mirror_s)):
            os.utime(path, (changed_s, changed_s))
        return [one.run.name for one in listed(catalog, tmp_path).entries]

    here.rename(away)
    assert names(1000) == ["other", "cells.n5"]
    away.rename(here)
    assert names(1000) == ["cells", "other"]
    here.rename(away)
    assert names(3000) == ["cells.n5", "other"]


def test_the_first_look_is_taken_before_anybody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "anna").mkdir(parents=True)
    make_run(tmp_path / "data" / "anna" / "cells")
    page, found = DatasetCatalog.page, []

    def spied(*arguments: Any) -> DatasetPage:
        found.append(page(*arguments))
        return found[-1]

    monkeypatch.setattr(DatasetCatalog, "page", spied)
    with web_thread(tmp_path / "data", endpoint="tcp://127.0.0.1:9") as site:
        until(lambda: found, "the list was made")
        assert [one.run.name for one in found[0].entries] == ["anna/cells"]
        make_run(tmp_path / "data" / "bob")
        assert json.loads(site.ask("/api/datasets").body)["total"] == 2, "it is no older than its request"
