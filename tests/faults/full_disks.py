"""`full disk`: the disk fills at a random byte of a run, and later there is space again, or there is not.

With space the run goes on by itself and nothing is lost. Without, the producer is told within its patience, the dataset
is closed whole, and everything that was acknowledged can be read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from acqstream.client.daemon_requests import fetch_status
from acqstream.daemon.config import DaemonConfig
from acqstream.log.state_file import read_receipt
from acqstream.model.state import AcquisitionState
from tests.faults.comparison import check_end, compare
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import FramePlan
from tests.faults.loop_disk import LoopDisk, why_not
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of
from tests.waiting import until

FAULT = "full disk"
TRIES = 50
KINDS = ("ext4", "tmpfs")  # in turn
SIZE_BYTES = 64 * 2**20
RESERVE_MB, BALLAST_MB = 2, 1
ROOM_BYTES = (4 * 2**20, 16 * 2**20)  # for the run, before the disk is full; the reserve is a part of it
MOST_LEFT_BYTES = 100_000  # by somebody else who fills the disk
LONGEST_FULL_S = 1.5
PATIENCE_S = 30.0
SHORT_PATIENCE_S = 2.0  # of a producer whose disk stays full
TOLD_S = 1.0  # more than the patience, for a slow machine


def run(seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS) -> FaultResult:
    """`tries` full disks; a third of them stays full."""
    why = _why_not()
    if why:
        return FaultResult.skip(FAULT, seed, tries, why)

    def one_run(one: Try, faults: int, place: Path) -> None:
        _one_run(one, place, transports)

    return repeat(FaultResult(FAULT, seed), tries, one_run, folder, at_once=2)


def _why_not() -> str:
    if "reserve_mb" not in DaemonConfig.model_fields:
        return "this version does not wait for space"
    return next((why for kind in KINDS if (why := why_not(kind))), "")


def _one_run(one: Try, place: Path, transports: Sequence[str]) -> None:
    chance = random.Random(f"{FAULT} {one.seed}")
    plan = FramePlan(one.seed)
    stays_full = one.seed % 3 == 2
    with LoopDisk(KINDS[one.seed % 2], place / "image", place / "data", SIZE_BYTES) as disk:
        daemon = DaemonProcess(disk.place, home=place, reserve_mb=RESERVE_MB, ballast_mb=BALLAST_MB).start()
        try:
            fillers = [disk.fill(chance.randrange(*ROOM_BYTES))]
            patience_s = SHORT_PATIENCE_S if stays_full else PATIENCE_S
            with ProducerProcess(place, plan, daemon, chance.choice(transports), patience_s=patience_s) as producer:
                producer.wait_for(Phase.RUNNING)
                if chance.random() < 0.5:
                    _let_run(producer, chance.randrange(1, 30))
                    fillers.append(disk.fill(chance.choice([0, chance.randrange(MOST_LEFT_BYTES)]), "other"))
                _wait_until_full(one, producer, daemon)
                if stays_full:
                    _stay_full(one, producer, daemon)
                else:
                    _make_space(one, producer, daemon, fillers, chance)
            one.expect(daemon.stop() == 0, f"the daemon did not end in order: {daemon.output()}")
        finally:
            daemon.kill_if_running()


def _let_run(producer: ProducerProcess, frames: int) -> None:
    """Until so many are published, or the disk is full before that."""
    board = producer.board
    until(lambda: board.published >= frames or board.warned or not board.is_live, "frames are published", PATIENCE_S)


def _wait_until_full(one: Try, producer: ProducerProcess, daemon: DaemonProcess) -> None:
    """The run fills it, or somebody else does so all at once, the reserve included."""
    until(lambda: producer.board.warned or not producer.board.is_live, "the disk is full", PATIENCE_S)
    one.delivered = int(producer.board.warned > 0)
    assert one.delivered, f"the producer was not warned: {producer.report()}"
    states = [running.state for running in fetch_status(daemon.endpoint).acquisitions]
    one.expect(states == [AcquisitionState.PAUSED], f"the disk is full, and the state is {states}")


def _make_space(
    one: Try, producer: ProducerProcess, daemon: DaemonProcess, fillers: list[Path], chance: random.Random
) -> None:
    """After a while there is space again; at times only after the producer has asked for the end."""
    folder = dataset_of(daemon.data)
    time.sleep(chance.uniform(0.0, LONGEST_FULL_S))
    acknowledged = producer.board.published
    compare(folder, producer.plan, one, acknowledged=acknowledged, when="while the disk is full")
    if chance.random() < 0.25:
        producer.close()
        time.sleep(chance.uniform(0.0, 0.5))
    for filler in fillers:
        filler.unlink()
    if not producer.board.stop:
        producer.wait_for_published(producer.board.published + 10)
        producer.close()
    report = producer.report()
    one.acknowledged = report.sent
    check_end(folder, producer.plan, one, report)


def _stay_full(one: Try, producer: ProducerProcess, daemon: DaemonProcess) -> None:
    """`put` raises DiskFull; the dataset is closed whole, and sent = stored + skipped + missing."""
    report = producer.report()
    folder, plan = dataset_of(daemon.data), producer.plan
    one.expect(report.error == "DiskFull", f"the producer got {report.error}: {report.text}")
    one.expect(report.waited_s < SHORT_PATIENCE_S + TOLD_S, f"`put` took {report.waited_s:.1f} s to tell")
    until(lambda: not fetch_status(daemon.endpoint).acquisitions, "the dataset is closed")
    one.acknowledged = producer.board.published
    state = state_of(folder)["state"]
    one.expect(state == AcquisitionState.ERRORED, f"the state in the end is {state}")
    compare(folder, plan, one, acknowledged=one.acknowledged, when="closed on a full disk")
    receipt = read_receipt(str(folder))
    if receipt is None:
        one.expect(False, "closed, but there is no receipt")
        return
    missing = sum(gap.count for gap in receipt.missing)
    one.expect(receipt.status == "error", f"the receipt's status is {receipt.status}")
    one.expect(
        receipt.stored + missing == report.sent, f"{report.sent} sent, {receipt.stored} stored, {missing} missing"
    )
    one.expect(not list(folder.glob("*.part")), "a prepared stack file was left")
