"""A daemon that checks its datasets before it listens: `status`, the page and producers say so, whatever names it."""

from __future__ import annotations

import contextlib
import shutil
from datetime import datetime
from pathlib import Path

import pytest

import acqstream
from acqstream.cli.main import main
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.default_endpoint import starting
from acqstream.client.producer import create
from acqstream.errors import AcqStreamError, DaemonUnavailable
from acqstream.model.view_spec import ViewSpec
from acqstream.monitor.daemon_watch import DaemonWatch
from acqstream.storage.files.directory_lock import holder_of
from acqstream.views.null_view import NullView
from acqstream.views.view_run import ViewRun
from acqstream.web.app import trouble_of
from acqstream.web.page.page_texts import page_texts
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import frame_of, start_log, wait_for, write_log
from tests.views.pyramid_cases import finish
from tests.waiting import until

# Recovery waits while the trigger exists.
PRELUDE = """
import time
from pathlib import Path
from acqstream.daemon import server
recover_all = server.recover_all
def recover(folders):
    while Path({trigger!r}).exists():
        time.sleep(0.005)
    return recover_all(folders)
server.recover_all = recover
"""


def test_a_daemon_that_starts_is_no_missing_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    runtime, trigger = tmp_path / "acqstream", tmp_path / "wait"
    trigger.touch()
    with start_log(tmp_path / "recorded") as log:  # a copy of it is what a killed daemon leaves
        log.append((frame := frame_of(0)).header, frame.image)
        wait_for(log, lambda: log.cursors().durable == 1)
        cells = shutil.copytree(tmp_path / "recorded", tmp_path / "data" / "cells")
    daemon = DaemonProcess(
        tmp_path / "data", prelude=PRELUDE.format(trigger=str(trigger)), runtime=str(runtime), ipc=False
    )
    mark = runtime / f"{daemon.port}.starting"
    daemon.launch()
    try:
        holder = until(lambda: holder_of(str(mark)), "the start is marked")
        assert f"pid {daemon.pid} " in holder.name
        assert starting(f"tcp://192.0.2.1:{daemon.port}") == ""  # another machine's port
        for place in (["--endpoint", daemon.endpoint], ["--data", str(daemon.data)]):
            assert command("status", *place) == 69
            assert f"the daemon is starting ({holder.name})" in capsys.readouterr().err
        for typed in (["info", cells], ["wait", "--timeout", "0", cells]):
            command(*typed)
            shown = capsys.readouterr().out
            assert "the daemon is starting: it checks this run" in shown
            assert "running" not in shown
        with pytest.raises(DaemonUnavailable, match="the daemon is starting"):
            create("cells", endpoint=daemon.endpoint, patience_s=0.3)
        watch = DaemonWatch(daemon.endpoint)
        view = watch.tick()
        assert page_texts(view, "scope", datetime.now().astimezone())["alarm"] == "the daemon is starting"
        assert trouble_of(view).startswith("the daemon is starting")
        trigger.unlink()
        until(lambda: watch.tick().status, "it answers")
        watch.close()
        with contextlib.suppress(SystemExit):
            main(["info", str(cells)])
        assert "state   interrupted" in capsys.readouterr().out
        until(lambda: not mark.exists(), "the mark is removed")
    finally:
        trigger.unlink(missing_ok=True)
        daemon.kill_if_running()
    mark.mkdir()  # as a killed daemon leaves it
    with pytest.raises(DaemonUnavailable, match="no daemon answers"):
        fetch_status(daemon.endpoint)


# The search for views of earlier daemons waits while the trigger exists.
SEARCH = """
import time
from pathlib import Path
from acqstream.daemon import server
unfinished_views = server.unfinished_views
def search(folders):
    while Path({trigger!r}).exists():
        time.sleep(0.005)
    yield from unfinished_views(folders)
server.unfinished_views = search
"""


def test_a_daemon_answers_and_resumes_runs_while_it_looks_for_views(tmp_path: Path) -> None:
    trigger, data = tmp_path / "wait", tmp_path / "data"
    data.mkdir()
    trigger.touch()
    for name in ("old", "removed"):
        write_log(data / name, [frame_of(0)], name=name, views=(ViewSpec("null"),))
    finish(ViewRun(data / "removed", "null", NullView))
    shutil.rmtree(data / "removed.null")
    with start_log(tmp_path / "cells", views=(ViewSpec("null"),)) as log:  # a copy of it is what a killed daemon leaves
        log.append((frame := frame_of(0)).header, frame.image)
        wait_for(log, lambda: log.cursors().durable == 1)
        shutil.copytree(tmp_path / "cells", data / "cells")
    with DaemonProcess(data, prelude=SEARCH.format(trigger=str(trigger))) as daemon:
        assert fetch_status(daemon.endpoint).views.mirrors == ()
        with pytest.raises(AcqStreamError, match="exists"):
            create("old", endpoint=daemon.endpoint)
        with create("cells", endpoint=daemon.endpoint, resume=True) as run:
            run.put(frame_of(1).image, time=1)
            trigger.unlink()
            until((data / "old.null" / "view.json").exists, "the view of an earlier run is made")
        assert run.wait_for_mirrors()[0].frames == 2
    trigger.touch()
    daemon.launch()  # killed while it looks, it has done no harm
    until(lambda: holder_of(str(data)), "it has the directory")
    daemon.kill_if_running()
    with DaemonProcess(data) as last:
        assert fetch_status(last.endpoint).acquisitions == ()
    with acqstream.open(data / "cells") as dataset:
        assert [(one.name, one.state, one.frames) for one in dataset.mirrors.values()] == [("null", "complete", 2)]
    assert (data / "old.null").exists()
    assert not (data / "removed.null").exists()
