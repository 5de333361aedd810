"""Views while they are made: cursor and state stay together, over kills, damage and datasets that change."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import DatasetError, StorageError
from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.views import view_run as views
from acqstream.views.base import View
from acqstream.views.checkpoint import CHECKPOINT_NAME, read_checkpoint
from acqstream.views.frame_feed import Lease, Waiting
from acqstream.views.null_view import NullView
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import MIB, Frame, frames_of, memory_of, spec_of, start_log, write_log
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.pyramid_cases import finish
from tests.views.shared_log import Source, source_of
from tests.views.view_sums import sums_of

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"
FRAMES = frames_of(40)
SUMS = sums_of(frame.image for frame in FRAMES)


class Picky(NullView):
    """Raises at one frame."""

    at = 7

    def take(self, lease: Lease) -> Any:
        if lease.row == self.at:
            raise ZeroDivisionError("no such luck")
        return super().take(lease)


def run_of(path: Path, make: type[NullView] = NullView, **more: Any) -> ViewRun:
    return ViewRun(path, "null", make, **more)


def saved(path: Path) -> Mapping[str, Any]:
    content: dict[str, Any] = json.loads((path.with_name(path.name + ".null") / CHECKPOINT_NAME).read_bytes())
    return content


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", FRAMES)
    return tmp_path / "cells"


def test_a_finished_dataset(cells: Path) -> None:
    run = finish(run_of(cells))
    assert run.progress().state is ViewState.COMPLETE
    content = saved(cells)
    assert content["state"] == SUMS
    assert (content["cursor"], content["complete"], content["view"]) == (40, True, "null")
    assert content["dataset_id"] == spec_of().dataset_id
    assert {path.name for path in (cells.with_name("cells.null")).iterdir()} == {CHECKPOINT_NAME, LOCK_NAME}


def test_nothing_but_the_log_s_own_files_and_how_it_ended_lies_in_the_dataset(cells: Path) -> None:
    before = {path.name: path.read_bytes() for path in cells.iterdir()}
    finish(run_of(cells))
    after = {path.name: path.read_bytes() for path in cells.iterdir()}
    record = json.loads(after.pop("acqstream.mirror.null.json"))
    assert after == before
    assert (record["name"], record["state"], record["path"]) == ("null", "complete", "../cells.null")
    assert record["frames"] == record["published"] == 40


def test_a_complete_view_has_nothing_to_do(cells: Path) -> None:
    finish(run_of(cells))
    run = run_of(cells)
    assert run.step() is None
    assert run.progress().from_stack == 0
    assert run.progress().state is ViewState.COMPLETE
    run.close()


@pytest.mark.usefixtures("small_steps")
def test_killed_after_every_step_it_takes_every_frame_once(cells: Path) -> None:
    taken = 0
    for _ in range(50):
        run = run_of(cells)  # as after SIGKILL: nothing is saved or closed in order
        done = run.step() is None
        taken += run.progress().from_stack
        run.close()
        if done:
            break
    assert done
    assert taken == 40
    assert saved(cells)["state"] == SUMS


@pytest.mark.usefixtures("small_steps")
def test_steps_after_the_last_checkpoint_are_repeated(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(cells)
    for _ in range(5):
        run.step()
    monkeypatch.setattr(views, "CHECKPOINT_INTERVAL_S", 1e9)
    for _ in range(5):
        run.step()
    assert run.progress().cursor > saved(cells)["cursor"] > 0
    run.close()
    assert finish(run_of(cells)).view.summary() == SUMS


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["too_few", "other_place", "other_dataset", "damaged", "no_object", "other_view"])
def test_what_does_not_belong_to_the_dataset_begins_anew(cells: Path, kind: str) -> None:
    run = run_of(cells)
    for _ in range(20):
        run.step()
    run.close()
    path = cells.with_name("cells.null") / CHECKPOINT_NAME
    content = json.loads(path.read_bytes())
    content["state"]["pixel_sum"] = "1"
    if kind == "too_few":
        content["cursor"] = 41
    elif kind == "other_place":
        content["last"][1] += 1
    elif kind == "other_dataset":
        content["dataset_id"] = "f" * 32
    elif kind == "other_view":
        content["view"] = "n5"
    path.write_text({"damaged": "{", "no_object": "[]"}.get(kind) or json.dumps(content))
    again = finish(run_of(cells))
    assert again.reason.startswith("restarted: ")
    assert again.progress().from_stack == 40
    assert saved(cells)["state"] == SUMS


def test_a_state_that_cannot_be_restored_begins_anew(cells: Path) -> None:
    finish(run_of(cells))
    path = cells.with_name("cells.null") / CHECKPOINT_NAME
    path.write_text(json.dumps({**saved(cells), "state": {"frames": 40, "payload_bytes": "many"}}))
    assert "restarted" in finish(run_of(cells)).reason
    assert saved(cells)["state"] == SUMS


def test_a_folder_of_something_else_is_left_alone(cells: Path) -> None:
    folder = cells.with_name("cells.null")
    write_log(folder, FRAMES[:3])
    before = sorted(path.name for path in folder.iterdir())
    run = run_of(cells)
    with pytest.raises(DatasetError, match=r"cells\.null already exists and is not a view of cells"):
        run.step()
    run.close()
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_file_in_the_way_is_told(cells: Path) -> None:
    cells.with_name("cells.null").write_text("a note")
    run = run_of(cells)
    with pytest.raises(DatasetError, match="already exists"):
        run.step()
    run.close()


def test_two_do_not_make_the_same_view(cells: Path) -> None:
    folder = cells.with_name("cells.null")
    folder.mkdir()
    run = run_of(cells)
    with DirectoryLock(str(folder)):
        assert run.step() == views.LOCKED_POLL_S
        assert run.progress().state is ViewState.LOCKED
        assert "is in use by acqstream pid" in run.reason
    finish(run)
    assert not run.reason
    assert saved(cells)["state"] == SUMS


def test_a_view_that_raises_is_not_saved(cells: Path) -> None:
    run = run_of(cells, Picky)
    with pytest.raises(ZeroDivisionError):
        finish(run)
    assert run.progress().cursor == 7
    assert read_checkpoint(cells.with_name("cells.null")) is None


def test_it_follows_and_completes_with_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "QUIET_AFTER_S", 1e9)
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    run = run_of(tmp_path / "cells")
    for frame in FRAMES[:10]:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(10)
    while run.progress().cursor < 10:
        assert run.step() is not None
    assert run.step() == views.POLL_S
    assert run.progress().state is ViewState.WAITING
    for frame in FRAMES[10:]:
        log.append(frame.header, frame.image)
    log.close()
    finish(run)
    assert saved(tmp_path / "cells")["state"] == SUMS


def interrupted(folder: Path, count: int) -> None:
    log = start_log(folder)
    for frame in FRAMES[:count]:
        log.append(frame.header, frame.image)
    log.close("interrupted", "for a while")


def resume(folder: Path, frames: list[Any]) -> None:
    state = read_state(str(folder))
    spec = AcquisitionSpec(dataset_id=state.dataset_id, name=state.name)
    with Log(folder, spec, memory=memory_of(), resume=state) as log:
        log.wait_until_open()
        for frame in frames:
            log.append(frame.header, frame.image)


def test_an_interrupted_dataset_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    interrupted(folder, 15)
    assert finish(run_of(folder)).progress().state is ViewState.INTERRUPTED
    assert (saved(folder)["cursor"], saved(folder)["complete"]) == (15, False)
    resume(folder, FRAMES[15:])
    again = finish(run_of(folder))
    assert again.progress().from_stack == 25
    assert not again.reason
    assert saved(folder)["state"] == SUMS
    assert read_state(str(folder)).state is AcquisitionState.COMPLETE


def after_a_power_cut(folder: Path) -> None:
    """The view has 20 frames, of which only 10 were durable."""
    interrupted(folder, 20)
    finish(run_of(folder))
    assert saved(folder)["cursor"] == 20
    shutil.rmtree(folder)
    interrupted(folder, 10)


def test_frames_that_a_power_cut_took(tmp_path: Path) -> None:
    after_a_power_cut(tmp_path / "cells")
    run = finish(run_of(tmp_path / "cells"))
    assert run.reason == "restarted: it had 20 frames, 10 are published: a power cut removed the others"
    assert saved(tmp_path / "cells")["state"] == sums_of(frame.image for frame in FRAMES[:10])


def test_frames_that_came_in_the_place_of_those(tmp_path: Path) -> None:
    after_a_power_cut(tmp_path / "cells")
    others = [replace(frame, header=frame.header._replace(number=n)) for n, frame in enumerate(FRAMES[20:30], 10)]
    resume(tmp_path / "cells", others)
    run = finish(run_of(tmp_path / "cells"))
    assert run.reason == "restarted: frame 19 was replaced"
    assert saved(tmp_path / "cells")["state"] == sums_of(frame.image for frame in [*FRAMES[:10], *others])


class Overtaken(NullView):
    """While it works on a frame, the log overwrites it: the pixels are read before and after."""

    def __init__(self, source: Source, frames: list[Frame]) -> None:
        super().__init__()
        self._source, self._frames = source, frames

    def take(self, lease: Lease) -> Any:
        if lease.row == 5 and self._frames:
            self._source.put(self._frames)
            self._frames = []
        return super().take(lease)


def test_a_frame_that_was_overwritten_meanwhile_is_taken_again(tmp_path: Path) -> None:
    frames = frames_of(80, (600, 500))  # three times the memory
    with source_of(tmp_path / "cells") as source:
        source.put(frames[:10])
        run = ViewRun(tmp_path / "cells", "null", lambda: Overtaken(source, frames[10:]), recent=source.recent)
        while run.progress().cursor < 80:
            run.step()
        done = run.progress()
        assert done.overtaken == 1
        assert done.from_memory + done.from_stack == 80
        assert done.from_stack > 30
        assert run.view.summary() == sums_of(frame.image for frame in frames)
        run.close()


def test_a_view_without_digests_notes_unpublished_frames_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would look at the index all the time that frames wait to be published."""
    with source_of(tmp_path / "cells") as source:
        source.put(FRAMES)
        feed = source.feed()
        assert feed.has_news
        monkeypatch.setattr(feed, "has", lambda row: False)
        assert ViewRun(tmp_path / "cells", "null", NullView)._take(feed) is Waiting.FRAMES
        assert not feed.has_news


