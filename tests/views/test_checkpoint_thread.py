"""Checkpoints of live views: frames are taken while one is written, and none tells of more than the disk has."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.views import view_run as views
from acqstream.views.checkpoint import CHECKPOINT_NAME, read_checkpoint
from acqstream.views.null_view import NullView
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import frames_of
from tests.views.shared_log import Source, source_of
from tests.views.view_sums import sums_of
from tests.waiting import until

FRAMES = frames_of(40)


class Slow(NullView):
    """What it has written is forced once `go` is set, or fails then with `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.begun = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        def force() -> None:
            self.begun.set()
            assert self.go.wait(30)
            if self.error is not None:
                raise self.error

        return self.summary(), force


@contextmanager
def live_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Source, ViewRun, Slow]]:
    """A run whose first checkpoint is being forced: it has ten frames."""
    monkeypatch.setattr(views, "CHECKPOINT_INTERVAL_S", 0.0)
    view = Slow()
    with source_of(folder) as source:
        source.put(FRAMES[:10])
        run = ViewRun(folder, "null", lambda: view, recent=source.recent)
        try:
            until(lambda: run.step() is not None and view.begun.is_set(), "a checkpoint is being forced")
            until(lambda: run.step() is not None and run.progress().cursor == 10, "ten frames are taken")
            yield source, run, view
        finally:
            view.go.set()
            run.close()


def saved_cursor(folder: Path) -> int | None:
    path = folder.with_name(f"{folder.name}.null") / CHECKPOINT_NAME
    return json.loads(path.read_bytes())["cursor"] if path.exists() else None


def test_frames_are_taken_while_a_checkpoint_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (source, run, view):
        source.put(FRAMES[10:])
        until(lambda: run.step() is not None and run.progress().cursor == 40, "the others are taken")
        assert (saved_cursor(cells), run.progress().saved) == (None, -1)
        view.go.set()
        until(lambda: run.step() is not None and run.progress().saved == 40, "all are saved")
        assert saved_cursor(cells) == 40
    saved = read_checkpoint(cells.with_name("cells.null"))
    assert saved is not None
    assert saved.state == sums_of(frame.image for frame in FRAMES)


def test_the_first_checkpoint_has_what_was_taken_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (source, run, view):
        monkeypatch.setattr(views, "CHECKPOINT_INTERVAL_S", 1e9)
        source.put(FRAMES[10:])
        until(lambda: run.step() is not None and run.progress().cursor == 40, "the others are taken")
        view.go.set()
        until(lambda: run.step() is not None and run.progress().saved > 0, "it is saved")
        saved = read_checkpoint(cells.with_name("cells.null"))
    assert saved is not None
    assert 0 < saved.cursor <= 10
    assert saved.state == sums_of(frame.image for frame in FRAMES[: saved.cursor])


def test_an_error_reaches_the_next_step_and_its_mark_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (source, run, view):
        view.error = StorageError.wrap(OSError(errno.EIO, "no"), "x", "cannot force")
        view.go.set()
        source.put(FRAMES[10:])
        with pytest.raises(StorageError, match="cannot force"):
            until(lambda: run.step() is None, "it fails")
        assert run.progress().state is ViewState.FAILED
        assert saved_cursor(cells) is None


def test_another_error_waits_for_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the checkpoint could replace the mark of the failure."""
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (source, run, view):
        monkeypatch.setattr(Slow, "take", lambda *_: 1 // 0)
        view.error = StorageError.wrap(OSError(errno.EIO, "no"), "x", "cannot force")
        threading.Timer(0.2, view.go.set).start()  # whenever: the failure waits for it
        source.put(FRAMES[10:])
        with pytest.raises(ZeroDivisionError) as caught:
            until(lambda: run.step() is None, "it fails")
        assert "its checkpoint could not be written" in caught.value.__notes__[0]
        assert run._checkpoints._running is None


def test_a_full_disk_delays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (source, run, view):
        view.error = DiskFull.wrap(OSError(errno.ENOSPC, "full"), "x", "cannot force")
        view.go.set()
        source.put(FRAMES[10:])
        until(lambda: run.step() is not None and run.progress().state is ViewState.HELD, "it waits for space")
        view.error = None
        until(lambda: run.step() is not None and run.progress().saved == 40, "all are saved")
        assert saved_cursor(cells) == 40


def test_the_end_of_the_run_is_not_announced_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed checkpoint has lost may look forced to the calls that come after it."""
    finished: list[bool] = []
    with live_run(tmp_path / "cells", monkeypatch) as (source, run, view):

        def finish(own: Slow) -> None:
            finished.append(own.go.is_set())

        monkeypatch.setattr(Slow, "finish", finish)
        source.log.close()
        threading.Timer(0.2, view.go.set).start()
        until(lambda: run.step() is None, "the view is complete")
        assert finished == [True]
        assert run.progress().state is ViewState.COMPLETE


def test_the_end_waits_for_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_run(tmp_path / "cells", monkeypatch) as (_, run, view):
        threading.Timer(0.2, view.go.set).start()
        run.save()
        assert run.progress().saved == 10


def test_closing_a_run_waits_for_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock must not be given to another process before."""
    cells = tmp_path / "cells"
    with live_run(cells, monkeypatch) as (_, run, view):
        threading.Timer(0.2, view.go.set).start()
        run.close()
        assert (saved_cursor(cells) or 0) > 0
