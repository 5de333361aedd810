"""The daemon's side of the view process: start, supervision, restart, and its end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from acqstream.daemon import view_process
from acqstream.daemon.crash_recovery import unfinished_views
from acqstream.daemon.view_job import ViewJob
from acqstream.daemon.view_process import ViewProcess
from acqstream.grid.kernels import kernels_name
from acqstream.mirrors.view_worker import MAX_CATCHING_UP
from acqstream.model.status import ViewProcessStatus
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.platform.capabilities import has_terminate_signal
from acqstream.views.checkpoint import CHECKPOINT_NAME, Checkpoint, mark_begun, read_checkpoint, view_folder
from acqstream.views.view_run import ViewState
from tests.log.make_frames import frames_of, start_log, write_log
from tests.views.pyramid_cases import finish, pyramid_of, tiles_of, write_tiled
from tests.views.view_sums import sums_of
from tests.waiting import until

FRAMES = frames_of(50)
SUMS = sums_of(frame.image for frame in FRAMES)
MUTE = (sys.executable, "-c", "import time; time.sleep(60)")
DYING = (sys.executable, "-c", "import sys; sys.exit(3)")


@contextmanager
def process_of(*command: str) -> Iterator[ViewProcess]:
    way: dict[str, Any] = {"command": command} if command else {}
    process = ViewProcess(**way)
    try:
        yield process
    finally:
        process.close()


def drive(process: ViewProcess, condition: Callable[[], Any], what: str, *, is_busy: bool = False) -> None:
    """Turns of the loop until `condition` holds."""

    def turn() -> Any:
        process.tick(time.monotonic(), lambda: is_busy)
        return condition()

    until(turn, what)


def reached(job: ViewJob, cursor: int) -> Callable[[], bool]:
    return lambda: job.progress.cursor == cursor


def pid_of(process: ViewProcess) -> int:
    pid = process.status().pid
    assert pid is not None
    return pid


def dead(process: ViewProcess, pid: int | None) -> Callable[[], bool]:
    return lambda: process.status().pid != pid


@pytest.fixture(autouse=True)
def _logger_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_process.logger, "disabled", False)  # a test of the import rules turns all loggers off


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", FRAMES)
    return tmp_path / "cells"


def state_of(folder: Path) -> Any:
    saved = read_checkpoint(view_folder(folder, "null"))
    return saved.state if saved is not None else None


def test_without_views_there_is_no_process() -> None:
    with process_of() as process:
        for _ in range(3):
            process._turn_at_s = 0.0
            process.tick(time.monotonic(), lambda: False)
        assert process.status() == ViewProcessStatus(memory="shared")


def test_a_view_is_made_and_the_idle_process_ends(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_process, "IDLE_S", 0.05)
    with process_of() as process:
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: job.is_ended, "the view is complete")
        assert (job.progress.state, job.progress.cursor, job.progress.from_stack) == (ViewState.COMPLETE, 50, 50)
        assert state_of(cells) == SUMS
        drive(process, dead(process, process.status().pid), "the process has ended")
        assert process.status().restarts == 0
        assert process.status().kernels == kernels_name()  # as the process itself reported
        again = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: again.is_ended, "it is started again")


def test_killed_it_goes_on(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    with process_of() as process:
        job = process.add(str(tmp_path / "cells"), ViewSpec("null"))
        for number in range(0, 30, 10):
            for frame in FRAMES[number : number + 10]:
                log.append(frame.header, frame.image)
            drive(process, reached(job, number + 10), "it has the frames")
            pid = pid_of(process)
            psutil.Process(pid).kill()
            drive(process, dead(process, pid), "it is gone")
        for frame in FRAMES[30:]:
            log.append(frame.header, frame.image)
        log.close()
        drive(process, lambda: job.is_ended, "the view is complete")
        assert (job.restarts, process.status().restarts, job.progress.state) == (3, 3, ViewState.COMPLETE)
    assert state_of(tmp_path / "cells") == SUMS


def test_one_that_dies_at_once_is_given_up(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    with process_of(*DYING) as process:
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: job.is_ended, "the view fails")
        assert job.deaths == view_process.MAX_DEATHS
        assert job.reason == "the process died 5 times (exit code 3) and the view made no progress"
        assert process.status().mirrors[0].state == "failed"
        assert process.status().mirrors[0].reason == job.reason
        restarts = process.status().restarts
        process.tick(time.monotonic() + 100, lambda: False)
        assert process.status().pid is None
        assert process.status().restarts == restarts
    assert "abandoned: " in caplog.text


def test_a_view_that_fails_is_told_and_the_others_go_on(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_log(cells.with_name("blocked"), FRAMES)
    cells.with_name("blocked.null").write_text("in the way")
    with process_of() as process:
        blocked = process.add(str(cells.with_name("blocked")), ViewSpec("null"))
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: blocked.is_ended and job.is_ended, "both have ended")
        assert blocked.progress.state is ViewState.FAILED
        assert "0 frames" not in blocked.reason
        assert "is not a view of blocked" in blocked.reason
        assert [one.path for one in process.status().mirrors] == [blocked.path]
        assert process.status().restarts == 0
    assert state_of(cells) == SUMS
    assert "view null of" in caplog.text
    assert "is not a view of blocked" in caplog.text


def test_a_mirror_that_cannot_be_made_any_more_is_told_and_the_others_go_on(cells: Path) -> None:
    settings = {"format": "n5", "levels": "many"}  # what another version took
    with process_of() as process:
        bad, good = process.add(str(cells), ViewSpec("n5", settings)), process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: bad.is_ended and good.is_ended, "both have ended")
        assert (bad.progress.state, good.progress.state) == (ViewState.FAILED, ViewState.COMPLETE)
        assert "levels" in bad.reason
        assert process.status().restarts == 0


def test_more_datasets_than_are_read_at_once(cells: Path) -> None:
    folders = [Path(shutil.copytree(cells, cells.with_name(f"copy{number}"))) for number in range(MAX_CATCHING_UP + 3)]
    with process_of() as process:
        jobs = [process.add(str(folder), ViewSpec("null")) for folder in folders]
        drive(process, lambda: all(job.is_ended for job in jobs), "all are complete")
    assert all(state_of(folder) == SUMS for folder in folders)


def test_while_a_log_has_a_backlog_the_disk_is_left_alone(cells: Path) -> None:
    with process_of() as process:
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: job.progress.state is ViewState.HELD, "it is held", is_busy=True)
        assert (job.progress.cursor, job.progress.count) == (0, 50)
        drive(process, lambda: job.is_ended, "it is resumed")
    assert state_of(cells) == SUMS


def test_one_that_takes_no_orders_is_killed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(view_process, "MAX_BLOCKED_S", 0.1)
    with process_of(*MUTE) as process:
        process.add("first", ViewSpec("null"))
        drive(process, lambda: process.status().pid, "it runs")
        pid = pid_of(process)
        numbers = itertools.count()

        def is_gone() -> bool:
            for _ in range(300):  # a socket of loopback takes some megabytes
                process.add(f"{next(numbers)}{'x' * 4000}", ViewSpec("null"))
            return process.status().pid != pid

        drive(process, is_gone, "it was killed")
    assert "view process unresponsive" in caplog.text


@pytest.mark.parametrize(
    "words", ["b'no JSON\\n'", "b'{\"id\": 1}\\n'", 'b\'{"id": 1, "state": "merry"}\\n\'', "b'[]\\n'", "b'x' * 200_000"]
)
def test_one_that_talks_nonsense_is_killed(words: str, caplog: pytest.LogCaptureFixture) -> None:
    program = "import sys, time; from acqstream.storage.platform import child_process"
    program += f"; child_process.adopt_connection(sys.argv[1]).sendall({words}); time.sleep(60)"
    with process_of(sys.executable, "-c", program) as process:
        process.add("cells", ViewSpec("null"))
        drive(process, lambda: process.status().restarts, "it was killed")
    assert "invalid report" in caplog.text


def test_a_fault_here_ends_the_views_and_nothing_else(cells: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bool:
        raise ZeroDivisionError("no such luck")

    with process_of() as process:
        job = process.add(str(cells), ViewSpec("null"))
        for _ in range(3):
            process._turn_at_s = 0.0
            process.tick(time.monotonic(), broken)
        assert job.reason == "an internal error of the daemon: ZeroDivisionError: no such luck"
        drive(process, lambda: process.status().pid is None, "the process is gone")
        assert process.add(str(cells), ViewSpec("null")).reason == job.reason
    assert caplog.text.count("Traceback") == 1
    assert "internal error while supervising views" in caplog.text


def test_a_stopped_process_does_not_keep_the_daemon_from_ending(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_process, "END_S", 0.2)
    with process_of() as process:
        process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: process.status().pid, "it runs")
        psutil.Process(pid_of(process)).suspend()
        began_s = time.monotonic()
        process.close()
        assert time.monotonic() - began_s < 5.0
        assert process.status().pid is None


def test_at_the_daemon_s_end_views_are_saved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_process, "END_S", 50.0)  # the process forces what it saves
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    for frame in FRAMES[:20]:
        log.append(frame.header, frame.image)
    with process_of() as process:
        job = process.add(str(tmp_path / "cells"), ViewSpec("null"))
        drive(process, lambda: job.progress.cursor == 20, "it has the frames")
    assert state_of(tmp_path / "cells") == sums_of(frame.image for frame in FRAMES[:20])
    log.begin_close()
    log.close()


def test_asked_for_again_the_first_one_is_dropped(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    with process_of() as process:
        jobs: list[ViewJob] = []
        for number in range(3):
            jobs.append(process.add(str(tmp_path / "cells"), ViewSpec("null")))
            log.append(FRAMES[number].header, FRAMES[number].image)
            drive(process, reached(jobs[-1], number + 1), "the last one works")
        assert len(process.status().mirrors) == 1
        log.close()
        drive(process, lambda: jobs[-1].is_ended, "the view is complete")
    assert state_of(tmp_path / "cells") == sums_of(frame.image for frame in FRAMES[:3])


def test_what_cannot_be_started_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with process_of("/nowhere/python") as process:
        process.add("cells", ViewSpec("null"))
        process.tick(time.monotonic(), lambda: False)
        assert process.status().pid is None
    assert "cannot start the view process" in caplog.text


def test_views_of_an_earlier_daemon_go_on(tmp_path: Path) -> None:
    for name in ("done", "begun", "plain"):
        write_log(
            tmp_path / name,
            FRAMES[:3],
            name=name,
            views=() if name == "plain" else (ViewSpec("null"), ViewSpec("unheard-of")),
        )
    (tmp_path / "nothing").mkdir()
    with process_of() as process:
        job = process.add(str(tmp_path / "done"), ViewSpec("null"))
        drive(process, lambda: job.is_ended, "one view is complete")
        begun = (tmp_path / "begun", ViewSpec("null"))
        assert list(unfinished_views(sorted(tmp_path.iterdir()))) == [begun]
        (tmp_path / "done.null" / CHECKPOINT_NAME).write_text("{")
        both = list(unfinished_views(sorted(tmp_path.iterdir())))
        assert both == [begun, (tmp_path / "done", ViewSpec("null"))]
        process.resume(both)
        drive(process, lambda: not process.is_busy, "both are made")
    assert state_of(tmp_path / "begun") == state_of(tmp_path / "done") == sums_of(frame.image for frame in FRAMES[:3])


def test_a_view_of_an_acquisition_that_was_resumed_meanwhile_stays_with_it(cells: Path) -> None:
    with process_of(*MUTE) as process:
        live = process.add(str(cells), ViewSpec("null"))
        process.resume(iter([(cells, ViewSpec("null")), (cells, ViewSpec("null", {"format": "null"}, "other"))]))
        drive(process, lambda: len(process.status().mirrors) > 1, "the other one is added")
        assert [one.mirror for one in process.status().mirrors] == ["null", "other"]
        assert process.results(str(cells))["null"] == live.result()
        assert live in process._jobs.values()


def test_a_process_is_busy_while_it_looks_for_views_and_stops_looking_at_the_end() -> None:
    may_go_on = threading.Event()
    asked: list[int] = []

    def slow() -> Iterator[tuple[Path, ViewSpec]]:
        for number in range(3):
            asked.append(number)
            may_go_on.wait()
            yield Path(f"cells{number}"), ViewSpec("null")

    with process_of(*MUTE) as process:
        process.resume(slow())
        process.tick(time.monotonic(), lambda: False)
        assert (process.is_busy, process.status().mirrors) == (True, ())
        process.stop()
        may_go_on.set()
        assert process._search is not None
        process._search.join()
    assert asked == [0]


class Counted(str):
    """A path that counts comparisons with it."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_adding_views_takes_the_same_work_for_each() -> None:
    process = ViewProcess(MUTE)
    for number in range(300):
        process.add(Counted(f"cells{number}"), ViewSpec("null"))
    assert len(process.status().mirrors) == 300
    assert Counted.comparisons < 300
    process.add(Counted("cells7"), ViewSpec("null"))
    assert len(process.status().mirrors) == 300


