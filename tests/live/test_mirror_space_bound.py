"""A mirror on a disk that becomes full: it stops before the log, says so, and is made whole later."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.status import fetch_status
from acqstream.daemon.space import MIRRORS_KEEP
from tests.host_system import allocated_bytes
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import fill, small_volume
from tests.live.stored import image_of
from tests.waiting import until

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


@pytest.mark.parametrize("name", NAMES)
def test_the_mirror_stops_first_and_is_made_whole_later(tmp_path: Path, name: str) -> None:
    """100 positions in 4 channels: OME-Zarr has 400 sparse shards, of which each gets one frame."""
    options: dict[str, Any] = {"memory_mb": 32, "reserve_mb": RESERVE_MB, "ballast_mb": 1, "low_space_minutes": 0.0}
    settings = {"format": name, "levels": 1, **({"compression": "none"} if name == "ome-zarr" else {})}
    with (
        small_volume(tmp_path / "small", 256) as place,
        DaemonProcess(place / "data", home=tmp_path, **options) as daemon,
    ):
        sizes = {"position": POSITIONS, "channel": CHANNELS, "time": 100}
        axes = [{"name": axis, "size": size} for axis, size in sizes.items()]
        way: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 8, "mirrors": [settings]}
        with acqstream.create("cells", axes=axes, **way) as run:
            for number in range(100):
                run.put(image_of(number, SHAPE), position=number % POSITIONS, channel=0, time=0)
            # Taken is not stored: what is stored while the disk is filled would take the space of the log.
            until(
                lambda: stored_bytes(place / "data" / f"cells.{NAMES[name]}") >= 100 * FRAME_BYTES, "all is stored", 60
            )
            filler = fill(daemon.data, MIRRORS_KEEP * RESERVE_MB * MIB - MIB)
            for number in range(100, 120):  # the log goes on
                run.put(image_of(number, SHAPE), position=number % POSITIONS, channel=1, time=0)
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
        assert "stores nothing more" in str(run.receipt)
        filler.unlink()
        assert all(one.complete for one in run.wait_for_mirrors(100))
        with acqstream.open(run.path) as log, acqstream.open(place / "data" / f"cells.{NAMES[name]}") as mirror:
            found = {one.tobytes() for one in mirror.levels[0].read().reshape(-1, *SHAPE)}
            assert {image_of(number, SHAPE).tobytes() for number in range(120)} <= found
            assert log.complete
            assert mirror.complete
