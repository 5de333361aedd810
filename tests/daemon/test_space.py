"""The space watch: what counts as free, low and full, and the ballast."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acqstream.daemon.acquisition import SpaceReports
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.machine_watch import Demand, DiskSpace, RateWindow
from acqstream.model.status import SpaceLevel
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.free_space import BALLAST_NAME, Ballast
from tests.host_system import allocated_bytes, needs_a_real_disk
from tests.storage.scripted_disk import ScriptedDisk

MIB = 2**20


@dataclass
class FakeDisk(LocalDisk):
    """A disk with as much space as the test says; negative: it is away."""

    free: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def free_bytes(self, path: str) -> int:
        if self.free < 0:
            raise OSError(errno.ESTALE, "stale file handle")
        return self.free


@dataclass
class FakeWriting:
    demand: Demand = field(default_factory=Demand)
    reserved_bytes: int = 0


def space_on(disk: FakeDisk, data: Path, changes: list[SpaceLevel] | None = None, **options) -> DiskSpace:
    config = DaemonConfig(data=data, **{"reserve_mb": 100, "ballast_mb": 0, "low_space_minutes": 1, **options})
    space = DiskSpace(config, disk, lambda: changes.append(space.level) if changes is not None else None)
    return space


def test_levels_follow_the_free_space_with_some_play(tmp_path: Path) -> None:
    disk = FakeDisk(1000 * MIB)
    changes: list[SpaceLevel] = []
    space = space_on(disk, tmp_path, changes)
    for free, level in [
        (1000, SpaceLevel.ENOUGH),
        (199, SpaceLevel.LOW),
        (99, SpaceLevel.FULL),
        (101, SpaceLevel.FULL),  # not for a few bytes more
        (113, SpaceLevel.LOW),
        (300, SpaceLevel.ENOUGH),
        (50, SpaceLevel.FULL),
    ]:
        disk.free = free * MIB
        space.measure()
        assert (space.level, space.free_bytes) == (level, free * MIB), free
    assert changes == [SpaceLevel.LOW, SpaceLevel.FULL, SpaceLevel.LOW, SpaceLevel.ENOUGH, SpaceLevel.FULL]


def test_space_reserved_by_what_runs_counts_as_free(tmp_path: Path) -> None:
    disk = FakeDisk(50 * MIB)
    space = space_on(disk, tmp_path)
    space.running = (FakeWriting(reserved_bytes=100 * MIB), FakeWriting(reserved_bytes=200 * MIB))
    space.measure()
    assert (space.free_bytes, space.level) == (350 * MIB, SpaceLevel.ENOUGH)


def test_the_forecast(tmp_path: Path) -> None:
    disk = FakeDisk(700 * MIB)
    space = space_on(disk, tmp_path)
    assert space.seconds_left(Demand(1.0)) is None  # nothing is known yet
    assert space.frames_left(Demand(1.0), MIB) is None
    space.measure()
    assert space.seconds_left(Demand()) is None
    assert space.seconds_left(Demand(10 * MIB)) == 60.0
    assert space.frames_left(Demand(), 8 * MIB) == 75
    assert space.frames_left(Demand(), 0) is None
    # At 11 MiB/s less than a minute is left; at 9.5 hardly more; at 5 there is enough again.
    for rate, level in [(1, SpaceLevel.ENOUGH), (11, SpaceLevel.LOW), (9.5, SpaceLevel.LOW), (5, SpaceLevel.ENOUGH)]:
        space.running = (FakeWriting(Demand(rate * MIB)),)
        space.measure()
        assert space.level is level, rate


@pytest.mark.parametrize(
    ("free", "demand", "seconds"),
    [
        (700, Demand(10 * MIB, 1.0), 25 + 10),  # 250 MiB beside mirrors as large, then 100 without them
        (700, Demand(10 * MIB, 0.25, 250 * MIB), 20 + 10),  # frames that are not mirrored yet take their space, too
        (700, Demand(10 * MIB, 1.0, 9000 * MIB), 10),
        (200, Demand(10 * MIB, 1.0), 10),  # they have stopped
        (150, Demand(10 * MIB, 1.0), 5),
        (100, Demand(10 * MIB, 1.0), 0),
        (30, Demand(10 * MIB, 1.0), 0),
    ],
)
def test_the_forecast_counts_mirrors_until_they_stop(tmp_path: Path, free: int, demand: Demand, seconds: float) -> None:
    space = space_on(FakeDisk(free * MIB), tmp_path)
    space.measure()
    assert space.seconds_left(demand) == pytest.approx(seconds)
    assert space.frames_left(demand, MIB) == seconds * 10


@pytest.mark.parametrize(
    ("rate", "lasts"),
    [
        (2.0, "it lasts for 45 s"),
        (1.5, "it lasts for 1 min 0 s"),
        (0.025, "it lasts for 1 h 0 min"),
        (0.0, ""),
    ],
)
def test_the_warning_tells_how_long_the_space_lasts(tmp_path: Path, rate: float, lasts: str) -> None:
    texts: list[str] = []
    log = SimpleNamespace(
        notes=SimpleNamespace(warn=lambda _, text: texts.append(text)),
        counts=SimpleNamespace(payload_bytes=0, skipped=0, stored=0),
        cursors=lambda: SimpleNamespace(published=0),
        hold=lambda _: None,
        paused_why="",
        spec=SimpleNamespace(expect=None),
    )
    views = SimpleNamespace(disk_need=lambda _: (0.0, 0.0))
    reports = SpaceReports(cast("Any", log), cast("Any", views), bytes_per_s=rate * MIB)
    space = space_on(FakeDisk(190 * MIB), tmp_path)  # 90 above the reserve
    space.measure()
    for _ in range(2):  # once for each shortage
        reports.note(space)
    (text,) = texts
    assert text == space.text() + (f"; {lasts} at the present rate" if lasts else "")


def test_a_plan_that_fits_is_no_shortage(tmp_path: Path) -> None:
    """A run of 3 GB on a disk of 42 GB ends before the disk does, however fast it is."""
    space = space_on(FakeDisk(42_000 * MIB), tmp_path)
    fast = Demand(2000 * MIB)  # 21 s
    for demand, level in [
        (fast, SpaceLevel.LOW),
        (replace(fast, planned_bytes=3000.0 * MIB), SpaceLevel.ENOUGH),
        (replace(fast, planned_bytes=41_901.0 * MIB), SpaceLevel.LOW),
        (replace(fast, planned_bytes=22_000.0 * MIB, mirror_share=1.0), SpaceLevel.LOW),  # their mirrors do not
        (replace(fast, planned_bytes=0.0), SpaceLevel.ENOUGH),
    ]:
        space.running = (FakeWriting(demand),)
        space.measure()
        assert space.level is level, demand
    space.running = (FakeWriting(replace(fast, planned_bytes=3000.0 * MIB)), FakeWriting(fast))
    space.measure()
    assert space.level is SpaceLevel.LOW, "the other one has no plan"


def test_the_rate_is_that_of_a_minute_or_of_ten_frames() -> None:
    window = RateWindow()
    assert window.rate(0.0, 0, 0) == 0
    for second in range(1, 200):  # 5 frames a second of 1 MiB
        found = window.rate(float(second), 5 * second, 5 * second * MIB)
        assert found == pytest.approx(5 * MIB)
    for second in range(200, 260):  # then twice as many
        found = window.rate(float(second), 995 + 10 * (second - 199), (995 + 10 * (second - 199)) * MIB)
    assert found == pytest.approx(10 * MIB)
    lapse = RateWindow()
    for second in range(1000):  # a frame every 30 s
        found = lapse.rate(float(second), second // 30, second // 30 * MIB)
        assert len(lapse._samples) < 15
        if second > 300:
            assert found == pytest.approx(MIB / 30, rel=0.1)


def test_a_resumed_run_begins_with_no_rate() -> None:
    window = RateWindow()
    found = [window.rate(float(second), 1000 + second, 10**12 + second * MIB) for second in range(5)]
    assert found == pytest.approx([0, *[MIB] * 4])


def test_a_silence_before_a_burst_does_not_count_for_longer_than_a_minute() -> None:
    window = RateWindow()
    for second in range(600):
        assert window.rate(float(second), 0, 0) == 0
    for second in range(1, 61):
        found = window.rate(600.0 + second, 100 * second, second * 2000 * MIB)
        assert found == pytest.approx(2000 * MIB * second / 60, rel=0.05)
    assert window.rate(661.0, 6100, 61 * 2000 * MIB) == pytest.approx(2000 * MIB, rel=0.05)


@pytest.mark.parametrize(("stored", "known"), [(0, None), (5, 5.0), (10, 0.0), (11, None)])
def test_a_plan_that_says_nothing(stored: int, known: float | None) -> None:
    """Before the first frame nobody knows its size, and a producer may send more than it has planned."""
    log = SimpleNamespace(
        spec=SimpleNamespace(expect=10), counts=SimpleNamespace(payload_bytes=stored, skipped=0, stored=stored)
    )
    views = SimpleNamespace(disk_need=lambda _: (0.0, 0.0))
    assert SpaceReports(cast("Any", log), cast("Any", views)).demand.planned_bytes == known


def test_what_several_take_is_added(tmp_path: Path) -> None:
    both = [FakeWriting(Demand(30 * MIB, 1.0, 5.0)), FakeWriting(Demand(10 * MIB, 0.0, 2.0)), FakeWriting()]
    assert Demand.of_all(both) == Demand(40 * MIB, 0.75, 7.0)
    assert Demand.of_all([]) == Demand()
    space = space_on(FakeDisk(2500 * MIB), tmp_path)
    space.running = (FakeWriting(Demand(30 * MIB)),)
    space.measure()
    before = space.level  # 80 s
    space.running = (FakeWriting(Demand(30 * MIB, 1.0)),)
    space.measure()
    assert (before, space.level) == (SpaceLevel.ENOUGH, SpaceLevel.LOW)  # 42 s: the mirror takes as much


@pytest.mark.parametrize(
    ("others", "short"),
    [
        ([], 0),
        ([Demand(planned_bytes=300.0 * MIB)], 0),  # 600 MiB for 500
        ([Demand(planned_bytes=500.0 * MIB)], 100),
        ([Demand(30 * MIB, planned_bytes=500.0 * MIB), Demand(10 * MIB, planned_bytes=0.0)], 100),
        ([Demand(10 * MIB)], 0),  # without a plan: as fast, it takes as much as this run meanwhile
        ([Demand(30 * MIB)], 200),
        ([Demand()], 0),
    ],
)
def test_a_plan_fits_beside_all_other_runs(tmp_path: Path, others: list[Demand], short: int) -> None:
    own = Demand(10 * MIB, planned_bytes=200.0 * MIB)
    space = space_on(FakeDisk(700 * MIB), tmp_path)
    assert space.short_bytes(own) is None
    space.running = tuple(map(FakeWriting, (own, *others)))
    space.measure()
    assert space.short_bytes(own) == pytest.approx(short * MIB)
    assert space.short_bytes(Demand(10 * MIB)) is None, "it has no plan"


def test_a_plan_of_unknown_pace_beside_a_run_without_one(tmp_path: Path) -> None:
    own = Demand(0.0, planned_bytes=200.0 * MIB)
    space = space_on(FakeDisk(700 * MIB), tmp_path)
    space.running = (FakeWriting(own), FakeWriting(Demand(10 * MIB)))
    space.measure()
    assert space.short_bytes(own) is None


def test_what_a_plan_lacks_is_with_its_mirrors(tmp_path: Path) -> None:
    own = Demand(10 * MIB, 1.0, planned_bytes=400.0 * MIB)
    space = space_on(FakeDisk(700 * MIB), tmp_path)
    space.running = (FakeWriting(own),)
    space.measure()
    assert space.short_bytes(own) == pytest.approx(2 * (400 - 350) * MIB)  # 250 beside its mirror, 100 without


def test_a_disk_that_is_away_is_no_full_disk(tmp_path: Path) -> None:
    disk = FakeDisk(1000 * MIB)
    space = space_on(disk, tmp_path)
    space.measure()
    disk.free = -1
    space.measure()
    assert (space.free_bytes, space.level) == (None, SpaceLevel.ENOUGH)
    assert "unknown" in space.text()


@needs_a_real_disk
def test_the_ballast_is_taken_where_there_is_space_and_given_up_at_the_end(tmp_path: Path) -> None:
    disk = FakeDisk(150 * MIB)
    space = space_on(disk, tmp_path, reserve_mb=100, ballast_mb=1)
    path = tmp_path / BALLAST_NAME
    space.measure()
    assert not path.exists()  # what little there is, is for frames
    disk.free = 300 * MIB
    space.measure()
    assert allocated_bytes(path) >= MIB
    space.ballast.release()
    assert not path.exists()
    space.measure()
    assert path.exists()
    space.start()
    space.close(is_disk_well=True)
    assert not path.exists()


@needs_a_real_disk
def test_a_ballast_of_an_earlier_daemon_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / BALLAST_NAME).write_bytes(b"old")
    ballast = Ballast(LocalDisk(), str(tmp_path), MIB)
    assert ballast.take()
    assert ballast.take()
    assert allocated_bytes(tmp_path / BALLAST_NAME) >= MIB
    ballast.release()


@needs_a_real_disk
def test_the_ballast_stays_open_while_it_keeps_space(tmp_path: Path) -> None:
    """Windows frees space beyond the end of a file when it is closed, and removes no open file."""
    disk = ScriptedDisk()
    ballast = Ballast(disk, str(tmp_path), MIB)
    assert ballast.take()
    assert [call.kind for call in disk.calls][-2:] == ["create", "reserve"]
    ballast.release()
    assert [call.kind for call in disk.calls][-2:] == ["close", "unlink"]


@needs_a_real_disk
@pytest.mark.parametrize("kind", ["create", "reserve", "unlink"])
def test_without_a_ballast_the_daemon_works_too(tmp_path: Path, kind: str) -> None:
    disk = ScriptedDisk()
    disk.fail(kind, code=errno.ENOSPC, part=BALLAST_NAME)
    ballast = Ballast(disk, str(tmp_path), MIB)
    assert not ballast.take()
    assert not (tmp_path / BALLAST_NAME).exists()
    assert ballast.take()  # there is space again


def test_where_space_cannot_be_reserved_there_is_none(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    disk.can_reserve = False
    ballast = Ballast(disk, str(tmp_path), MIB)
    assert not ballast.take()
    assert not (tmp_path / BALLAST_NAME).exists()
    assert not disk._names