PARENT = """
    import sys, time
    from acqstream.model.view_spec import ViewSpec
    from acqstream.daemon.view_process import ViewProcess
    process = ViewProcess()
    job = process.add(sys.argv[1], ViewSpec("null"))
    while True:
        process.tick(time.monotonic(), lambda: False)
        if job.progress.state == "waiting":
            print(process.status().pid, flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("settings", [[1], {"n5": "x"}, {"../x": {"format": "n5"}}])
def test_a_request_that_was_damaged_does_not_keep_the_daemon_from_going_on_with_others(
    cells: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write_log(cells.with_name("other"), FRAMES[:1])
    for folder, mirrors in (
        (cells, [*settings] if isinstance(settings, dict) else ["n5"]),
        (cells.with_name("other"), ["null"]),
    ):
        path = folder / "acqstream.json"
        state = json.loads(path.read_text())
        state["request"] |= {"mirrors": mirrors, "mirror_settings": settings if folder == cells else {}}
        path.write_text(json.dumps(state))
    with process_of(*MUTE) as process:
        process.resume(unfinished_views([cells, cells.with_name("other")]))
        drive(process, lambda: process.status().mirrors, "the other one is found")
        assert "cells: invalid request" in caplog.text
        assert [one.path for one in process.status().mirrors] == [str(cells.with_name("other"))]


def test_it_dies_with_the_daemon(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path / "cells")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        child.suspend()  # so that it cannot see the end of file
        parent.kill()
    child.wait(10)
    log.begin_close()
    log.close()


@pytest.mark.skipif(not has_terminate_signal(), reason="such signals kill a process of Windows")
def test_the_terminal_s_signals_do_not_end_it(tmp_path: Path) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open()
    with process_of() as process:
        job = process.add(str(tmp_path / "cells"), ViewSpec("null"))
        drive(process, lambda: job.progress.state is ViewState.WAITING, "it runs")
        pid = pid_of(process)
        assert psutil.Process(pid).nice() > 0
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        log.append(FRAMES[0].header, FRAMES[0].image)
        log.close()
        drive(process, lambda: job.is_ended, "the view is complete")
        assert process.status().pid == pid


def test_readers_are_told_of_a_view_that_is_given_up(cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_process, "FIRST_PAUSE_S", 0.001)
    mark_begun(LocalDisk(), cells, "null", "07")
    with process_of(*DYING) as process:
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: job.is_failed, "the view fails")
        until(lambda: saved_of(cells).failed, "it is told")
        assert "and the view made no progress" in saved_of(cells).failed
    with process_of() as process:  # as the next daemon does
        job = process.add(str(cells), ViewSpec("null"))
        drive(process, lambda: job.is_ended, "the view is complete")
    assert (saved_of(cells).failed, saved_of(cells).is_complete) == ("", True)


def saved_of(folder: Path) -> Checkpoint:
    saved = read_checkpoint(view_folder(folder, "null"))
    assert saved is not None
    return saved


def test_levels_without_their_view_are_left_alone(tmp_path: Path) -> None:
    write_tiled(tmp_path / "cells", tiles_of([(0, 0), (0, 1)]), views=(ViewSpec("pyramid"),))
    finish(pyramid_of(tmp_path / "cells"))
    (tmp_path / "cells").rename(tmp_path / "renamed")
    with process_of() as process:
        assert list(unfinished_views([tmp_path / "renamed"])) == []
        (tmp_path / "renamed" / "acqstream.mirror.pyramid.json").unlink()  # as an earlier version left it
        assert list(unfinished_views([tmp_path / "renamed"])) == []
        write_tiled(tmp_path / "none yet", tiles_of([(0, 0), (0, 1)]), views=(ViewSpec("pyramid"),))
        process.resume(unfinished_views([tmp_path / "none yet"]))
        drive(process, (tmp_path / "none yet" / "Downsampled_x2").exists, "it is made")


def test_settings_reach_the_view(tmp_path: Path) -> None:
    write_tiled(tmp_path / "cells", tiles_of([(0, 0), (0, 1)]))
    process = ViewProcess(options={"pyramid": {"memory_bytes": "many"}})
    with contextlib.closing(process):
        job = process.add(str(tmp_path / "cells"), ViewSpec("pyramid"))
        drive(process, lambda: job.is_failed, "it cannot work with that")
    assert "TypeError" in job.reason
