"""N5 and WKW together: killed again and again, and looked at all the time, each is what it would be alone."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.views.view_run import ViewRun
from tests.checksum_files import is_list
from tests.log.make_frames import start_log, write_log
from tests.mirrors.mirror_cases import (
    PLAIN,
    array_of,
    check_plain,
    declared,
    finish,
    frames_at,
    places_of,
    run_of,
    shuffled,
)
from tests.mirrors.wkw_cases import check_announced
from tests.waiting import until

SIZES = {"time": 2, "channel": 2, "z": 37}
AXES = tuple(SIZES)
SHAPE = (70, 90)
N5: dict[str, Any] = {**PLAIN, "blocks": [8, 32, 32], "levels": 2}
WKW: dict[str, Any] = {"format": "wkw", "cube": 32, "levels": 2}
STEP, N5_STEP = (1, 2, 2), (2, 2, 2)  # voxels of unknown size: WKW keeps z
KILLS = 30


pytestmark = pytest.mark.usefixtures("small_steps")


def both(folder: Path, compression: str, **more: Any) -> list[ViewRun]:
    wkw = {**WKW, "compression": compression}
    return [run_of(folder, N5, name="n5", **more), run_of(folder, wkw, name="wkw", **more)]


def take_steps(runs: list[ViewRun], most: int) -> bool:
    """Step all of them; True when nothing is left to do."""
    left = list(runs)
    for _ in range(most):
        for run in list(left):
            wait_s = run.step()
            if wait_s is None:
                left.remove(run)
            else:
                time.sleep(min(wait_s, 0.002))
    return not left


def files_of(container: Path) -> dict[str, bytes]:
    """All files but the one that holds the identity of the dataset, and the lists of checksums."""
    paths = (path for path in container.rglob("*") if path.is_file() and path.name != "acqstream-array.json")
    return {path.relative_to(container).as_posix(): path.read_bytes() for path in paths if not is_list(path)}


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("compression", ["raw", "lz4"])
def test_killed_thirty_times_they_end_as_if_nothing_had_been(tmp_path: Path, compression: str, order: str) -> None:
    chance = random.Random(f"{compression} {order}")
    places = places_of(AXES, SIZES)
    frames = frames_at(shuffled(places, 3) if order == "shuffled" else places, SHAPE)
    for name in ("alone", "killed"):
        (tmp_path / name).mkdir()
        write_log(tmp_path / name / "cells", frames)
    for run in both(tmp_path / "alone" / "cells", compression):
        finish(run)
    for kill in itertools.count():
        runs = both(tmp_path / "killed" / "cells", compression, memory_mb=chance.choice([8, 64]))
        is_done = take_steps(runs, chance.randrange(1, 6) if kill < KILLS else 10_000)
        for run in runs:
            run.close()  # as after SIGKILL: nothing is saved
        holes = order == "shuffled"
        check_announced(tmp_path / "killed" / "cells.wkw", array_of(frames, AXES), steps=(STEP,), has_holes=holes)
        if is_done:
            break
    assert kill >= KILLS
    check_plain(tmp_path / "killed" / "cells", frames, (N5_STEP,))
    there = check_announced(tmp_path / "killed" / "cells.wkw", array_of(frames, AXES), steps=(STEP,))
    assert there == {(time, channel, 37) for time in range(2) for channel in range(2)}
    for suffix in ("n5", "wkw"):
        once, again = (files_of(tmp_path / name / f"cells.{suffix}") for name in ("alone", "killed"))
        assert once.keys() == again.keys()
        assert [name for name in once if once[name] != again[name]] == []


SEEN_AT = 80  # the first frame of the second time


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("compression", ["raw", "lz4"])
def test_who_looks_on_finds_what_is_announced(tmp_path: Path, compression: str, is_declared: bool) -> None:
    sizes = {"time": 2, "channel": 2, "z": 40}
    frames = frames_at(places_of(AXES, sizes), SHAPE)
    right = array_of(frames, AXES)
    seen = []
    with start_log(tmp_path / "cells", axes=declared(AXES, sizes) if is_declared else ()) as log:
        log.wait_until_open()
        runs = both(tmp_path / "cells", compression)
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            for run in runs:
                while run.progress().cursor <= frame.header.number:
                    assert run.step() is not None
            if frame.header.number == SEEN_AT:

                def is_shown() -> bool:
                    return all(run.step() is not None for run in runs) and {
                        (0, channel, 40) for channel in range(2)
                    } == check_announced(tmp_path / "cells.wkw", right, steps=(STEP,))

                until(is_shown, "the first time is announced when the second one has begun")
            if frame.header.number % 7 == 0 and (tmp_path / "cells.wkw").exists():
                seen.append(check_announced(tmp_path / "cells.wkw", right, steps=(STEP,)))
    for run in runs:
        finish(run)
    whole = check_announced(tmp_path / "cells.wkw", right, steps=(STEP,))
    assert whole == {(time, channel, 40) for time in range(2) for channel in range(2)}
    check_plain(tmp_path / "cells", frames, (N5_STEP,))
    assert {depth for _, _, depth in set().union(*seen)} == {40}, "no stack is shown in part"
    assert np.prod(right.shape[:3]) == len(frames)
