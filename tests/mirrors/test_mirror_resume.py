"""Resuming a mirror: only an unusable checkpoint clears it; an error of ours leaves its files as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.registry import chunk_format
from acqstream.formats.wkw import layout
from acqstream.log.log import Log
from acqstream.log.state_file import read_state
from acqstream.mirrors.assembly import Assembly, SavedMirror
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_container import (
    NOTE_NAME,
    MirrorNote,
    read_note,
    remove_container,
    write_note,
)
from acqstream.mirrors.mirror_view import MirrorView
from acqstream.mirrors.task_runner import ProcessPool, TaskRunner
from acqstream.model.acquisition_spec import AcquisitionSpec, AxisSpec
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.base import ViewSource
from acqstream.views.checkpoint import CHECKPOINT_NAME, mark_begun
from acqstream.views.view_folder import ViewFolder
from acqstream.views.view_run import ViewRun, ViewState
from tests.host_system import make_link
from tests.log.make_frames import memory_of, start_log, write_log
from tests.mirrors.mirror_cases import PLAIN, check_plain, finish, frames_at, places_of, run_of
from tests.waiting import until

BLOCKS = {**PLAIN, "blocks": [3, 8, 10], "levels": 3}
HALVED = ((2, 2, 2), (2, 2, 2))
FRAMES = frames_at(places_of(("time", "z"), {"time": 3, "z": 7}))


@pytest.fixture
def mirrored(tmp_path: Path) -> Path:
    """The dataset, with a complete mirror."""
    write_log(tmp_path / "cells", FRAMES)
    finish(run_of(tmp_path / "cells", BLOCKS))
    return tmp_path / "cells"


def files_of(cells: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file of the mirror with its inode and bytes: a rebuilt file has another inode."""
    container = cells.with_name("cells.n5")
    return {path: (path.stat().st_ino, path.read_bytes()) for path in container.rglob("*") if path.is_file()}


def view_file(cells: Path) -> Path:
    return cells.with_name("cells.n5.view") / CHECKPOINT_NAME


