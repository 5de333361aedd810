"""Runs on a disk, each with its parts as one entry; an index that spares reading them, and may be lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from acqstream.dataset.run_list import ListedRun, list_runs, parts_of
from acqstream.errors import StorageError
from acqstream.storage.platform import FILES
from acqstream.web.page.dataset_list import DatasetCatalog
from tests.dataset.made_runs import copy_runs, make_old, make_run
from tests.host_system import make_link


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Reads:
    """Counts the files that are opened below a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, top: Path) -> None:
        self.paths: list[str] = []
        opened = FILES.open_for_reading

        def counted(path: str, *, direct: bool = False) -> int:
            if path.startswith(str(top)):
                self.paths.append(path)
            return opened(path, direct=direct)

        monkeypatch.setattr(FILES, "open_for_reading", counted)

    def taken(self) -> int:
        count = len(self.paths)
        self.paths.clear()
        return count


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, data: Path) -> Reads:
    return Reads(monkeypatch, data)


def names(data: Path, cache: Path) -> list[str]:
    return [run.name for run in list_runs(data, cache=cache)]


def test_a_run_is_one_entry_with_its_parts(data: Path, cache: Path) -> None:
    make_run(data / "cells", summary={"Sample": {"Line": "HeLa Kyoto"}})
    [run] = list_runs(data, cache=cache)
    assert (run.name, run.format, run.frames, run.state) == ("cells", "ndtiff", 2, "complete")
    assert dict(run.axes) == {"time": 2, "channel": 1}
    assert list(run.channels) == ["DAPI"]
    assert dict(run.mirrors) == {"n5": "complete"}
    assert list(run.parts) == parts_of(data / "cells") == ["cells.n5", "cells.n5.view"]
    alone = sum(path.stat().st_size for path in (data / "cells").rglob("*") if path.is_file())
    assert run.size_bytes > alone // 2
    assert not run.doubt


def test_words_are_found_in_name_channel_and_summary(data: Path, cache: Path) -> None:
    make_run(data / "Zählung", mirror=False, summary={"Sample": {"Line": "HeLa Kyoto"}, "n": 3})
    [run] = list_runs(data, cache=cache)
    for words in (["zählung"], ["za\u0308hl"], ["dapi"], ["kyoto", "HELA"], []):
        assert run.matches(words), words
    assert not run.matches(["kyoto", "gfp"])
    assert run.matches([], channel="dap")
    assert not run.matches([], channel="kyoto")


def test_an_orphaned_mirror_is_an_entry_and_one_beside_its_dataset_is_none(data: Path, cache: Path) -> None:
    make_run(data / "cells")
    make_run(data / "other")
    shutil.rmtree(data / "other")
    found = {run.name: run for run in list_runs(data, cache=cache)}
    assert found.keys() == {"cells", "other.n5"}
    assert found["other.n5"].format == "n5"
    assert list(found["other.n5"].parts) == ["other.n5.view"]


def test_a_mirror_without_notes_is_a_part_by_its_record(data: Path, cache: Path) -> None:
    make_run(data / "cells")
    shutil.rmtree(data / "cells.n5.view")
    assert names(data, cache) == ["cells"]
    assert parts_of(data / "cells") == ["cells.n5"]


def test_a_removed_mirror_is_named_so(data: Path, cache: Path) -> None:
    make_run(data / "cells")
    shutil.rmtree(data / "cells.n5")
    [run] = list_runs(data, cache=cache)
    assert dict(run.mirrors) == {"n5": "removed"}


def test_a_run_named_after_another_one_is_a_run_of_its_own(data: Path, cache: Path) -> None:
    make_run(data / "cells")
    make_run(data / "cells.2")
    (data / "cells.txt").touch()
    (data / "cells.notes").mkdir()
    assert sorted(names(data, cache)) == ["cells", "cells.2"]
    assert parts_of(data / "cells") == ["cells.n5", "cells.n5.view"]
    assert parts_of(data / "cells.2") == ["cells.2.n5", "cells.2.n5.view"]


def test_folders_of_users_and_days_are_searched(data: Path, cache: Path) -> None:
    (data / "anna" / "2026-11-29").mkdir(parents=True)
    make_run(data / "anna" / "2026-11-29" / "cells", mirror=False)
    make_run(data / "first", mirror=False)
    assert names(data, cache) == ["first", "anna/2026-11-29/cells"]


def test_the_newest_comes_first(data: Path, cache: Path) -> None:
    for name in ("b", "a", "c"):
        make_run(data / name, mirror=False)
    found = list_runs(data, cache=cache)
    assert [run.name for run in found] == ["c", "a", "b"]
    assert found[0].began_s > found[1].began_s > found[2].began_s