def test_no_checkpoint_is_written_while_the_log_has_a_backlog(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "CHECKPOINT_INTERVAL_S", 0.0)
    is_free = True
    run = run_of(cells, may_read=lambda: is_free)
    run.step()
    (cells.with_name("cells.null") / CHECKPOINT_NAME).unlink()
    is_free = False
    run._checkpoints.last = None
    assert run.step() is not None
    assert not (cells.with_name("cells.null") / CHECKPOINT_NAME).exists()
    is_free = True
    finish(run)
    assert saved(cells)["complete"]


def test_a_full_disk_only_delays_the_end(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "CHECKPOINT_INTERVAL_S", 1e9)  # nothing is saved before the end
    disk = ScriptedDisk()
    disk.fail("fdatasync", code=errno.ENOSPC, part="view.json")
    run = run_of(cells, disk=disk)
    waits = [run.step(), run.step()]
    assert waits == [0.0, views.FULL_POLL_S]
    assert run.progress().state is ViewState.HELD
    finish(run)
    assert saved(cells)["state"] == SUMS


def test_another_disk_error_ends_it(cells: Path) -> None:
    disk = ScriptedDisk()
    disk.fail("fdatasync", code=errno.EIO, part="view.json")
    with pytest.raises(StorageError):
        finish(run_of(cells, disk=disk))


@pytest.mark.parametrize("name", ["java_pyramid_rgb_odd", "real_v3_0_stitched", "py_string_axes"])
def test_datasets_of_other_writers(tmp_path: Path, name: str) -> None:
    shutil.copytree(GOLDEN / name / "data", tmp_path / "data")
    run = finish(run_of(tmp_path / "data"))
    assert run.progress().state is ViewState.COMPLETE
    assert run.progress().cursor == run.view.summary()["frames"] > 0
    inside = next((tmp_path / "data").rglob("NDTiff.index"))
    assert run_of(inside).folder == run.folder


def test_empty_dataset(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [])
    assert finish(run_of(tmp_path / "cells")).view.summary() == sums_of([])
    assert saved(tmp_path / "cells")["complete"]


def test_the_protocol_is_met() -> None:
    view: View = NullView()
    assert view.summary() == sums_of([])
    assert views.STEP_BYTES >= MIB
