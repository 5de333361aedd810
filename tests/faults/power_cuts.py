"""`power cut`: the file system of the data directory is shut down without a flush while a run goes on, and recovered.

The producer dies with the power, as on a real machine. What it was told is durable must be there afterwards; of the
other published frames those that the index shows must be whole.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from acqstream.log.state_file import STATE_NAME
from acqstream.model.state import AcquisitionState
from tests.faults.comparison import check_complete, check_end, compare
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.loop_disk import LoopDisk, why_not
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of, wait_for_commit
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of
from tests.waiting import until

FAULTS = {"ext4": "power cut, ext4", "xfs": "power cut, xfs"}
TRIES = 50
SIZE_BYTES = 2**31  # sparse; more than the daemon keeps free
RUNS_AT_ONCE = 2
LATEST_S = 0.6
LATEST_AFTER_COMMIT_S = 0.006
BUFFERED = """
from acqstream.storage.platform import linux_files, posix_files
linux_files.LinuxFiles._direct_flag = posix_files.PosixFiles._direct_flag
"""
"""With it the daemon's writes go through the page cache, and are lost in a cut unless they were forced."""


def run(
    seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS, *, kind: str = "ext4"
) -> FaultResult:
    """`tries` cuts, each of a run on a new file system of this kind; half of them with buffered writes."""
    why = why_not(kind)
    if why:
        return FaultResult.skip(FAULTS[kind], seed, tries, why)

    def one_cut(one: Try, faults: int, place: Path) -> None:
        _one_cut(one, place, kind, transports)

    return repeat(FaultResult(FAULTS[kind], seed), tries, one_cut, folder, at_once=RUNS_AT_ONCE)


def _one_cut(one: Try, place: Path, kind: str, transports: Sequence[str]) -> None:
    chance = random.Random(f"{FAULTS[kind]} {one.seed}")
    plan = FramePlan(one.seed)
    transport = chance.choice(transports)
    with LoopDisk(kind, place / "image", place / "data", SIZE_BYTES) as disk:
        daemon = DaemonProcess(disk.place, home=place, prelude=BUFFERED if one.seed % 2 else "")
        try:
            daemon.start()
            with ProducerProcess(place, plan, daemon, transport) as producer:
                durable = _run_until_cut(one, producer, disk, chance)
            daemon.kill()
            disk.unmount()
            disk.mount()
            folder = dataset_of(disk.place)
            compare(folder, plan, one, acknowledged=durable, when="before recovery", may_refuse=True)
            daemon.start()
            compare(folder, plan, one, acknowledged=durable, when="after recovery")
            if (folder / STATE_NAME).exists() and state_of(folder)["state"] == AcquisitionState.COMPLETE:
                check_complete(folder, plan, one)  # cut after the close
            else:
                with ProducerProcess(place, plan, daemon, transport, resume=True) as producer:
                    _go_on(one, producer, daemon, durable)
            one.expect(daemon.stop() == 0, f"the daemon did not end in order: {daemon.output()}")
        finally:
            daemon.kill_if_running()


def _run_until_cut(one: Try, producer: ProducerProcess, disk: LoopDisk, chance: random.Random) -> int:
    """How many frames the daemon had told the producer to be durable."""
    producer.wait_for(Phase.OPENING)
    if chance.random() < 0.9:
        producer.wait_for_published(chance.randrange(1, 60))
    if producer.plan.durability != "close" and chance.random() < 0.7:
        until(lambda: producer.board.durable > 0, "something is durable")
    kind = chance.random()
    if kind < 0.3:
        wait_for_commit(disk.place, LATEST_AFTER_COMMIT_S, chance)
    elif kind < 0.6:
        producer.wait_for_word(chance.choice(["published", "durable"]))
    else:
        time.sleep(chance.uniform(0.0, LATEST_S))
    if chance.random() < 0.2:
        producer.close()
        time.sleep(chance.uniform(0.0, 0.05))
    was_closed = producer.board.phase is Phase.CLOSED  # then all of it is durable, whatever the mode
    disk.cut()
    one.delivered = 1
    time.sleep(0.02)  # for words that were on their way
    one.acknowledged = producer.board.next if was_closed else producer.board.durable
    return one.acknowledged


def _go_on(one: Try, producer: ProducerProcess, daemon: DaemonProcess, durable: int) -> None:
    """Another producer takes the run up and completes it."""
    producer.wait_for(Phase.RUNNING)
    producer.wait_for_published(producer.board.next + 5)
    producer.close()
    report = producer.report()
    one.expect(report.first >= durable, f"frame {report.first} is asked for, {durable} were durable")
    check_end(dataset_of(daemon.data), producer.plan, one, report)