@pytest.mark.parametrize("error", [KeyError("planted"), ValueError("planted"), TypeError("planted")], ids=repr)
def test_an_error_of_ours_fails_the_view_and_leaves_the_mirror(
    mirrored: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def restore(self: Assembly, saved: SavedMirror) -> None:
        raise error

    before = files_of(mirrored)
    with monkeypatch.context() as planted:
        planted.setattr(Assembly, "restore", restore)
        run = run_of(mirrored, BLOCKS)
        with pytest.raises(type(error), match="planted"):
            finish(run)
        assert run.progress().state is ViewState.FAILED
    assert files_of(mirrored) == before
    again = finish(run_of(mirrored, BLOCKS))
    assert (again.reason, again.progress().from_stack) == ("", 0), "it resumes once the error is mended"
    assert files_of(mirrored) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("open"),
        lambda state: state.update(open=[[[99, [0, 0]]], []]),
        lambda state: state.update(open=[[[0, ["x", 0]]], []]),
        lambda state: state.update(open=[[], [[0, [0, 0]]]]),
        lambda state: state.update(open=[1]),
        lambda state: state.update(parts={"rows": "many", "done": [], "cut": []}),
        lambda state: state.update(parts=[]),
        lambda state: state.update(parts={"rows": 1, "done": [[1]], "cut": []}),
    ],
)
def test_a_damaged_checkpoint_restarts_the_mirror(mirrored: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(view_file(mirrored).read_bytes())
    damage(content["state"])
    check_restarted(mirrored, content)


def test_a_checkpoint_of_another_version_restarts_the_mirror(mirrored: Path) -> None:
    check_restarted(mirrored, {**json.loads(view_file(mirrored).read_bytes()), "version": 2})


def test_changed_attributes_restart_the_mirror(mirrored: Path) -> None:
    (mirrored.with_name("cells.n5") / "s1" / "attributes.json").write_text("{")
    check_restarted(mirrored, None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "acqstream-mirror", "version": 1}'])
def test_a_damaged_note_restarts_the_mirror(mirrored: Path, content: str) -> None:
    note = view_file(mirrored).with_name(NOTE_NAME)
    note.write_text(content)
    run = check_restarted(mirrored, None)
    assert "mirror.json is damaged" in run.reason
    assert read_note(note.parent) is not None


def test_a_damaged_note_beside_a_checkpoint_that_is_not_ours_removes_nothing(mirrored: Path) -> None:
    view_file(mirrored).with_name(NOTE_NAME).write_text("{")
    view_file(mirrored).write_text("{")
    before = files_of(mirrored)
    with pytest.raises(DatasetError, match="already exists and is not a mirror of cells"):
        finish(run_of(mirrored, BLOCKS))
    assert files_of(mirrored) == before


def check_restarted(cells: Path, content: Mapping[str, Any] | None) -> ViewRun:
    if content is not None:
        view_file(cells).write_text(json.dumps(content))
    run = finish(run_of(cells, BLOCKS))
    assert run.reason.startswith("restarted: ")
    assert run.progress().from_stack == len(FRAMES)
    check_plain(cells, FRAMES, HALVED)
    return run


@pytest.mark.parametrize(
    "settings",
    [
        BLOCKS,
        {"format": "wkw", "cube": 32, "levels": 1},
        {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 1},
        {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 1, "compression": "none"},
        {"format": "hsds", "pixels": "copy", "chunks": [2, 16, 16], "levels": 1},
        {"format": "precomputed", "chunks": [2, 16, 16], "levels": 1},
        {"format": "precomputed", "chunks": [2, 16, 16], "levels": 1, "shards": True},
    ],
    ids=lambda settings: f"{settings['format']} {'shards' in settings or 'compression' in settings}",
)
def test_a_mirror_of_an_interrupted_run_has_what_comes_later(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    """The first frames have one time, channel and position; the later ones have others."""
    places = places_of(("position", "time", "channel", "z"), {"position": 2, "time": 2, "channel": 2, "z": 3})
    frames, cells = frames_at(places), tmp_path / "cells"
    name = str(settings["format"])
    log = start_log(cells)
    for frame in frames[:2]:
        log.append(frame.header, frame.image)
    log.close("interrupted", "for a while")
    assert finish(run_of(cells, settings, name=name)).progress().state is ViewState.INTERRUPTED
    state = read_state(str(cells))
    spec = AcquisitionSpec(dataset_id=state.dataset_id, name=state.name)
    with Log(cells, spec, memory=memory_of(), resume=state) as log:
        log.wait_until_open()
        for frame in frames[2:]:
            log.append(frame.header, frame.image)
    again = finish(run_of(cells, settings, name=name))
    assert (again.progress().state, again.reason) == (ViewState.COMPLETE, "")
    found = compare(cells, again.folder, len(frames))
    assert (found.frames, found.text) == (len(frames), "all equal")


@pytest.mark.parametrize("came", [1, 7])
def test_a_mirror_killed_after_its_end_and_before_its_checkpoint_stays_as_it_was(tmp_path: Path, came: int) -> None:
    """Lower levels of a run that ended before its plan are means of what came, also the second time."""
    cells = tmp_path / "cells"
    frames = frames_at(places_of(("z",), {"z": came}))
    with start_log(cells, axes=(AxisSpec("z", 10),)) as log:
        log.wait_until_open()
        run = run_of(cells, BLOCKS)
        for frame in frames:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(came)
        until(lambda: run.step() is not None and run.progress().cursor == came, "all is taken")
        run.save()
        run.close()
        earlier = view_file(cells).read_bytes()
    finish(run_of(cells, BLOCKS))
    complete = {path: content for path, (_, content) in files_of(cells).items()}
    check_plain(cells, frames, HALVED)
    view_file(cells).write_bytes(earlier)
    finish(run_of(cells, BLOCKS))
    assert {path: content for path, (_, content) in files_of(cells).items()} == complete
    check_plain(cells, frames, HALVED)


def test_a_folder_that_the_note_does_not_name_is_no_mirror_to_remove(tmp_path: Path) -> None:
    folder, mine = tmp_path / "cells.n5.view", tmp_path / "mine"
    for one in (folder, mine):
        one.mkdir()
    (mine / "thesis").write_bytes(b"x")
    note = MirrorNote("1", str(tmp_path / "cells.n5"), {"format": "n5"}, None)
    with pytest.raises(DatasetError, match="is not a mirror made by acqstream"):
        remove_container(LocalDisk(), folder, note, mine)
    assert (mine / "thesis").exists()


def test_a_link_is_a_mirror_only_where_it_leads_to_one(tmp_path: Path) -> None:
    view, target = tmp_path / "cells.n5.view", tmp_path / "documents"
    for one in (view, target):
        one.mkdir()
    make_link(tmp_path / "cells.n5", target)
    note = MirrorNote("1", str(target), {"format": "n5"}, None)
    write_note(LocalDisk(), view, note)
    source = SimpleNamespace(dataset=tmp_path / "cells", folder=view, dataset_id="1", disk=LocalDisk(), is_ours=True)
    own = MirrorView(chunk_format("n5"), {"format": "n5"})
    with pytest.raises(DatasetError, match="is a link, and what it leads to is no mirror"):
        own.open(cast("ViewSource", source))
    (target / "attributes.json").write_text('{"acqstream": {}}')
    own.open(cast("ViewSource", source))
    with pytest.raises(StorageError, match="is a link, and what it leads to stays as it is"):
        own.clear()
    assert (target / "attributes.json").exists()


def test_a_view_is_not_put_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    make_link(tmp_path / "cells.n5.view", tmp_path / "documents")
    with pytest.raises(StorageError, match="is a link, and what it leads to stays as it is"):
        ViewFolder(tmp_path / "cells.n5.view", tmp_path / "cells", "n5", LocalDisk()).create()
    with pytest.raises(StorageError, match="is a link, and what it leads to stays as it is"):
        mark_begun(LocalDisk(), tmp_path / "cells", "n5.view", "1")
    assert not any((tmp_path / "documents").iterdir())


@pytest.mark.parametrize("width", [0, 2])
def test_raw_cubes_of_an_earlier_version_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """It made cubes of 512 whatever the volume."""
    dataset, container = tmp_path / "cells", tmp_path / "cells.wkw"
    settings = {"format": "wkw", "levels": 1}
    with start_log(dataset) as log:
        for frame in FRAMES[:10]:
            log.append(frame.header, frame.image)
        with monkeypatch.context() as earlier:
            earlier.setattr(layout, "fitting_side", lambda *_: 512)
            run = run_of(dataset, settings, "wkw")
            until(lambda: run.step() is not None and any(container.rglob("x*.wkw")), "a cube is stored")
            run.close()
        for frame in FRAMES[10:]:
            log.append(frame.header, frame.image)
    with ExitStack() as stack:
        tasks = {"runner": stack.enter_context(TaskRunner(lambda: ProcessPool(width), 1))} if width else {}
        again = finish(run_of(dataset, settings, "wkw", **tasks))
    assert again.progress().state == ViewState.COMPLETE
    assert "cubes of 512" in again.reason
    assert max(path.stat().st_size for path in container.rglob("x*.wkw")) < 512**3
    assert compare(dataset, again.folder, len(FRAMES)).text == "all equal"
