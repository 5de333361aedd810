"""Views of rows: every frame once, over restarts, and no pixel is read for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from acqstream.views.base import View, ViewSource
from acqstream.views.frame_feed import FrameFeed, Lease
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import frames_of, start_log, write_log
from tests.views.pyramid_cases import finish
from tests.waiting import until

FRAMES = frames_of(40)


class RowList(View):
    """Keeps the rows, at most 7 of them at once."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def open(self, source: ViewSource) -> None:
        self.reader = source.reader

    def take_rows(self, cursor: int, count: int) -> int:
        taken = range(cursor, min(count, cursor + 7))
        self.rows += taken
        return taken.stop

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        return {"rows": list(self.rows)}, lambda: None

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        self.rows = list(state["rows"])

    def summary(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("pixels are read")

    monkeypatch.setattr(FrameFeed, "take", refuse)


def run_of(path: Path, **more: Any) -> ViewRun:
    return ViewRun(path, "rows", RowList, **more)


def rows_in(run: ViewRun) -> list[int]:
    assert isinstance(run.view, RowList)
    return run.view.rows


@pytest.mark.usefixtures("no_pixels")
def test_every_row_is_taken_once(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", FRAMES)
    run = finish(run_of(tmp_path / "cells"))
    assert run.progress().state is ViewState.COMPLETE
    assert (run.progress().cursor, rows_in(run)) == (40, list(range(40)))


@pytest.mark.usefixtures("no_pixels")
def test_it_follows_a_growing_dataset_and_resumes(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        for frame in FRAMES[:10]:
            log.append(frame.header, frame.image)
        first = run_of(tmp_path / "cells")
        until(lambda: first.step() is not None and len(rows_in(first)) == 10, "ten rows are taken", every_s=0.0)
        first.save()
        first.close()
        again = run_of(tmp_path / "cells")
        again.step()
        assert rows_in(again) == list(range(10))
        for frame in FRAMES[10:]:
            log.append(frame.header, frame.image)
        until(lambda: again.step() is not None and len(rows_in(again)) == 40, "all rows are taken", every_s=0.0)
    assert rows_in(finish(again)) == list(range(40))


def test_while_the_log_has_a_backlog_a_view_that_is_not_ready_is_held(tmp_path: Path) -> None:
    class Unready(RowList):
        def is_ready(self, row: int) -> bool:
            return False

    write_log(tmp_path / "cells", FRAMES)
    run = ViewRun(tmp_path / "cells", "rows", Unready, may_read=lambda: False)
    run.step()
    assert run.progress().state is ViewState.HELD
    assert rows_in(run) == []
    run.close()


def test_frames_are_refused() -> None:
    with pytest.raises(TypeError, match="takes rows, not frame 3"):
        RowList().take(Lease(3, None))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes rows"):
        RowList().keep(1)
