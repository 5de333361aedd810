"""`daemon killed`: SIGKILL of the daemon at random moments of one producer's run, which goes on and completes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from acqstream.formats.ndtiff.index_entries import INDEX_NAME, NUMBERS_BYTES
from acqstream.log.journal import JOURNAL_NAME
from tests.faults.comparison import check_end, compare
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of, wait_for_commit
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess

FAULT = "daemon killed"
TRIES = 300
KILLS_A_RUN = 5
RUNS_AT_ONCE = 2  # most of the time they wait for each other's ends to come back
LATEST_S = 0.3  # after the daemon answers
LATEST_AFTER_COMMIT_S = 0.002
LATEST_AT_START_S = 0.5  # after its process was started


def run(seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS) -> FaultResult:
    """`tries` kills, KILLS_A_RUN of them in each run; transports take turns."""

    def one_run(one: Try, kills: int, place: Path) -> None:
        _one_run(one, kills, place, transports[one.seed % len(transports)])

    result = FaultResult(FAULT, seed)
    return repeat(result, tries, one_run, folder, faults_a_run=KILLS_A_RUN, at_once=RUNS_AT_ONCE)


def _one_run(one: Try, kills: int, place: Path, transport: str) -> None:
    chance = random.Random(f"{FAULT} {one.seed}")
    plan = FramePlan(one.seed)
    daemon = DaemonProcess(place / "data").start()
    try:
        with ProducerProcess(place, plan, daemon, transport, resume=chance.random() < 0.5) as producer:
            producer.wait_for(Phase.RUNNING)
            for number in range(kills):
                is_last = number == kills - 1
                _kill(daemon, producer, chance, while_closing=is_last and chance.random() < 0.5)
                acknowledged = producer.board.published
                if producer.board.is_live:  # else it had its receipt before the kill, and all was forced
                    one.delivered += 1
                    _spoil(dataset_of(daemon.data), chance)
                compare(dataset_of(daemon.data), plan, one, acknowledged=acknowledged, when=f"after kill {number + 1}")
                daemon.start()
            producer.close()
            report = producer.report()
        one.acknowledged += report.sent
        one.expect(daemon.stop() == 0, f"the daemon did not end in order: {daemon.output()}")
        check_end(dataset_of(daemon.data), plan, one, report)
    finally:
        daemon.kill_if_running()


def _spoil(folder: Path, chance: random.Random) -> None:
    """Junk after the ends of index and journal, as a power cut or a careless copy leaves it; half of the time."""
    index, journal = folder / INDEX_NAME, folder / JOURNAL_NAME
    if chance.random() < 0.5 or not index.exists():
        return
    entries = index.read_bytes()
    axes_bytes = int.from_bytes(entries[:4], "little")
    name_bytes = int.from_bytes(entries[4 + axes_bytes : 8 + axes_bytes], "little")
    first_entry = entries[: 8 + axes_bytes + name_bytes + NUMBERS_BYTES]
    tails = [chance.randbytes(chance.randrange(1, 200)), bytes(chance.randrange(1, 5000)), first_entry]
    with index.open("ab") as file:
        file.write(chance.choice(tails))
    if chance.random() < 0.5:
        with journal.open("ab") as file:
            file.write(chance.randbytes(chance.randrange(1, 200)))


def _kill(daemon: DaemonProcess, producer: ProducerProcess, chance: random.Random, *, while_closing: bool) -> None:
    """SIGKILL at a random moment: while it starts, soon after, during a commit, as it tells of it, or at the close."""
    if while_closing:
        producer.wait_for_published(producer.board.published + 1)
        producer.close()
        producer.wait_for(Phase.CLOSING)
        time.sleep(chance.uniform(0.0, 0.02))
        daemon.kill()
        return
    kind = chance.random()
    if kind < 0.1:
        daemon.kill()
        daemon.launch()
        time.sleep(chance.uniform(0.0, LATEST_AT_START_S))
    elif kind < 0.3:
        wait_for_commit(daemon.data, LATEST_AFTER_COMMIT_S, chance)
    elif kind < 0.5:
        producer.wait_for_word("published")
    elif kind < 0.6:
        time.sleep(chance.uniform(0.0, LATEST_S))
    else:
        producer.wait_for_published(producer.board.published + chance.randrange(1, 60))
        time.sleep(chance.uniform(0.0, 0.01))
    daemon.kill()
