"""Records of the end of views in the dataset's folder: only what is durable, and never an obstacle to the view."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.folders import MAX_RECORDS, read_records, record_key
from acqstream.mirrors import run_end
from acqstream.mirrors.run_end import mirror_results
from acqstream.model.fields import Fields
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.base import ViewSource
from acqstream.views.checkpoint import CHECKPOINT_NAME, read_checkpoint, write_checkpoint
from acqstream.views.null_view import NullView
from acqstream.views.view_folder import record_result
from acqstream.views.view_run import ViewState
from tests.log.make_frames import frames_of, write_log
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.pyramid_cases import finish
from tests.views.test_view import GOLDEN, Picky, run_of

RECORD = "acqstream.mirror.null.json"


class Unwilling(NullView):
    """Cannot be opened."""

    def open(self, source: ViewSource) -> None:
        raise ValueError(f"other options than those of {source.folder}")


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", frames_of(10))
    return tmp_path / "cells"


def record_in(cells: Path) -> Mapping[str, Any]:
    content: dict[str, Any] = json.loads((cells / RECORD).read_bytes())
    return content


def test_it_is_complete_only_after_its_checkpoint_is_durable(cells: Path) -> None:
    disk = ScriptedDisk()
    finish(run_of(cells, disk=disk))
    names = [(call.kind, call.name) for call in disk.calls]
    forced = [n for n, (kind, _) in enumerate(names) if kind == "sync_directory"]
    first_byte = next(n for n, (_, name) in enumerate(names) if name.startswith(RECORD))
    last_checkpoint = max(n for n, (_, name) in enumerate(names) if name.startswith(CHECKPOINT_NAME))
    assert any(last_checkpoint < n < first_byte for n in forced)
    assert record_in(cells)["state"] == "complete"


def test_a_checkpoint_that_cannot_be_written_is_never_recorded_as_complete(cells: Path) -> None:
    disk = ScriptedDisk()
    disk.fail("replace", part=CHECKPOINT_NAME, for_good=True)
    with pytest.raises(OSError, match="cannot replace"):
        finish(run_of(cells, disk=disk))
    assert record_in(cells)["state"] == "failed"


def test_a_full_disk_is_waited_for(cells: Path) -> None:
    disk = ScriptedDisk()
    disk.fail("create", code=errno.ENOSPC, part=RECORD, for_good=True)
    run = run_of(cells, disk=disk)
    while run.progress().state is not ViewState.HELD:
        assert run.step() is not None
    assert run.step() is not None
    assert not (cells / RECORD).exists()
    disk.mend()
    finish(run)
    assert record_in(cells)["state"] == "complete"


def test_a_folder_that_takes_no_record_does_not_fail_the_view(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = ScriptedDisk()
    disk.fail("create", code=errno.EROFS, part=RECORD, for_good=True)
    with caplog.at_level(logging.WARNING):
        assert finish(run_of(cells, disk=disk)).progress().state is ViewState.COMPLETE
    assert "cannot record that mirror null of" in caplog.text
    ask_for(cells, "null")
    (result,) = mirror_results(cells)
    assert (result.state, result.frames) == ("complete", 10)


def ask_for(cells: Path, *names: str) -> None:
    """As if the producer had wanted these mirrors."""
    path = cells / "acqstream.json"
    content = json.loads(path.read_bytes())
    content["request"]["mirrors"] = list(names)
    path.write_text(json.dumps(content))


def test_a_view_that_fails_is_recorded_with_the_reason_and_reopened_when_it_goes_on(cells: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        finish(run_of(cells, Picky))
    failed = record_in(cells)
    assert (failed["state"], failed["frames"], failed["published"]) == ("failed", 7, 10)
    assert failed["reason"] == "after 7 frames: ZeroDivisionError: no such luck"
    run = run_of(cells)
    run.step()
    assert record_in(cells)["state"] in ("running", "complete")
    finish(run)
    assert record_in(cells)["state"] == "complete"
    assert record_in(cells)["reason"] == ""


def test_a_folder_that_is_no_view_is_recorded_and_what_is_complete_stays_so(cells: Path) -> None:
    place = cells.with_name("cells.null")
    place.mkdir()
    (place / "mine").write_text("something")
    with pytest.raises(DatasetError, match="is not a view of cells"):
        finish(run_of(cells))
    assert record_in(cells)["state"] == "failed"
    assert "is not a view of cells" in record_in(cells)["reason"]
    (place / "mine").unlink()
    finish(run_of(cells))
    before = record_in(cells)

    with pytest.raises(ValueError, match="other options"):
        finish(run_of(cells, Unwilling))
    assert record_in(cells) == before


def test_nothing_is_written_into_datasets_of_other_writers(tmp_path: Path) -> None:
    data = Path(shutil.copytree(GOLDEN / "java_rgb" / "data", tmp_path / "data"))
    before = sorted(path.name for path in data.iterdir())
    finish(run_of(data))
    assert sorted(path.name for path in data.iterdir()) == before
    assert mirror_results(data) == ()


def test_what_no_process_makes_is_unfinished_and_what_one_makes_is_running(cells: Path) -> None:
    ask_for(cells, "null")
    assert [(one.name, one.state) for one in mirror_results(cells)] == [("null", "unfinished")]
    with DirectoryLock(str(cells.parent)):  # a daemon has the data directory
        assert [one.state for one in mirror_results(cells)] == ["running"]
    run = run_of(cells)
    run.step()
    assert (cells.with_name("cells.null") / LOCK_NAME).exists()
    assert [one.state for one in mirror_results(cells)] in (["running"], ["complete"])
    finish(run)
    assert [one.state for one in mirror_results(cells)] == ["complete"]


def test_a_complete_mirror_is_told_with_its_record_which_comes_after_its_checkpoint(
    cells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for(cells, "null")
    finish(run_of(cells))
    ended = MirrorResult.of(Fields(record_in(cells)))
    ended = replace(ended, reason="restarted: of frame 4", warning="not calibrated")
    waits = replace(ended, state="running", frames=4, reason="of frame 4", warning="")
    place = cells.with_name("cells.null")
    record_result(LocalDisk(), cells, place, waits)
    with DirectoryLock(str(place)):  # its process is about to write the record
        assert [(one.state, one.frames) for one in mirror_results(cells)] == [("running", 10)]
    (killed,) = mirror_results(cells)
    assert (killed.state, killed.frames, killed.reason) == ("complete", 10, "")

    saved = read_checkpoint(place)
    assert saved is not None
    write_checkpoint(LocalDisk(), place, replace(saved, state={"restarted": "restarted: of frame 4"}))
    assert [(one.state, one.reason) for one in mirror_results(cells)] == [("complete", "restarted: of frame 4")]

    def read_then_record(folder: Path) -> object:
        saved = read_checkpoint(folder)
        record_result(LocalDisk(), cells, place, ended)
        return saved

    monkeypatch.setattr(run_end, "read_checkpoint", read_then_record)
    (result,) = mirror_results(cells)
    assert replace(result, changed_at=ended.changed_at) == ended


def test_a_dataset_of_an_earlier_version_is_told_by_its_checkpoints(cells: Path) -> None:
    finish(run_of(cells))
    (cells / RECORD).unlink()
    ask_for(cells, "null", "n6", "wkw")
    null, unknown, absent = mirror_results(cells)
    assert (null.state, null.frames, null.path) == ("complete", 10, "../cells.null")
    assert (unknown.state, "'n6' is not known" in unknown.reason) == ("failed", True)
    assert (absent.state, absent.path) == ("unfinished", "../cells.wkw")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 100_000, '{"format": "acqstream-mirror", "version": 1, "name": "n5", "state": 3}']
)
def test_a_damaged_record_says_so(cells: Path, content: str) -> None:
    (cells / "acqstream.mirror.n5.json").write_text(content)
    (result,) = mirror_results(cells)
    assert (result.name, result.state) == ("n5", "unfinished")
    assert "cannot be read" in result.reason


def test_records_are_bounded(cells: Path) -> None:
    for number in range(MAX_RECORDS + 5):
        result = MirrorResult(name=f"m{number}", state="failed", reason="x\udc80" * 10_000)
        record_result(LocalDisk(), cells, cells.parent / f"cells.m{number}.view", result)
    found = read_records(cells)
    assert len(found) == MAX_RECORDS
    assert all(len(one.reason) == 2000 for one in found.values())


def test_mirrors_elsewhere_have_records_of_their_own(cells: Path, tmp_path: Path) -> None:
    beside = record_key(cells, tmp_path / "cells.n5.view")
    one, other = (record_key(cells, tmp_path / name / "cells.n5.view") for name in ("one", "other"))
    assert beside == "n5"
    assert len({beside, one, other}) == 3


@pytest.mark.parametrize(("key", "name"), [("ome.zarr", "ome-zarr"), ("fine.n5", "fine"), ("n5", "n5")])
def test_of_two_with_one_name_the_mirror_beside_the_dataset_keeps_it(cells: Path, key: str, name: str) -> None:
    result = MirrorResult(name=name, state="interrupted", frames=3, published=3)
    places = [cells.with_name(f"cells.{key}"), *(cells.parent / f"nas{n}" / f"x.{key}" for n in range(8))]
    for place in places:
        place.mkdir(parents=True)
        record_result(LocalDisk(), cells, place.with_name(f"{place.name}.view"), result)
    found = read_records(cells)
    assert found[key].name == name
    assert {one.state for one in found.values()} == {"interrupted"}
    assert sorted(one.name for one in found.values()) == sorted([name, *(f"../nas{n}/x.{key}" for n in range(8))]), (
        "the others have their paths"
    )
