"""A format of another package, found by its entry point: mirrored to and read like ours."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import ConfigError
from acqstream.formats import registry
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.view_worker import view_maker
from acqstream.model.view_spec import ViewSpec
from tests.log.make_frames import start_log, write_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, places_of, run_of

GROUP = registry.ENTRY_POINTS
ENTRIES = [
    EntryPoint("npy", "tests.mirrors.npy_format:FORMAT", GROUP),
    EntryPoint("gone", "no_such_package:FORMAT", GROUP),
    EntryPoint("wrong", "tests.mirrors.npy_format:NOTE", GROUP),
]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "entry_points", lambda *, group: ENTRIES if group == GROUP else [])
    registry.foreign_formats.cache_clear()
    yield
    registry.foreign_formats.cache_clear()


def test_it_is_written_and_read_like_ours(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 3, "z": 6}))
    write_log(tmp_path / "cells", frames)
    settings = {"format": "npy", "depth": 4}
    run = finish(run_of(tmp_path / "cells", settings, name="npy"))
    with acqstream.open(tmp_path / "cells.npy") as mirror:
        assert (mirror.format, mirror.complete, mirror.levels[0].axes) == ("npy", True, ("time", "z", "y", "x"))
        assert np.array_equal(mirror.levels[0].read(), array_of(frames))
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"


def test_it_grows(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": 3}))
    with start_log(tmp_path / "cells") as log:
        log.wait_until_open()
        run = run_of(tmp_path / "cells", {"format": "npy"}, name="npy")
        for frame in frames[:4]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(4)
        while run.progress().cursor < 4:
            run.step()
        run.settle()
        with acqstream.open(tmp_path / "cells.npy") as mirror:
            assert (mirror.complete, mirror.shape[:2]) == (False, (2, 3))
        for frame in frames[4:]:
            log.append(frame.header, frame.image)
    finish(run)
    with acqstream.open(tmp_path / "cells.npy") as mirror:
        assert np.array_equal(mirror.levels[0].read(), array_of(frames))


def test_wrong_ones_are_passed_over_and_its_options_checked(caplog: pytest.LogCaptureFixture) -> None:
    assert {"n5", "npy"} <= set(registry.chunk_format_names())
    assert "gone" in caplog.text
    assert "wrong" in caplog.text
    with pytest.raises(ConfigError, match="npy has one option"):
        view_maker(ViewSpec("npy", {"format": "npy", "depth": 0}))
