"""The mirrors of a dataset by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.dataset.run_files import RunFiles
from acqstream.errors import DatasetError, UnsupportedFeature
from acqstream.mirrors.run_end import mirror_results, wait_for_end
from tests.dataset.made_runs import make_run
from tests.host_system import make_link

RECORD = "acqstream.mirror.n5.json"


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    return make_run(tmp_path / "cells")


def test_results_by_name_and_a_mirror_that_equals_its_dataset(cells: Path) -> None:
    with acqstream.open(cells) as ds, ds.open_mirror("n5") as mirror:
        assert {name: one.state for name, one in ds.mirrors.items()} == {"n5": "complete"}
        assert mirror.format == "n5"
        assert mirror.path == cells.with_name("cells.n5")
        assert np.array_equal(np.squeeze(mirror.levels[0].read()), np.squeeze(ds.levels[0].read()))
        assert mirror.mirrors == {}
        with pytest.raises(UnsupportedFeature):
            mirror.open_mirror("n5")


def test_a_mirror_that_is_being_made_has_no_record(cells: Path) -> None:
    (cells / RECORD).unlink()
    with acqstream.open(cells) as ds:
        assert ds.mirrors == {}
        with ds.open_mirror("n5") as mirror:
            assert mirror.format == "n5"


def test_an_unknown_or_removed_mirror_is_named(cells: Path) -> None:
    with acqstream.open(cells) as ds:
        with pytest.raises(DatasetError, match="has no mirror 'wkw'; there are: n5"):
            ds.open_mirror("wkw")
        shutil.rmtree(cells.with_name("cells.n5"))
        assert ds.mirrors["n5"].state == "removed"
        with pytest.raises(DatasetError, match=r"n5 was removed; expected it at .*cells\.n5"):
            ds.open_mirror("n5")


def test_removed_is_said_by_results_and_receipt(cells: Path) -> None:
    record = (cells / RECORD).read_bytes()
    for part in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(cells.with_name(part))
    [found] = mirror_results(cells)
    assert (found.state, found.text, found.ended, found.complete) == ("removed", "removed", True, False)
    with acqstream.open(cells) as ds:
        assert "n5: removed" in str(ds.receipt)
    assert wait_for_end(cells, patience_s=0).ok
    assert (cells / RECORD).read_bytes() == record


def test_a_mirror_of_an_earlier_run_of_that_name_is_none_of_this_one(cells: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = make_run(tmp_path / "new" / "cells", dataset_id="b" * 32)
    for part in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(new.with_name(part))
        shutil.copytree(cells.with_name(part), new.with_name(part))
    assert [one.state for one in mirror_results(new)] == ["removed"]
    with acqstream.open(new) as ds:
        assert ds.mirrors["n5"].state == "removed"
        with pytest.raises(DatasetError, match="removed"):
            ds.open_mirror("n5")
        (new / RECORD).unlink()
        with pytest.raises(DatasetError, match="of another dataset"):
            ds.open_mirror("n5")
    assert RunFiles(new.with_name("cells.n5")).is_only_copy
    assert not RunFiles(cells.with_name("cells.n5")).is_only_copy


def test_two_mirrors_of_one_name_are_both_found(cells: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = make_run(tmp_path / "elsewhere" / "cells")
    record = json.loads((cells / RECORD).read_text())
    for key in ("0123456789abcdef", "zz"):  # before and after the mirror beside the dataset
        path = f"../elsewhere/{key}.n5"
        shutil.copytree(other.with_name("cells.n5"), tmp_path / "elsewhere" / f"{key}.n5")
        (cells / RECORD.replace("n5", key)).write_text(json.dumps({**record, "path": path}))
    with acqstream.open(cells, follow_links=True) as ds:
        assert {*ds.mirrors} == {"n5", "../elsewhere/0123456789abcdef.n5", "../elsewhere/zz.n5"}
        assert ds.mirrors["n5"].path == "../cells.n5"
        with ds.open_mirror("n5") as mirror:
            assert mirror.path == cells.with_name("cells.n5")
        with ds.open_mirror("../elsewhere/zz.n5") as mirror:
            assert mirror.path.name == "zz.n5"
    assert sorted(one.name for one in mirror_results(cells)) == sorted(ds.mirrors)


def test_renamed_together_they_stay_together(cells: Path) -> None:
    for path in sorted(cells.parent.glob("cells*")):
        path.rename(path.with_name(path.name.replace("cells", "worms", 1)))
    with acqstream.open(cells.with_name("worms")) as ds, ds.open_mirror("n5") as mirror:
        assert mirror.path.name == "worms.n5"


def test_behind_a_link_to_the_dataset(cells: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    make_link(tmp_path / "links" / "here", cells)
    with acqstream.open(tmp_path / "links" / "here") as ds, ds.open_mirror("n5") as mirror:
        assert mirror.format == "n5"


def test_no_record_of_a_stranger_leads_elsewhere(cells: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    make_run(tmp_path / "private" / "other")
    record = json.loads((cells / RECORD).read_text())
    for path in ("../private/other.n5", str(tmp_path / "private" / "other.n5")):
        (cells / RECORD).write_text(json.dumps({**record, "path": path}))
        with acqstream.open(cells) as ds, pytest.raises(UnsupportedFeature, match="lies elsewhere"):
            ds.open_mirror("n5")
        with acqstream.open(cells, follow_links=True) as ds, ds.open_mirror("n5") as mirror:
            assert mirror.path.parent.name == "private"


def test_levels_are_in_the_dataset(cells: Path) -> None:
    record = json.loads((cells / RECORD).read_text())
    (cells / "acqstream.mirror.pyramid.json").write_text(json.dumps({**record, "name": "pyramid", "path": "."}))
    with acqstream.open(cells) as ds, pytest.raises(UnsupportedFeature, match="see its levels"):
        ds.open_mirror("pyramid")
