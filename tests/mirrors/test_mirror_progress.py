"""A mirror whose process dies again and again gets on: what one process has stored the next one has not to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acqstream.daemon.view_job import ViewJob
from acqstream.mirrors.mirror_view import MirrorView
from acqstream.model.view_spec import ViewSpec
from acqstream.views import view_run
from acqstream.views.checkpoint import read_checkpoint
from acqstream.views.frame_feed import Waiting
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import start_log
from tests.mirrors.mirror_cases import PLAIN, check_plain, finish, frames_at, places_of, run_of
from tests.waiting import until

SETTINGS = {**PLAIN, "blocks": [4, 8, 10], "levels": 1}
FRAMES = frames_at(places_of(("time", "z"), {"time": 12, "z": 2}))  # no block is full


def open_slabs(cells: Path) -> int:
    saved = read_checkpoint(cells.with_name("cells.n5.view"))
    assert saved is not None
    return len(saved.state["open"][0])


def killed_run(cells: Path) -> ViewRun:
    """One that has all frames in memory, saved that, and was killed."""
    with start_log(cells) as log:
        log.wait_until_open()
        run = run_of(cells, SETTINGS)
        for number, frame in enumerate(FRAMES):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(number + 1)
        while run.progress().cursor < len(FRAMES):
            run.step()
        run.save()
        run.close()
    return run


@pytest.mark.parametrize(
    ("interval_s", "deaths", "is_saved"),
    [(0.0, 0, True), (1e9, 0, False), (1e9, 60, True)],
    ids=["checkpoints are due", "not due", "sooner after deaths"],
)
def test_stored_slabs_are_in_the_next_checkpoint_although_no_frame_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_s: float, deaths: int, *, is_saved: bool
) -> None:
    cells = tmp_path / "cells"
    last = killed_run(cells).progress()
    before = open_slabs(cells)
    assert (last.saved, last.saved_waiting) == (len(FRAMES), before)
    assert before > 5
    with monkeypatch.context() as patched:
        patched.setattr(view_run, "CHECKPOINT_INTERVAL_S", interval_s)
        patched.setattr(MirrorView, "finish", lambda self: self.settle() or Waiting.SLABS)  # no last save
        run = run_of(cells, SETTINGS, deaths=deaths)
        run.step()
        until(lambda: run.step() is not None and not run.progress().waiting, "all are stored", every_s=0.0)
        run.step()
        run.close()  # no save: a kill
    assert open_slabs(cells) == (0 if is_saved else before)
    finish(run_of(cells, SETTINGS))
    check_plain(cells, FRAMES)


def report(**values: Any) -> dict[str, Any]:
    names = ("from_memory", "from_stack", "overtaken", "waiting", "bytes_per_frame")
    counts = dict.fromkeys(names, 0)
    texts = dict.fromkeys(("warning", "space_warning", "restart_warning", "reason"), "")
    return {"state": "running", "cursor": 50, "count": 50, "saved": 50, "saved_waiting": 0, **counts, **texts, **values}


def test_a_checkpoint_with_more_in_it_is_progress() -> None:
    job = ViewJob(1, "cells", ViewSpec("n5", SETTINGS), None, None)
    assert job.note(report(cursor=50, saved=20))
    for saved, waiting, is_progress in (
        (20, 0, False),
        (20, 9, False),
        (30, 9, True),  # below the cursor that an earlier process had reached
        (30, 9, False),
        (30, 8, True),
        (30, 9, False),
        (50, 291, True),
        (50, 290, True),
    ):
        job.begin()
        job.note_death()
        deaths = job.deaths
        assert job.note(report(cursor=40, saved=saved, saved_waiting=waiting)) is is_progress
        assert job.deaths == (0 if is_progress else deaths)
