"""Incomplete pyramids: their reports, and their repair."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import shutil
from pathlib import Path
from typing import Any

import ndstorage
import pytest

import acqstream
from acqstream.errors import DatasetError, DatasetLocked, StorageError
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.integrity.repair import repair
from acqstream.integrity.verify import verify
from acqstream.log.state_file import read_state
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.checkpoint import mark_begun, read_checkpoint, view_folder
from acqstream.views.pyramid_tree import PyramidTree
from acqstream.views.view_run import ViewRun, ViewState
from tests.host_system import needs_names_to_go
from tests.log.make_frames import Frame, frame_of
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.pyramid_cases import (
    check_levels,
    finish,
    grid,
    level_names,
    pyramid_of,
    start_tiled,
    tiles_of,
    write_tiled,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"
FRAMES = tiles_of(grid(4, 4))
POLL_S = 0.001


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    return write_tiled(tmp_path / "cells", FRAMES)


pytestmark = pytest.mark.usefixtures("small_steps")


def advance(run: ViewRun, cursor: int) -> ViewRun:
    while run.progress().cursor < cursor or not level_names(run.path):
        assert run.step() is not None
    return run


def saved(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((view_folder(folder, "pyramid") / "view.json").read_bytes())
    return content


# On its way.


def test_levels_that_are_being_made_are_no_problem_to_verify(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.views.pyramid_view.PUBLISH_INTERVAL_S", 0.0)
    run = advance(pyramid_of(cells), 6)
    result = verify(cells)
    assert (result.problems, result.ok, result.levels) == ([], True, 2)
    assert [note for note in result.notes if "still being made" in note]
    with acqstream.open(cells) as ds:
        assert (ds.complete, ds.writing) == (False, True)
        finish(run)
        assert ds.writing  # as of the last refresh: this one brings the last tiles
        ds.refresh()
        assert (ds.complete, ds.writing, ds.levels[2].item_count) == (True, False, 1)
    result = verify(cells)
    assert (result.problems, result.notes) == ([], [])


def test_damage_in_levels_that_are_being_made_is_a_problem(cells: Path) -> None:
    run = advance(pyramid_of(cells), 6)
    index = cells / "Downsampled_x2" / "NDTiff.index"
    content = bytearray(index.read_bytes())
    content[-36] ^= 1  # offset of the last tile
    index.write_bytes(content)
    assert verify(cells).problems
    run.close()


def test_tiles_that_wait_are_told_before_it_is_complete(tmp_path: Path) -> None:
    log = start_tiled(tmp_path / "cells")
    log.wait_until_open()
    run = pyramid_of(tmp_path / "cells")
    for frame in FRAMES[:7]:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(7)
    while run.progress().state is not ViewState.WAITING:
        run.step()
    assert run.progress().cursor == 7
    assert run.progress().waiting == 2  # one of x2 and the one of x4
    log.close()
    assert finish(run).progress().waiting == 0


def test_readers_wait_for_levels_that_are_only_asked_for(cells: Path) -> None:
    dataset_id = read_state(str(cells)).dataset_id
    mark_begun(LocalDisk(), cells, "pyramid", dataset_id)
    with acqstream.open(cells) as ds:
        assert ds.writing
        with pytest.raises(TimeoutError):
            list(ds.follow(0.01, level=1, poll_s=POLL_S))
        assert not finish(pyramid_of(cells)).reason
        assert len(list(ds.follow(level=1, poll_s=POLL_S))) == 4
    mark_begun(LocalDisk(), cells, "pyramid", dataset_id)
    assert saved(cells)["complete"]


def test_what_a_deleted_dataset_of_that_name_has_left_is_replaced(cells: Path) -> None:
    run = advance(pyramid_of(cells), 3)
    run.close()
    leftover = view_folder(cells, "pyramid") / "Downsampled_x4"
    leftover.mkdir(exist_ok=True)
    with DirectoryLock(str(view_folder(cells, "pyramid"))), pytest.raises(DatasetError, match="in use"):
        mark_begun(LocalDisk(), cells, "pyramid", "another")
    mark_begun(LocalDisk(), cells, "pyramid", "another")
    assert (saved(cells)["dataset_id"], saved(cells)["state"], saved(cells)["cursor"]) == ("another", {}, 0)


# Given up.


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (frame_of(16, (32, 48), axes={"row": 4, "column": 0}), "after 16 frames: frame 16 is 32 x 48 <u2"),
        (frame_of(16, (16, 24), "|u1", axes={"row": 4, "column": 0}), r"after 16 frames: frame 16 is 16 x 24 \|u1"),
    ],
)
def test_nobody_waits_for_a_view_that_was_given_up(tmp_path: Path, last: Frame, text: str) -> None:
    folder = write_tiled(tmp_path / "cells", [*FRAMES, last])
    log = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with acqstream.open(folder) as ds:
        run = pyramid_of(folder)
        with pytest.raises(DatasetError):
            finish(run)
        assert run.progress().state is ViewState.FAILED
        followed = ds.follow(level=1, poll_s=POLL_S)
        for _ in range(4):
            next(followed)
        with pytest.raises(DatasetError, match=rf"level 1 is incomplete: the view that makes it failed {text}"):
            next(followed)
        ds.refresh()
        assert not ds.writing
        assert len(list(ds.follow())) == 17
    assert {path: path.read_bytes() for path in log} == log
    result = verify(folder)
    assert result.problems == []
    assert ["the lower levels are incomplete: the view that makes them failed after 16" in one for one in result.notes]
    with pytest.raises(DatasetError):  # again, and says it again
        finish(pyramid_of(folder))
    assert saved(folder)["failed"].startswith("after 16 frames")


@pytest.mark.parametrize(("kind", "part"), [("fdatasync", ".tif"), ("fdatasync", "index"), ("pwritev", ".tif")])
def test_after_a_failing_disk_it_is_made_anew(cells: Path, kind: str, part: str) -> None:
    disk = ScriptedDisk()
    run = advance(pyramid_of(cells, disk=disk), 6)
    disk.fail(kind, code=errno.EIO, part=part)
    with pytest.raises(StorageError):
        finish(run)
    checkpoint = read_checkpoint(view_folder(cells, "pyramid"))
    assert checkpoint is not None
    assert checkpoint.is_unsure
    again = finish(pyramid_of(cells))
    assert again.reason.startswith("restarted: it had failed after ")
    assert again.progress().from_stack == 16
    assert "failed" not in saved(cells)
    check_levels(cells, FRAMES, 2)
    assert verify(cells).problems == []


def test_a_failed_restart_is_told(cells: Path) -> None:
    advance(pyramid_of(cells), 6).close()
    disk = ScriptedDisk()
    disk.fail("truncate", code=errno.EIO)
    with pytest.raises(StorageError):
        finish(pyramid_of(cells, disk=disk))
    assert "cannot cut" in saved(cells)["failed"]
    finish(pyramid_of(cells))
    check_levels(cells, FRAMES, 2)


def test_a_mapped_stack_file_of_a_level_keeps_its_end(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = ScriptedDisk()
    disk.fail("truncate", code=errno.EBUSY, part=".tif", for_good=True)  # as Windows, error 1224
    finish(pyramid_of(cells, disk=disk))
    check_levels(cells, FRAMES, 2)
    assert disk.delivered == 2
    assert "a program has mapped it" in caplog.text


@needs_names_to_go
def test_levels_that_a_program_reads_are_replaced(cells: Path) -> None:
    finish(pyramid_of(cells))
    disk = ScriptedDisk()
    refused = disk.fail("replace", code=errno.EACCES, part="Downsampled_x4")  # as Windows, error 5
    with contextlib.closing(open_readers(cells)[2]):
        finish(pyramid_of(cells, disk=disk, is_remade=True))
    assert refused.delivered == 1
    check_levels(cells, FRAMES, 2)


def test_a_view_that_cannot_even_be_marked_says_both(cells: Path) -> None:
    disk = ScriptedDisk()
    run = advance(pyramid_of(cells, disk=disk), 6)
    for kind in ("fdatasync", "create", "open", "pwritev"):
        disk.fail(kind, code=errno.EIO, for_good=True)
    with pytest.raises(StorageError) as caught:
        finish(run)
    assert "could not be marked" in caught.value.__notes__[-1]


def test_an_interrupted_run_with_levels_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    log = start_tiled(folder)
    for frame in FRAMES[:6]:
        log.append(frame.header, frame.image)
    log.close("interrupted", "for a while")
    assert finish(pyramid_of(folder)).progress().state is ViewState.INTERRUPTED
    check_levels(folder, FRAMES[:6], 2)
    with acqstream.open(folder) as ds:
        assert len(list(ds.follow(level=1, poll_s=POLL_S))) == 2  # nothing is written now
    state = read_state(str(folder))
    log = start_tiled(folder, resume=state)
    for frame in [*FRAMES[6:], *FRAMES[:2]]:
        again = frame.header._replace(number=16 + frame.header.number) if frame in FRAMES[:2] else frame.header
        log.append(again, frame.image)
    log.close()
    run = finish(pyramid_of(folder))
    assert not run.reason
    assert run.progress().from_stack == 12
    check_levels(folder, FRAMES, 2)
    assert verify(folder).problems == []


def test_duplicates_that_come_after_their_level_was_published(cells: Path, tmp_path: Path) -> None:
    frames = [*FRAMES, *tiles_of([(0, 0), (3, 3), (0, 0)], first=16)]
    folder = tmp_path / "live"
    log = start_tiled(folder)
    log.wait_until_open()
    run = pyramid_of(folder)
    for frame in frames:
        log.append(frame.header, frame.image)
        assert log.wait_for_published(frame.header.number + 1)
        while run.progress().cursor <= frame.header.number or run.step() == 0.0:
            run.step()
    with acqstream.open(folder) as ds:
        assert (ds.levels[1].item_count, ds.levels[2].item_count) == (7, 4)
        check_levels(folder, frames, 2)
        log.close()
        finish(run)
        assert [key["row"] for key in ds.follow(level=2, replaced=True, poll_s=POLL_S)] == [0] * 4


# Datasets that were moved, copied, or come from elsewhere.


def test_a_copy_without_its_view_is_left_alone(cells: Path, tmp_path: Path) -> None:
    finish(pyramid_of(cells))
    copy = Path(shutil.copytree(cells, tmp_path / "copy"))
    with acqstream.open(copy) as ds:
        assert (ds.complete, len(ds.levels)) == (True, 3)
    assert verify(copy).problems == []
    with pytest.raises(DatasetError, match=r"copied without copy\.pyramid: `acqstream mirror PATH --to pyramid --reb"):
        finish(pyramid_of(copy))
    check_levels(copy, FRAMES, 2)
    finish(pyramid_of(copy, is_remade=True))
    check_levels(copy, FRAMES, 2)
    assert finish(pyramid_of(copy)).progress().from_stack == 0


def test_levels_of_another_program_beside_the_view_of_another_dataset_are_kept(cells: Path) -> None:
    finish(pyramid_of(cells))
    shutil.rmtree(cells)
    shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", cells)
    before = {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()}
    with pytest.raises(DatasetError, match="made by another program"):
        finish(pyramid_of(cells))
    assert {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()} == before


def write_with_ndstorage(container: Path, frames: list[Frame], summary: dict[str, Any]) -> Path:
    """A tiled dataset of the Python library: the full resolution only, which is all that it writes."""
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = ndstorage.NDTiffDataset(str(container), name="acq", summary_metadata=summary, writable=True)
        dataset.initialize(summary)
        readers = set()
        for frame in frames:
            dataset.put_image(dict(frame.axes), frame.image, {"tile": frame.header.number})
            readers.add(dataset.current_writer.reader)
        dataset.finish()
        for reader in readers:  # it forgets them
            reader.close()
        dataset.close()
    Path(dataset.path).rename(container / "Full resolution")
    return container


@pytest.mark.parametrize("more", [{}, {"Laser_mW": float("nan"), "Stage": {"limits": [float("inf"), 3]}}])
def test_levels_of_tiles_that_ndstorage_has_written(tmp_path: Path, more: dict[str, Any]) -> None:
    frames = tiles_of(grid(3, 4), (20, 18))
    summary = {"GridPixelOverlapX": 6, "GridPixelOverlapY": 4, **more}
    (tmp_path / "cells").mkdir()
    folder = write_with_ndstorage(tmp_path / "cells", frames, summary)
    finish(pyramid_of(folder))
    check_levels(folder, frames, 2, (4, 6))
    with acqstream.open(folder / "Downsampled_x2") as ds:
        assert ds.summary_metadata["GridPixelOverlapX"] == 6
        assert not more or (ds.summary_metadata["Laser_mW"], ds.summary_metadata["Stage"]) == (
            None,
            {"limits": [None, 3]},
        )
    with contextlib.redirect_stdout(io.StringIO()):
        seen = ndstorage.Dataset(str(folder))
    assert sorted(seen.res_levels) == [0, 1, 2]
    for level in seen.res_levels.values():
        level.close()


def test_a_summary_that_no_other_program_could_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    folder = write_with_ndstorage(tmp_path / "cells", tiles_of(grid(2, 2)), {"note": "\ud800"})
    with pytest.raises(DatasetError, match="the summary cannot be written into the levels"):
        finish(pyramid_of(folder))


# Damage.


@pytest.mark.parametrize("lost", ["Full resolution", "Downsampled_x2", "Downsampled_x4"])
def test_an_index_that_is_lost_is_noticed_and_rebuilt(cells: Path, lost: str) -> None:
    finish(pyramid_of(cells))
    before = {path: path.read_bytes() for path in cells.rglob("*.tif")}
    index = cells / lost / "NDTiff.index"
    content = index.read_bytes()
    index.unlink()
    assert verify(cells).problems
    report = repair(cells)
    assert [level.lost.count for level in report.levels] == [0, 0, 0]
    assert [level.changed for level in report.levels] == [level.folder.endswith(lost) for level in report.levels]
    assert index.read_bytes() == content
    assert {path: path.read_bytes() for path in cells.rglob("*.tif")} == before
    assert verify(cells).problems == []
    assert finish(pyramid_of(cells)).reason == ""
    check_levels(cells, FRAMES, 2)


def test_levels_are_not_repaired_while_they_are_made(cells: Path) -> None:
    run = advance(pyramid_of(cells), 6)
    before = {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()}
    with pytest.raises(DatasetLocked):
        repair(cells)
    assert {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()} == before
    run.close()
    repair(cells)
    finish(pyramid_of(cells))
    check_levels(cells, FRAMES, 2)
    assert verify(cells).problems == []


# Only an unusable checkpoint clears the levels.


def test_an_error_of_ours_leaves_the_levels(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def restore(self: PyramidTree, open_tiles: object) -> None:
        raise KeyError("planted")

    def files() -> dict[Path, int]:
        return {path: path.stat().st_ino for name in level_names(cells) for path in (cells / name).iterdir()}

    finish(pyramid_of(cells))
    before = files()
    assert before
    with monkeypatch.context() as planted:
        planted.setattr(PyramidTree, "restore", restore)
        run = pyramid_of(cells)
        with pytest.raises(KeyError, match="planted"):
            finish(run)
        assert run.progress().state is ViewState.FAILED
    assert files() == before
    again = finish(pyramid_of(cells))
    assert (again.reason, again.progress().from_stack) == ("", 0)


@pytest.mark.parametrize(
    "damage",
    [
        {"open": [[1, 99, 99, 1, []]]},
        {"open": [[1, 0, 0, 1, [["time", None]]]]},
        {"open": [[1, 0]]},
        {"index_bytes": [0] * 1000},
        {"index_bytes": None},
        {"is_remaking": 0},
    ],
)
def test_a_damaged_state_restarts_the_levels(cells: Path, damage: dict[str, Any]) -> None:
    finish(pyramid_of(cells))
    content = saved(cells)
    content["state"] |= damage
    (view_folder(cells, "pyramid") / "view.json").write_text(json.dumps(content))
    run = finish(pyramid_of(cells))
    assert run.reason.startswith("restarted: ")
    check_levels(cells, FRAMES, 2)