def test_links_are_not_followed(data: Path, cache: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere", mirror=False)
    make_link(data / "link", tmp_path / "elsewhere")
    make_link(data / "circle", data)
    assert names(data, cache) == []


def test_links_in_a_circle_end_no_list(data: Path, cache: Path) -> None:
    """In place of an index, and of a mirror."""
    for name in ("cells", "hostile"):
        make_run(data / name)
    for path in (data / "hostile" / "NDTiff.index", data / "hostile.n5"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make_link(path, path)
    found = {run.name: run for run in list_runs(data, cache=cache)}
    assert not found["cells"].doubt
    assert found["hostile"].doubt
    folders = {path.name: path for path in data.iterdir()}
    page = DatasetCatalog().page(folders, "", 0, 50)
    assert {one.run.name for one in page.entries} >= {"cells", "hostile"}


def test_damage_and_foreign_folders_end_no_list(data: Path, cache: Path) -> None:
    make_run(data / "cells", mirror=False)
    make_run(data / "damaged", mirror=False)
    (data / "damaged" / "NDTiff.index").write_bytes(b"\xff" * 100)
    make_run(data / "torn", mirror=False)
    (data / "torn" / "acqstream.json").write_text("{")
    (data / "notes" / "deep").mkdir(parents=True)
    found = {run.name: run for run in list_runs(data, cache=cache)}
    assert found.keys() == {"cells", "damaged", "torn"}
    assert found["damaged"].doubt
    assert (found["torn"].frames, found["torn"].state) == (2, "damaged")
    with pytest.raises(StorageError, match="list the runs in"):
        list_runs(data / "missing", cache=cache)


def test_the_second_list_of_2000_runs_reads_none_of_them(data: Path, cache: Path, reads: Reads) -> None:
    make_run(data / "cells", mirror=False, count=1)
    copy_runs(data / "cells", 2000)
    make_old(data)
    first = list_runs(data, cache=cache)
    assert len(first) == 2000
    assert reads.taken() > 2000
    assert list_runs(data, cache=cache) == first
    assert reads.taken() == 0


def test_only_what_has_changed_is_read(data: Path, cache: Path, reads: Reads) -> None:
    make_run(data / "cells")
    copy_runs(data / "cells", 20)
    make_old(data)
    first = list_runs(data, cache=cache)
    reads.taken()
    (data / "cells-7" / "acqstream.mirror.n5.json").unlink()
    shutil.rmtree(data / "cells-8.n5")
    with (data / "cells-9" / "NDTiff.index").open("ab") as index:
        index.write(b"x")
    found = {run.name: run for run in list_runs(data, cache=cache)}
    changed = {run.name for run in first if found[run.name] != run}
    read = {path.split("/data/")[1].split("/")[0] for path in reads.paths}
    assert read == {"cells-7", "cells-8", "cells-9", "cells-9.n5.view"}
    assert changed >= {"cells-7", "cells-8"}
    assert dict(found["cells-8"].mirrors) == {"n5": "removed"}


@pytest.mark.parametrize("damage", ["lost", "cut", "flipped", "empty", "other version"])
def test_a_damaged_or_lost_index_is_made_anew(data: Path, cache: Path, reads: Reads, damage: str) -> None:
    make_run(data / "cells")
    make_old(data)
    first = list_runs(data, cache=cache)
    [index] = cache.iterdir()
    content = index.read_bytes()
    if damage == "lost":
        index.unlink()
    elif damage == "other version":
        index.write_bytes(content.replace(b"acqstream-runs 1 ", b"acqstream-runs 1 0.0.", 1))
    else:
        changed = bytearray(content)
        changed[-20] ^= 1
        index.write_bytes({"cut": content[:-10], "flipped": bytes(changed), "empty": b""}[damage])
    reads.taken()
    assert list_runs(data, cache=cache) == first
    assert reads.taken()
    assert list_runs(data, cache=cache) == first
    assert not reads.taken()
    assert index.read_bytes() == content


def test_an_index_that_is_a_link_or_open_to_others_is_not_used(
    data: Path, cache: Path, reads: Reads, tmp_path: Path
) -> None:
    make_run(data / "cells")
    make_old(data)
    first = list_runs(data, cache=cache)
    [index] = cache.iterdir()
    index.rename(tmp_path / "elsewhere")
    make_link(index, tmp_path / "elsewhere")
    reads.taken()
    assert list_runs(data, cache=cache) == first
    assert reads.taken()
    assert not index.is_symlink()  # replaced, not written through
    if os.name == "posix":
        cache.chmod(0o777)
        assert list_runs(data, cache=cache) == first
        assert reads.taken()


def test_a_cache_that_cannot_be_written_costs_time_alone(data: Path, tmp_path: Path, reads: Reads) -> None:
    make_run(data / "cells")
    (tmp_path / "file").touch()
    first = list_runs(data, cache=tmp_path / "file" / "cache")
    reads.taken()
    assert list_runs(data, cache=tmp_path / "file" / "cache") == first
    assert reads.taken()
    assert [path.name for path in data.iterdir() if path.name.startswith(".")] == []


def test_what_changed_just_now_is_read_again(data: Path, cache: Path, reads: Reads) -> None:
    make_run(data / "cells")
    list_runs(data, cache=cache)
    reads.taken()
    list_runs(data, cache=cache)
    assert reads.taken()


def test_a_growing_run_is_never_taken_from_the_index(data: Path, cache: Path) -> None:
    def frames() -> int:
        return next(iter(list_runs(data, cache=cache))).frames

    make_run(data / "cells", mirror=False)
    state = data / "cells" / "acqstream.json"
    state.write_text(state.read_text().replace("COMPLETE", "RUNNING"))
    make_old(data)
    assert frames() == 2
    assert not cache.exists()


def test_a_run_that_begins_has_no_frames(data: Path, cache: Path) -> None:
    make_run(data / "cells", mirror=False)
    (data / "cells" / "NDTiff.index").write_bytes(b"")
    for stack in (data / "cells").glob("*.tif"):
        stack.unlink()
    [run] = list_runs(data, cache=cache)
    assert isinstance(run, ListedRun)
    assert run.frames == 0
