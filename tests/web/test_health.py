"""Readiness: what keeps a daemon from recording is named in one line."""

from __future__ import annotations

import pytest

from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web.app import trouble_of
from tests.monitor.views_of_daemons import run_status, view_of


@pytest.mark.parametrize(
    ("view", "trouble"),
    [
        (view_of(), ""),
        (view_of(run_status()), ""),
        (view_of(run_status(), space="low"), ""),
        (DaemonView(why="the port is closed\nand more"), "no daemon answers: the port is closed"),
        (
            view_of(run_status(), run_status("b", stall="write of x takes 2.0 s")),
            "b: the disk stalls: write of x takes 2.0 s",
        ),
        (view_of(space="full", free_bytes=7), "the disk of /data is full: 7 bytes are free"),
    ],
)
def test_trouble(view: DaemonView, trouble: str) -> None:
    assert trouble_of(view) == trouble
