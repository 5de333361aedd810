"""Mirrors made by real processes: one is killed, all are, the first one is; the result is always the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from acqstream.mirrors import mirror_tasks
from acqstream.mirrors.task_runner import ProcessPool, TaskRunner
from tests.log.make_frames import Frame, write_log
from tests.mirrors.mirror_cases import check_plain, finish, frames_at, places_of, run_of
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(120)]
SETTINGS = {"format": "n5", "layout": "array", "compression": "bzip2", "blocks": [4, 128, 128], "levels": 2}
OPTIONS = ("--to", "n5", "--compression", "bzip2", "--blocks", "4,128,128", "--option", "layout=array")
HALVED = ((2, 2, 2),)
FRAMES = frames_at(places_of(("time", "z"), {"time": 8, "z": 8}), (192, 160))
MANY_FRAMES = frames_at(places_of(("time", "z"), {"time": 20, "z": 8}), (192, 160))  # some seconds of work
PRELUDE = """
import os, signal, sys, time
from acqstream.cli.main import main
from acqstream.mirrors import task_runner
from acqstream.mirrors import mirror_tasks
from acqstream.views import view_folder, view_run
if __name__ == "__main__":
    # A shell ignores interrupts for what it runs in the background, and so would this program.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    mirror_tasks.MIN_TASK_BYTES = 1
    task_runner.DASK_TIMEOUT_S = 3
    view_run.CHECKPOINT_INTERVAL_S = 0.0  # each part that is done is noted at once
    write = view_folder.write_checkpoint
    def write_and_wait(disk, folder, checkpoint):
        write(disk, folder, checkpoint)
        while checkpoint.state.get("parts", {}).get("done") and os.path.exists(f"{folder}.hold"):
            time.sleep(0.01)
    view_folder.write_checkpoint = write_and_wait
    main(sys.argv[1:])
"""


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", FRAMES)
    return tmp_path / "cells"


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in process.children() if "spawn_main" in command_of(one)]


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.Error, OSError):  # it begins or ends just now; on Windows psutil passes some errors on
        return ""


@contextmanager
def started(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is killed at the end: nobody waits for one that is held after a failure."""
    with subprocess.Popen(command, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def mirror_command(folder: Path, *more: str) -> Sequence[str]:
    program = folder.with_name("mirror.py")
    program.write_text(PRELUDE)
    return [sys.executable, str(program), "mirror", str(folder), *OPTIONS, "--option", "levels=2", *more]


def check(folder: Path, frames: Sequence[Frame] = FRAMES) -> None:
    check_plain(folder, frames, HALVED)
    assert not list(folder.parent.rglob("*.new"))


def hold(folder: Path) -> Path:
    """While this file is there, the first process waits when some parts are noted as done, and not all."""
    file = folder.with_name("cells.n5.view.hold")
    file.touch()
    return file


@pytest.mark.parametrize("killed", [1, 2])
def test_processes_are_killed_and_others_take_over(cells: Path, monkeypatch: pytest.MonkeyPatch, killed: int) -> None:
    monkeypatch.setattr(mirror_tasks, "MIN_TASK_BYTES", 1)
    ours = psutil.Process()
    with TaskRunner(partial(ProcessPool, 2), 1) as runner:
        run = run_of(cells, SETTINGS, runner=runner)
        while not run.frames_ahead:
            assert run.step() is not None
        assert run.frames_ahead < len(FRAMES)
        victims = workers_of(ours)[:killed]
        for victim in victims:
            victim.kill()
        finish(run)
    assert len(victims) == killed
    check(cells)
    assert workers_of(ours) == []


@pytest.mark.deep
def test_the_first_process_is_killed_and_the_command_given_again(many_cells: Path) -> None:
    cells, frames = many_cells, len(MANY_FRAMES)
    held = hold(cells)
    with started(mirror_command(cells, "--processes", "2")) as first:
        helpers = until(lambda: workers_of(psutil.Process(first.pid)), "there are other processes")
        wait_for_parts(cells, first)
    held.unlink()
    until(lambda: not any(map(is_alive, helpers)), "the others have ended")
    done = subprocess.run(
        mirror_command(cells, "--processes", "2", "--json"), capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert (told["state"], told["compared"], told["different"], told["reason"]) == ("complete", frames, 0, "")
    assert told["result"]["stored_chunks"] < sum(
        1 for path in cells.with_name("cells.n5").rglob("[0-9]*") if path.is_file()
    )
    check(cells, MANY_FRAMES)


@pytest.fixture
def many_cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", MANY_FRAMES)
    return tmp_path / "cells"


def wait_for_parts(folder: Path, process: subprocess.Popen[Any]) -> None:
    """Until some parts of a mirror are noted as done, and not all."""
    note = folder.with_name("cells.n5.view") / "view.json"

    def is_begun() -> bool:
        assert process.poll() is None, f"it ended with {process.returncode} before that was seen"
        try:
            content = note.read_bytes()
        except (FileNotFoundError, PermissionError):  # not there yet, or on Windows replaced just now
            return False
        return bool(json.loads(content)["state"].get("parts", {}).get("done"))

    until(is_begun, "some parts are done", 60)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it has ended between the two
        return False


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no interrupt for a group of processes")
def test_an_interrupt_saves_and_ends_all_of_them(many_cells: Path) -> None:
    cells = many_cells  # of few frames, the other processes may have made all parts by then
    held, output = hold(cells), cells.with_name("output.txt")
    command = mirror_command(cells, "--processes", "2")
    with output.open("wb") as out, started(command, start_new_session=True, stdout=out, stderr=out) as first:
        helpers = until(lambda: workers_of(psutil.Process(first.pid)), "there are other processes")
        wait_for_parts(cells, first)
        os.killpg(first.pid, signal.SIGINT)
        held.unlink()
        until(lambda: first.poll() is not None, "the first one has ended")
    assert first.returncode != 0, output.read_text()
    until(lambda: not any(map(is_alive, helpers)), "the others have ended")
    again = subprocess.run(mirror_command(cells), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    check(cells, MANY_FRAMES)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A Dask scheduler of its own."""
    pytest.importorskip("distributed")
    place = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    command += ["--no-dashboard", "--scheduler-file", str(place)]
    with dask_process(command):
        until(lambda: place.exists() and place.read_text().endswith("}"), "the scheduler runs")
        yield str(json.loads(place.read_text())["address"])


class dask_process:  # noqa: N801 - a context
    """A process, ended at the end."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def worker(scheduler: str) -> dask_process:
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--nthreads", "1", "--no-nanny"]
    return dask_process([*command, "--no-dashboard", "--host", "127.0.0.1", "--memory-limit", "0"])


@pytest.mark.deep
def test_a_worker_of_a_dask_cluster_is_killed(many_cells: Path, scheduler: str, tmp_path: Path) -> None:
    cells = many_cells
    with worker(scheduler) as one, worker(scheduler):
        command = mirror_command(cells, "--scheduler", scheduler, "--json")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as first:
            wait_for_parts(cells, first)
            one.kill()
            told = json.loads(first.communicate(timeout=90)[0])
        assert first.returncode == 0
    assert (told["state"], told["compared"], told["different"]) == ("complete", len(MANY_FRAMES), 0)
    check(cells, MANY_FRAMES)


def test_no_scheduler_is_one_line(cells: Path) -> None:
    pytest.importorskip("distributed")
    command = mirror_command(cells, "--scheduler", "tcp://127.0.0.1:9")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in done.stderr
    assert not cells.with_name("cells.n5").exists()
