"""A mirror made in parts equals the one that is made at once: orders, holes, restarts, growth, formats."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError, DiskFull, StorageError
from acqstream.mirrors import mirror_tasks, task_runner
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.folder_tree import OwnNamesDisk
from acqstream.views.view_run import ViewRun, ViewState
from tests import windows_like
from tests.checksum_files import is_list
from tests.log.make_frames import start_log, write_log
from tests.mirrors.mirror_cases import (
    PLAIN,
    check_plain,
    finish,
    frames_at,
    places_of,
    run_of,
    shuffled,
)

SIZES = {"time": 3, "position": 2, "channel": 2, "z": 13}
NAMES = {"channel": ("DAPI", "GFP")}
BLOCKS = {**PLAIN, "blocks": [3, 8, 10], "levels": 3}
HALVED_ALL = ((2, 2, 2), (2, 2, 2))


class Threads:
    """Processes that are threads: quick, and their faults can be scripted."""

    def __init__(self, width: int = 2) -> None:
        self.width = width
        self.executor: Executor = ThreadPoolExecutor(width)

    def close(self) -> None:
        self.executor.shutdown(cancel_futures=True)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRunner]:
    """MirrorTasks as small as can be; nothing is forced."""
    monkeypatch.setattr(mirror_tasks, "MIN_TASK_BYTES", 1)
    for name in ("fdatasync", "sync_directory"):
        monkeypatch.setattr(OwnNamesDisk, name, lambda *_: None)
    with TaskRunner(Threads, 1) as one:
        yield one


@pytest.mark.parametrize("order", ["tpcz", "zctp"])
def test_orders_of_the_axes(tmp_path: Path, runner: TaskRunner, order: str) -> None:
    axes = [{"t": "time", "p": "position", "c": "channel", "z": "z"}[letter] for letter in order]
    frames = frames_at(places_of(axes, SIZES, NAMES))
    write_log(tmp_path / "cells", frames)
    run = finish(run_of(tmp_path / "cells", BLOCKS, runner=runner, memory_mb=0.5))
    assert run.progress().state is ViewState.COMPLETE
    assert run.progress().cursor == run.progress().from_stack == len(frames)
    check_plain(tmp_path / "cells", frames, HALVED_ALL)
    compared = compare(tmp_path / "cells", run.folder, len(frames), runner=runner)
    assert (compared.frames, compared.text) == (len(frames), "all equal")


@pytest.mark.parametrize("seed", range(3))
def test_holes_and_frames_that_come_again(tmp_path: Path, runner: TaskRunner, seed: int) -> None:
    places = shuffled(places_of(("time", "channel", "z"), SIZES, NAMES), seed)
    places = [place for number, place in enumerate(places) if number % 5 != 1] + places[2:9] + places[:1] * 2
    frames = frames_at(places)
    write_log(tmp_path / "cells", frames, replace_duplicates=True)
    finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


@pytest.mark.parametrize("format_name", ["n5", "wkw"])
def test_formats_and_the_comparison(tmp_path: Path, runner: TaskRunner, format_name: str) -> None:
    frames = frames_at(places_of(("time", "channel", "z"), {"time": 3, "channel": 2, "z": 70}), (40, 50))
    write_log(tmp_path / "cells", frames, summary={"PixelSizeUm": 0.5, "z-step_um": 0.5})
    settings: dict[str, dict[str, Any]] = {
        "n5": {"format": "n5", "blocks": [8, 16, 16]},
        "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    }
    run = finish(run_of(tmp_path / "cells", settings[format_name], format_name, runner=runner))
    again = tmp_path / "once"
    at_once = finish(run_of(tmp_path / "cells", settings[format_name], format_name, container=again))
    assert run.view.summary()["levels"] == at_once.view.summary()["levels"]
    assert run.view.summary()["stored_chunks"] == at_once.view.summary()["stored_chunks"]
    assert contents(tmp_path / f"cells.{format_name}") == contents(again)


def contents(container: Path) -> dict[str, bytes]:
    """All files; names of the container itself are left out."""
    return {
        path.relative_to(container).as_posix(): path.read_bytes().replace(container.name.encode(), b"")
        for path in container.rglob("*")
        if path.is_file() and not is_list(path)
    }


def stepped(run: ViewRun, steps: int) -> bool:
    return any(run.step() is None for _ in range(steps))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(1 if windows_like.is_chosen() else 3))  # calls are slow there
def test_killed_at_random_moments_it_ends_the_same(
    tmp_path: Path, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr("acqstream.views.view_run.CHECKPOINT_INTERVAL_S", 0.0)
    monkeypatch.setattr(mirror_tasks, "POLL_S", 0.01)
    frames = frames_at(shuffled(places_of(("time", "position", "z"), SIZES), seed))
    write_log(tmp_path / "cells", frames)
    made = 0
    for kill in range(200):
        run = run_of(tmp_path / "cells", BLOCKS, runner=runner)
        done = stepped(run, chance.randrange(1, 4) + kill)  # at first too few even where each finds all calls done
        made += run.frames_ahead
        run.close()
        runner.close()  # as after SIGKILL: nothing more is saved
        if done:
            break
    assert kill
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def test_what_is_done_is_not_done_again(tmp_path: Path, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 12, "z": 3}))
    write_log(tmp_path / "cells", frames)
    first = run_of(tmp_path / "cells", BLOCKS, runner=runner)
    while first.frames_ahead < 12:
        assert first.step() is not None
    first.save()
    first.close()
    runner.close()
    ordered: list[int] = []
    begin = runner.begin

    def counting(call: Any, arguments: Any) -> None:
        ordered.append(sum(len(one.keys) for one in arguments))
        begin(call, arguments)

    monkeypatch.setattr(runner, "begin", counting)
    finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    assert len(ordered) == 1
    assert 0 < ordered[0] <= 8
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def test_a_mirror_begun_by_one_process_is_caught_up_by_several_and_the_other_way_round(
    tmp_path: Path, runner: TaskRunner
) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 4, "z": 9}))
    with start_log(tmp_path / "cells") as log:
        log.wait_until_open()
        live = run_of(tmp_path / "cells", BLOCKS)
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            while live.progress().cursor <= min(frame.header.number, 13):
                assert live.step() is not None
        live.settle()
        live.close()
    finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)
    some = run_of(tmp_path / "cells", BLOCKS, runner=runner, container=tmp_path / "other.n5")
    stepped(some, 3)
    some.close()
    runner.close()
    finish(run_of(tmp_path / "cells", BLOCKS, container=tmp_path / "other.n5"))
    check_plain(tmp_path / "cells", frames, HALVED_ALL, name="other.n5")


def test_nothing_of_killed_processes_stays(tmp_path: Path, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What such a process has left lies there when the calls begin."""
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": 4}))
    write_log(tmp_path / "cells", frames)
    left = tmp_path / "cells.n5" / "s0" / f"0.12-ab{TEMPORARY_SUFFIX}"
    begin = runner.begin

    def leave_and_begin(call: Callable[[Any], Any], arguments: Sequence[Any]) -> None:
        left.write_bytes(b"torn")
        begin(call, arguments)

    monkeypatch.setattr(runner, "begin", leave_and_begin)
    finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    assert left.parent.exists()
    assert not list(tmp_path.rglob(f"*{TEMPORARY_SUFFIX}"))


