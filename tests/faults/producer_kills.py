"""`producer killed`: SIGKILL of the producer at random moments; another one goes on with resume=True and completes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.comparison import check_end, compare
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess

FAULT = "producer killed"
TRIES = 50
KILLS_A_RUN = 5
LATEST_S = 0.1  # after it began to open its run
GRACES_S = (0.1, 60.0)  # in the first case the dataset is finished before the next producer comes, perhaps


def run(seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS) -> FaultResult:
    """`tries` kills, KILLS_A_RUN of them in each run."""

    def one_run(one: Try, kills: int, place: Path) -> None:
        _one_run(one, kills, place, transports)

    return repeat(FaultResult(FAULT, seed), tries, one_run, folder, faults_a_run=KILLS_A_RUN)


def _one_run(one: Try, kills: int, place: Path, transports: Sequence[str]) -> None:
    chance = random.Random(f"{FAULT} {one.seed}")
    plan = FramePlan(one.seed)
    acknowledged = 0
    with DaemonProcess(place / "data", grace_s=chance.choice(GRACES_S)) as daemon:
        for number in range(kills + 1):
            with ProducerProcess(place, plan, daemon, chance.choice(transports), resume=True) as producer:
                if number == kills:
                    _complete(producer)
                    report = producer.report()
                    one.expect(report.first >= acknowledged, f"asks for frame {report.first} of {acknowledged} again")
                    break
                _kill(producer, chance)
                if producer.board.is_live:
                    one.delivered += 1
                acknowledged = max(acknowledged, producer.board.published)
            when = f"after kill {number + 1}, still open"
            compare(dataset_of(daemon.data), plan, one, acknowledged=acknowledged, when=when)
        one.acknowledged += report.sent
        check_end(dataset_of(daemon.data), plan, one, report)


def _complete(producer: ProducerProcess) -> None:
    """A few frames more, and the end."""
    producer.wait_for(Phase.RUNNING)
    producer.wait_for_published(producer.board.next + 10)
    producer.close()


def _kill(producer: ProducerProcess, chance: random.Random) -> None:
    """SIGKILL while it opens its run, soon after, in mid-stream, or while it closes."""
    producer.wait_for(Phase.OPENING)
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0.0, LATEST_S))
    else:
        producer.wait_for(Phase.RUNNING)
        producer.wait_for_published(producer.board.next + chance.randrange(1, 60))
        time.sleep(chance.uniform(0.0, 0.01))
    producer.kill()
