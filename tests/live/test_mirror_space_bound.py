"""A mirror on a disk that becomes full: it stops before the log, says so, and is made whole later."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.daemon.machine_watch import MIRRORS_KEEP
from tests.host_system import allocated_bytes
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import fill, small_volume
from tests.live.stored import image_of
from tests.waiting import HANG_S, until

SHAPE = (256, 256)
FRAME_BYTES = image_of(0, SHAPE).nbytes
POSITIONS, CHANNELS = 100, 4
MIB = 2**20
RESERVE_MB = 8
NAMES = {"ome-zarr": "ome.zarr", "precomputed": "precomputed"}


def view_of(daemon: DaemonProcess, name: str) -> Any:
    (one,) = fetch_status(daemon.endpoint).acquisitions
    return one.mirrors[name]


def stored_bytes(container: Path) -> int:
    found = 0
    for path in container.rglob("*"):
        with suppress(FileNotFoundError):  # renamed meanwhile
            found += allocated_bytes(path) if path.is_file() else 0
    return found


def settings_of(name: str) -> dict[str, Any]:
    return {"format": name, "levels": 1, **({"compression": "none"} if name == "ome-zarr" else {})}


@contextmanager
def small_daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    options: dict[str, Any] = {"memory_mb": 32, "reserve_mb": RESERVE_MB, "ballast_mb": 1, "low_space_minutes": 0.0}
    with (
        small_volume(tmp_path / "small", 256) as place,
        DaemonProcess(place / "data", home=tmp_path, **options) as daemon,
    ):
        yield daemon


def create(daemon: DaemonProcess, *mirrors: str) -> Run:
    """100 positions in 4 channels: OME-Zarr has 400 sparse shards, of which each gets few frames."""
    axes = [
        {"name": axis, "size": size} for axis, size in {"position": POSITIONS, "channel": CHANNELS, "time": 100}.items()
    ]
    way: dict[str, Any] = {
        "endpoint": daemon.endpoint,
        "buffer_mb": 8,
        "mirrors": [settings_of(one) for one in mirrors],
    }
    return acqstream.create("cells", axes=axes, **way)


def put(run: Run, numbers: Iterable[int]) -> None:
    for number in numbers:
        time, rest = divmod(number, POSITIONS * CHANNELS)
        channel, position = divmod(rest, POSITIONS)
        run.put(image_of(number, SHAPE), position=position, channel=channel, time=time)


@pytest.mark.parametrize("name", NAMES)
def test_the_mirror_stops_first_and_is_made_whole_later(tmp_path: Path, name: str) -> None:
    with small_daemon(tmp_path) as daemon:
        place = daemon.data.parent
        with create(daemon, name) as run:
            put(run, range(100))
            # Taken is not stored: what is stored while the disk is filled would take the space of the log.
            until(
                lambda: stored_bytes(place / "data" / f"cells.{NAMES[name]}") >= 100 * FRAME_BYTES, "all is stored", 60
            )
            filler = fill(daemon.data, MIRRORS_KEEP * RESERVE_MB * MIB - MIB)
            put(run, range(100, 120))  # the log goes on
            until(lambda: run.progress.published == 120, "the log has all", 60)
            until(lambda: "mirror_held" in [one.code for one in run.warnings], "the warning has come", 60)
            (warning,) = (one.text for one in run.warnings if one.code == "mirror_held")
            assert f"cells.{NAMES[name]}" in warning
            assert "MB are free" in warning
            until(lambda: view_of(daemon, name).state == "held", "the status says so", 60)
            assert "MB are left to the log" in view_of(daemon, name).reason
            assert "disk_full" not in [one.code for one in run.warnings]
        assert run.receipt is not None
        assert run.receipt.complete
        assert "nothing more is stored" in str(run.receipt)
        filler.unlink()
        assert all(one.complete for one in run.wait_for_mirrors(HANG_S))
        with acqstream.open(run.path) as log, acqstream.open(place / "data" / f"cells.{NAMES[name]}") as mirror:
            found = {one.tobytes() for one in mirror.levels[0].read().reshape(-1, *SHAPE)}
            assert {image_of(number, SHAPE).tobytes() for number in range(120)} <= found
            assert log.complete
            assert mirror.complete


@pytest.mark.parametrize("name", NAMES)
def test_the_forecast_counts_the_mirror_and_is_kept_until_the_log_is_full(tmp_path: Path, name: str) -> None:
    """The mirror is held meanwhile: `wait` says so, and `acqstream mirror` makes it whole where there is space."""
    with small_daemon(tmp_path) as daemon:
        container = daemon.data / f"cells.{NAMES[name]}"
        run = create(daemon, name)
        put(run, range(40))
        until(lambda: stored_bytes(container) >= 40 * FRAME_BYTES, "all is stored", 60)
        filler = fill(daemon.data, 100 * MIB)
        until(lambda: _forecast(daemon)[0] is not None, "there is a forecast", 60)
        until(partial(_is_measured, daemon), "free space was measured again", 60)
        frames, free = _forecast(daemon)
        assert frames is not None
        assert free is not None
        beside = (free - MIRRORS_KEEP * RESERVE_MB * MIB) / (2 * FRAME_BYTES)
        assert frames == pytest.approx(beside + RESERVE_MB * MIB / FRAME_BYTES, rel=0.03)
        last = _put_until_full(run, daemon, name, 40, 40 + 2 * frames)
        stored = run.progress.published
        assert stored - 40 == pytest.approx(frames, rel=0.12)  # headers, lists and folders take space, too
        assert "mirror_held" in [one.code for one in run.warnings]
        filler.unlink()  # enough for the log, so that the run can end
        until(lambda: run.progress.published == last, "the log has all", 60)
        fill(daemon.data, MIRRORS_KEEP * RESERVE_MB * MIB - MIB)
        receipt = run.close()
        assert receipt.complete
        command = [sys.executable, "-m", "acqstream", "wait", str(run.path), "--timeout", "0.5"]
        waited = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert waited.returncode == 124, waited.stdout
        assert name in waited.stdout
        assert daemon.stop() == 0
        (daemon.data / "filler").unlink()
        command = [sys.executable, "-m", "acqstream", "mirror", str(run.path), "--to", name, "--json"]
        mirrored = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
        told = json.loads(mirrored.stdout)
        assert (told["state"], told["compared"], told["different"]) == ("complete", last, 0)


def test_levels_of_tiles_stop_first_and_are_made_whole_later(tmp_path: Path) -> None:
    with small_daemon(tmp_path) as daemon:
        way: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 8, "tiles": {"overlap": (0, 0)}, "levels": 2}
        with acqstream.create("cells", **way) as run:
            put_tiles(run, range(16))
            until(lambda: run.progress.published == 16, "the log has all", 60)
            filler = fill(daemon.data, MIRRORS_KEEP * RESERVE_MB * MIB - MIB)
            put_tiles(run, range(16, 32))  # the log goes on
            until(lambda: run.progress.published == 32, "the log has all", 60)
            until(lambda: "mirror_held" in [one.code for one in run.warnings], "the warning has come", 60)
            (warning,) = (one.text for one in run.warnings if one.code == "mirror_held")
            assert warning.startswith("levels of cells: nothing more is stored")
            until(lambda: view_of(daemon, "pyramid").state == "held", "the status says so", 60)
            assert "disk_full" not in [one.code for one in run.warnings]
        assert run.receipt is not None
        assert run.receipt.complete
        filler.unlink()
        assert all(one.complete for one in run.wait_for_mirrors(HANG_S))
        with acqstream.open(run.path) as ds:
            assert len(ds.levels) == 3
            corner = image_of(0, SHAPE).astype(np.int64).reshape(SHAPE[0] // 2, 2, SHAPE[1] // 2, 2).sum((1, 3)) // 4
            assert np.array_equal(ds.levels[1].read()[: SHAPE[0] // 2, : SHAPE[1] // 2], corner)


def put_tiles(run: Run, numbers: Iterable[int]) -> None:
    for number in numbers:
        run.put(image_of(number, SHAPE), row=number // 8, column=number % 8)


def _put_until_full(run: Run, daemon: DaemonProcess, name: str, first: int, last: int) -> int:
    """Put frames no faster than the mirror takes them. Returns the number of the next one."""
    for end in range(first + 10, last, 10):
        put(run, range(end - 10, end))
        until(partial(_has_taken, run, daemon, name, end), "published and mirrored or held, or full", 60)
        if _is_paused(daemon):
            return end
    raise AssertionError("the disk did not become full")


def _has_taken(run: Run, daemon: DaemonProcess, name: str, count: int) -> bool:
    if _is_paused(daemon):
        return True
    view = view_of(daemon, name)
    return run.progress.published >= count and (view.state == "held" or (view.behind == 0 and view.waiting == 0))


def _is_paused(daemon: DaemonProcess) -> bool:
    (one,) = fetch_status(daemon.endpoint).acquisitions
    return bool(one.paused)


def _is_measured(daemon: DaemonProcess) -> bool:
    """Whether the daemon knows the free space as it is now, with what the log has reserved for itself.

    While the disk is filled it may measure any space between.
    """
    (stack,) = daemon.data.glob("cells/*.tif")
    reserved = allocated_bytes(stack) - stack.stat().st_size
    return abs((_forecast(daemon)[1] or 0) - reserved - shutil.disk_usage(daemon.data).free) < MIB


def _forecast(daemon: DaemonProcess) -> tuple[int | None, int | None]:
    (one,) = fetch_status(daemon.endpoint).acquisitions
    return one.frames_left, one.free_bytes
