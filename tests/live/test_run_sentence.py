"""One sentence for a run, in the terminal, on the page and in its program, of a real daemon."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from acqstream import create
from acqstream.monitor.daemon_watch import DaemonWatch
from acqstream.web.page.page_texts import page_texts
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

IMAGE = np.zeros((64, 64), np.uint16)


def test_all_faces_say_the_same_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        watch = DaemonWatch(daemon.endpoint)
        with create("cells", endpoint=daemon.endpoint, expect=12, durability="batch") as run:
            assert str(run) == "cells: no frame yet"
            for time in range(5):
                run.put(IMAGE, time=time)
                until(lambda: run.progress.published == run.next, "the daemon has it")
            run.skip(2, reason="the shutter was closed")
            until(lambda: "5 of 12 frames safe" in str(run), "the daemon has reported it")
            first, *more = str(run).splitlines()
            assert first.startswith("cells: 5 of 12 frames safe · ends ")
            assert first.endswith(" · 41 kB to come, fits")
            assert more == ["2 frames skipped: 5 to 6"]
            command("status", "--endpoint", daemon.endpoint)
            shown = capsys.readouterr().out
            assert "cells: RUNNING, 5 of 12 frames safe · ends " in shown
            assert " · 41 kB to come, fits\n" in shown
            (texts,) = page_texts(watch.tick(), "scope", datetime.now().astimezone())["runs"]
            assert texts["sentence"].startswith("5 of 12 frames safe · ends ")
            assert (texts["safe"], texts["planned"], texts["to_come_bytes"], texts["fits"]) == (5, 12, 40960, True)
            assert texts["skipped"] == "2 frames skipped: 5 to 6"
            assert datetime.fromisoformat(texts["ends_at"]).utcoffset() is not None
            daemon.kill()
            until(lambda: "these numbers are old" in str(run), "its silence is noticed")
            daemon.start()
            until(lambda: "these numbers are old" not in str(run), "it is back")
        watch.close()
        assert str(run).startswith("cells: complete; 2 frames skipped")
