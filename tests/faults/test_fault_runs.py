"""Short versions of the long fault runs of tools/faults.py; the seed is in each test's name, and in what it says."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults import daemon_kills, full_disks, mirror_kills, power_cuts, producer_kills, recovery_kills, view_kills
from tests.faults.fault_result import FaultResult

SEED = int(os.environ.get("ACQSTREAM_TEST_SEED") or random.randrange(10**6))

pytestmark = [
    pytest.mark.parametrize("seed", [SEED]),
    pytest.mark.timeout_s(120),
    pytest.mark.filterwarnings("ignore:Index appears to not have been"),  # ndstorage, of a dataset that was cut off
]


def check(result: FaultResult, tries: int) -> None:
    if result.skipped:
        pytest.skip(result.why_skipped)
    assert result.all_survived, "\n".join(result.failures)
    assert result.tried >= tries
    assert result.lost == result.wrong == 0


@pytest.mark.promise("daemon-killed")
@pytest.mark.slow
def test_daemon_killed(tmp_path: Path, seed: int) -> None:
    """Five times in each of two runs; tcp, ipc and shared memory take turns with the seed."""
    tries = 2 * daemon_kills.KILLS_A_RUN
    check(daemon_kills.run(seed, tries, tmp_path), tries)


@pytest.mark.promise("producer-restarted")
@pytest.mark.slow
def test_producer_killed(tmp_path: Path, seed: int) -> None:
    check(producer_kills.run(seed, 3, tmp_path), 3)


@pytest.mark.promise("power-cut")
@pytest.mark.slow
@pytest.mark.parametrize("kind", list(power_cuts.FAULTS))
def test_power_cut(tmp_path: Path, seed: int, kind: str) -> None:
    check(power_cuts.run(seed, 2, tmp_path, kind=kind), 2)


@pytest.mark.promise("full-disk")
@pytest.mark.slow
def test_full_disk(tmp_path: Path, seed: int) -> None:
    """One that has space again, and one that stays full."""
    first = seed - seed % 3 + 1
    check(full_disks.run(first, 2, tmp_path), 2)


@pytest.mark.promise("views-apart")
@pytest.mark.slow
def test_view_killed(tmp_path: Path, seed: int) -> None:
    check(view_kills.run(seed, 3, tmp_path), 3)


@pytest.mark.promise("mirrors")
@pytest.mark.slow
@pytest.mark.timeout_s(400)
def test_mirrors_killed(tmp_path: Path, seed: int) -> None:
    """Thirty kills of daemon and views' process, ten in each of three runs with mirrors in all formats."""
    tries = 3 * mirror_kills.KILLS_A_RUN
    check(mirror_kills.run(seed, tries, tmp_path), tries)


@pytest.mark.promise("recovery")
def test_recovery_killed(tmp_path: Path, seed: int) -> None:
    """Before each of its calls, for one small dataset."""
    check(recovery_kills.run(seed, 0, tmp_path, kinds=("mid-batch", "torn journal")), 20)