def test_a_fault_of_a_part_ends_the_mirror_and_it_can_be_gone_on_with(
    tmp_path: Path, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 4, "z": 4}))
    write_log(tmp_path / "cells", frames)
    wrong = StorageError.wrap(OSError(errno.EIO, "Input/output error"), "a block", "cannot write")
    monkeypatch.setattr(mirror_tasks, "run_task", partial(_raise, wrong))
    with pytest.raises(StorageError, match="Input/output error"):
        finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    monkeypatch.undo()
    runner.close()
    finish(run_of(tmp_path / "cells", BLOCKS, runner=runner))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def _raise(error: Exception, _argument: object) -> None:
    raise error


def test_a_full_disk_is_waited_for(tmp_path: Path, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 4, "z": 4}))
    write_log(tmp_path / "cells", frames)
    full = StorageError.wrap(OSError(errno.ENOSPC, "No space left on device"), "a block", "cannot write")
    assert isinstance(full, DiskFull)
    make, left = mirror_tasks.run_task, [3]

    def make_or_raise(one: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise full
        return make(one)

    monkeypatch.setattr(mirror_tasks, "run_task", make_or_raise)
    monkeypatch.setattr("acqstream.views.view_run.FULL_POLL_S", 0.001)
    run = run_of(tmp_path / "cells", BLOCKS, runner=runner)
    was_held = False
    while run.step() is not None:
        was_held |= run.progress().state is ViewState.HELD
    run.close()
    assert was_held
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


class Fragile(Threads):
    """Breaks with a call, so many times."""

    breaks = 0

    class _Executor(Executor):
        def __init__(self, inner: Executor) -> None:
            self._inner = inner

        def submit(self, call: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
            if Fragile.breaks:
                Fragile.breaks -= 1
                broken: Future[Any] = Future()
                broken.set_exception(BrokenExecutor("killed"))
                return broken
            return self._inner.submit(call, *arguments, **more)

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            self._inner.shutdown(wait, cancel_futures=cancel_futures)

    def __init__(self) -> None:
        super().__init__()
        self.executor = self._Executor(self.executor)


@pytest.mark.parametrize(("breaks", "is_lost"), [(1, False), (task_runner.MAX_BREAKS, False), (1000, True)])
def test_calls_of_lost_processes_are_made_again(breaks: int, is_lost: bool) -> None:
    Fragile.breaks = breaks
    done: list[tuple[int, int]] = []
    with TaskRunner(Fragile, 1) as runner:
        runner.begin(abs, [-1, -2, -3, -4, -5])
        try:
            while not runner.is_done():
                done += runner.poll(0.1)
        except DatasetError as error:
            assert is_lost
            assert "nothing got done: killed" in str(error)  # noqa: PT017
    assert is_lost or sorted(done) == [(n, n + 1) for n in range(5)]


def test_the_array_reads_back(tmp_path: Path, runner: TaskRunner) -> None:
    frames = frames_at(places_of(("channel", "z"), {"channel": 2, "z": 40}), (30, 20))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", {"format": "n5", "blocks": [4, 16, 16]}, runner=runner))
    with acqstream.open(tmp_path / "cells.n5") as mirror:
        assert mirror.complete
        right = np.stack([frame.image for frame in frames]).reshape(2, 40, 30, 20)
        assert np.array_equal(mirror.levels[0].read(), right)
