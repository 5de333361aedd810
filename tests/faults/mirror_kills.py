"""`mirrors killed`: SIGKILL of the views' process, or of the daemon, while mirrors are made in all four formats.

The log must not notice, and all mirrors end as those of a run that nothing was done to.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import acqstream
from acqstream.mirrors.run_end import mirror_results
from acqstream.mirrors.view_worker import view_maker
from acqstream.model.view_spec import ViewSpec
from acqstream.views.checkpoint import view_folder
from acqstream.views.view_run import ViewRun
from tests.faults.comparison import check_end
from tests.faults.fault_result import FaultResult, Try, repeat
from tests.faults.frame_plan import StackPlan
from tests.faults.producer_process import TRANSPORTS, ProducerProcess, dataset_of
from tests.faults.progress_board import Phase
from tests.faults.view_killer import END_S, ViewKiller
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

FAULT = "mirrors killed"
TRIES = 100
KILLS_A_RUN = 10
RUNS_AT_ONCE = 2
MIRRORS: Mapping[str, Mapping[str, Any]] = {  # by the end of the folder's name
    "n5": {"format": "n5", "blocks": [8, 64, 40], "levels": 3, "compression": "zstd"},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome.zarr": {"format": "ome-zarr", "chunks": [1, 64, 40], "levels": 2},
    "raw.ome.zarr": {"format": "ome-zarr", "name": "raw", "chunks": [2, 64, 40], "levels": 2, "compression": "none"},
    "reference.hsds": {"format": "hsds", "name": "reference", "pixels": "reference"},
    "hsds": {"format": "hsds", "pixels": "copy", "chunks": [1, 64, 40], "levels": 2},
    "precomputed": {"format": "precomputed", "levels": 2},
    "shards.precomputed": {
        "format": "precomputed",
        "name": "shards",
        "chunks": [1, 64, 40],
        "levels": 2,
        "shards": True,
    },
}


def run(seed: int, tries: int, folder: Path, transports: Sequence[str] = TRANSPORTS) -> FaultResult:
    """`tries` kills, KILLS_A_RUN of them in each run."""

    def one_run(one: Try, kills: int, place: Path) -> None:
        _one_run(one, kills, place, transports)

    result = FaultResult(FAULT, seed)
    return repeat(result, tries, one_run, folder, faults_a_run=KILLS_A_RUN, at_once=RUNS_AT_ONCE)


def _one_run(one: Try, kills: int, place: Path, transports: Sequence[str]) -> None:
    chance = random.Random(f"{FAULT} {one.seed}")
    plan = StackPlan(one.seed)
    axes = plan.declaration() if chance.random() < 0.5 else None
    daemon = DaemonProcess(place / "data").start()
    try:
        create = {"axes": axes, "mirrors": list(MIRRORS.values())}
        with ProducerProcess(place, plan, daemon, chance.choice(transports), **create) as producer:
            producer.wait_for(Phase.RUNNING)
            ViewKiller(daemon, producer, chance, daemon_share=0.3).kill_all_along(one, kills)
            report = producer.report()
        one.acknowledged += report.sent
        until(lambda: _ended(daemon), "the mirrors are complete", END_S)
        failed = [one for one in mirror_results(dataset_of(daemon.data)) if not one.complete]
        one.expect(not failed, f"mirrors have failed: {failed}")
        one.expect(daemon.stop() == 0, f"the daemon did not end in order: {daemon.output()}")
        check_end(dataset_of(daemon.data), plan, one, report)
        for name in MIRRORS:
            _compare(one, plan, dataset_of(daemon.data), name, report.sent)
    finally:
        daemon.kill_if_running()


def _ended(daemon: DaemonProcess) -> bool:
    """By what lies on the disk: a daemon that has just started is still looking for what is to be made."""
    return all(one.ended for one in mirror_results(dataset_of(daemon.data)))


def _compare(one: Try, plan: StackPlan, dataset: Path, name: str, sent: int) -> None:
    """With what was sent, and in all levels with a mirror of the same frames that was never killed."""
    undisturbed = dataset.with_name(f"undisturbed.{name}")
    make = view_maker(ViewSpec(MIRRORS[name]["format"], MIRRORS[name]), container=undisturbed)
    view = ViewRun(dataset, name, make, folder=view_folder(undisturbed, "view"))
    try:
        until(lambda: view.step() is None, "it is made", END_S, every_s=0.0)
    finally:
        view.close()
    right = plan.array(sent)
    with acqstream.open(dataset.with_name(f"{dataset.name}.{name}")) as found, acqstream.open(undisturbed) as other:
        one.expect(found.complete, f"{name} says that more is to come")
        full = np.zeros_like(right)  # an array that nobody declared is as large as what came
        full[tuple(map(slice, found.levels[0].shape))] = found.levels[0].read()
        places = {number: tuple(plan.axes(number).values()) for number in range(sent)}
        one.mistake(f"in {name}", [number for number, at in places.items() if (full[at] != right[at]).any()])
        expected_levels = MIRRORS[name].get("levels", 1)  # one by reference
        one.expect(len(found.levels) == len(other.levels) == expected_levels, f"{name} has {len(found.levels)} levels")
        for number, (level, expected) in enumerate(zip(found.levels, other.levels, strict=True)):
            is_equal = level.shape == expected.shape and np.array_equal(level.read(), expected.read())
            one.expect(is_equal, f"level {number} of {name} is not that of an undisturbed run")
