"""What a mirror leaves in its process when it is closed."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.log.make_frames import start_log
from tests.mirrors.mirror_cases import frames_at, places_of, run_of
from tests.waiting import until


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("mirror-n5-", "memory-ahead"))}


def test_its_threads_end(tmp_path: Path) -> None:
    before = workers()
    frames = frames_at(places_of(("time",), {"time": 3}))
    with start_log(tmp_path / "cells") as log:
        for frame in frames:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(3)
        run = run_of(tmp_path / "cells")
        until(lambda: run.step() is not None and run.progress().cursor == 3, "it has the frames")
        own = workers() - before
        assert own
        run.close()
        until(lambda: not any(thread.is_alive() for thread in own), "they end")
