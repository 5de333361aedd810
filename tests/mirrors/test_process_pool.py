"""Processes of a mirror that are killed at a bad moment."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import psutil
import pytest

from acqstream.mirrors.task_runner import ProcessPool, is_stopped
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(120)]
KILLS = 6


def ask_all_the_time(sign: Path) -> None:
    sign.touch()
    while not is_stopped():
        pass


def test_a_process_killed_while_it_asks_holds_up_nobody(tmp_path: Path) -> None:
    for number in range(KILLS):  # only a part of them would hold a lock
        pool, sign = ProcessPool(1), tmp_path / str(number)
        before = {child.pid for child in psutil.Process().children()}
        task = pool.executor.submit(ask_all_the_time, sign)
        until(sign.exists, "it asks")
        workers = [one for one in psutil.Process().children() if one.pid not in before and _is_worker(one)]
        assert len(workers) == 1
        workers[0].kill()
        closing = threading.Thread(target=pool.close, daemon=True)
        closing.start()
        until(partial(_has_ended, closing), f"the pool is closed after kill {number}")
        assert task.exception() is not None


def _has_ended(thread: threading.Thread) -> bool:
    return not thread.is_alive()


def _is_worker(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())
