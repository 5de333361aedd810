"""`view killed`: SIGKILL of the process that makes the views; the log must not notice, and the view catches up."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.client.status import fetch_status
from acqstream.pipeline.views.checkpoint import Checkpoint, read_checkpoint, view_folder
from tests.faults.comparison import check_end
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import until
from tests.pipeline.views.view_sums import sums_of

FAULT = "view killed"
TRIES = 50
KILLS_A_RUN = 5
RUNS_AT_ONCE = 2
LATEST_S = 0.5  # after the process was started
MOST_EARLY = 2  # kills in a row that may come before the view got on: after a few more it is given up


def run(seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS) -> FaultResult:
    """`tries` kills, KILLS_A_RUN of them in each run."""

    def one_run(one: Try, kills: int, place: Path) -> None:
        _one_run(one, kills, place, transports)

    result = FaultResult(FAULT, seed)
    return repeat(result, tries, one_run, folder, faults_a_run=KILLS_A_RUN, at_once=RUNS_AT_ONCE)


def _one_run(one: Try, kills: int, place: Path, transports: Sequence[str]) -> None:
    chance = random.Random(f"{FAULT} {one.seed}")
    plan = FramePlan(one.seed)
    with DaemonProcess(place / "data") as daemon:
        with ProducerProcess(place, plan, daemon, chance.choice(transports), mirrors=["null"]) as producer:
            producer.wait_for(Phase.RUNNING)
            killer = _Killer(daemon, chance)
            for number in range(kills):
                if number == kills - 1 and chance.random() < 0.5:
                    producer.close()  # the last kill comes while the run is closed, or while the view catches up
                one.delivered += killer.kill()
            producer.close()
            report = producer.report()
        one.acknowledged += report.sent
        check_end(dataset_of(daemon.data), plan, one, report)
        saved = _complete(daemon)
        expected = plan.stored_below(report.sent)
        one.lose("in the view", expected[saved.cursor :])
        sums = sums_of(plan.image(number) for number in expected)
        one.expect(saved.state == sums, f"the view says {saved.state}, the frames sent give {sums}")


class _Killer:
    """Kills the process that makes the views, and waits until there is another one."""

    def __init__(self, daemon: DaemonProcess, chance: random.Random) -> None:
        self._daemon = daemon
        self._chance = chance
        self._early = 0
        self._best = 0

    def kill(self) -> bool:
        """SIGKILL soon after its start, or when it has got on; False if it had nothing left to do."""
        pid = until(self._pid_or_end, "the views' process runs")
        if pid is True:
            return False
        if self._early < MOST_EARLY and self._chance.random() < 0.5:
            self._early += 1
            time.sleep(self._chance.uniform(0.0, LATEST_S))
        else:
            self._early = 0
            until(self._has_got_on, "the view gets on")
            time.sleep(self._chance.uniform(0.0, 0.02))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until(lambda: self._views()["pid"] != pid, "the death was noticed")
        self._has_got_on()  # what it told after the last look is no progress of the next process
        return True

    def _views(self) -> Mapping[str, Any]:
        return fetch_status(self._daemon.endpoint).views

    def _pid_or_end(self) -> Any:
        return True if _saved(self._daemon) is not None else self._views()["pid"]

    def _has_got_on(self) -> bool:
        mirrors = self._views()["mirrors"]
        cursor = mirrors[0]["cursor"] if mirrors else self._best + 1  # it is complete
        if cursor <= self._best:
            return False
        self._best = cursor
        return True


def _saved(daemon: DaemonProcess) -> Checkpoint | None:
    """The view's state once it is complete."""
    saved = read_checkpoint(view_folder(dataset_of(daemon.data), "null"))
    return saved if saved is not None and saved.is_complete else None


def _complete(daemon: DaemonProcess) -> Checkpoint:
    found: Checkpoint = until(lambda: _saved(daemon), "the view is complete")
    return found
