"""`view killed`: SIGKILL of the process that makes the views; the log must not notice, and the view catches up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from acqstream.views.checkpoint import Checkpoint, read_checkpoint, view_folder
from tests.faults.comparison import check_end
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of
from tests.faults.progress_board import Phase
from tests.faults.view_killer import ViewKiller
from tests.live.daemon_process import DaemonProcess
from tests.views.view_sums import sums_of
from tests.waiting import until

FAULT = "view killed"
TRIES = 50
KILLS_A_RUN = 5
RUNS_AT_ONCE = 2


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
            ViewKiller(daemon, producer, chance).kill_all_along(one, kills)
            report = producer.report()
        one.acknowledged += report.sent
        check_end(dataset_of(daemon.data), plan, one, report)
        saved = _complete(daemon)
        expected = plan.stored_below(report.sent)
        one.lose("in the view", expected[saved.cursor :])
        sums = sums_of(plan.image(number) for number in expected)
        one.expect(saved.state == sums, f"the view says {saved.state}, the frames sent give {sums}")


def _complete(daemon: DaemonProcess) -> Checkpoint:
    """The view's state once it is complete."""

    def look() -> Checkpoint | None:
        saved = read_checkpoint(view_folder(dataset_of(daemon.data), "null"))
        return saved if saved is not None and saved.is_complete else None

    found: Checkpoint = until(look, "the view is complete")
    return found
