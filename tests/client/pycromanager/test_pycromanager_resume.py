"""A program that was killed in mid acquisition and is run again, by either way into the daemon."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from tests.client.pycromanager import microscope
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout_s(600),
    pytest.mark.skipif(
        not (importlib.util.find_spec("pycromanager") and importlib.util.find_spec("mm_test_adapters")),
        reason="needs pycromanager and mm-test-adapters",
    ),
]
PLANES = {f"planes of {kind}": 18 for kind in ("one", "all", "generator")}
TOTAL = {"burst": 40, "slow": 4, **PLANES}

PROGRAM = """
import contextlib
import logging
from pycromanager.acquisition.acq_eng_py.internal.engine import Engine
from acqstream.client.pycromanager import PendingEvents

logging.basicConfig()
way, plan, last = arguments["way"], arguments["plan"], arguments["last"]
PLANES = pycromanager.multi_d_acquisition_events(
    num_time_points=3, channel_group="Channel", channels=["DAPI", "FITC"], z_start=0, z_end=2, z_step=1, order="tcz"
)
BURST = [{"axes": {"time": t}} for t in range(40)]
SLOW = [{"axes": {"time": t}, "min_start_time": 3600 * t} for t in range(4)]
EVENTS = {"burst": [BURST], "slow": [SLOW], "planes of one": PLANES, "planes of all": [PLANES]}
seen, hardware = [], [0]  # frames that came, images that the camera was asked for
first = []  # number of the first frame
engine_core = Engine.get_core()
snap, burst = engine_core.snap_image, engine_core.start_sequence_acquisition


def count_snap():
    hardware[0] += 1
    return snap()


def count_burst(camera, images, *more):
    hardware[0] += images
    return burst(camera, images, *more)


engine_core.snap_image, engine_core.start_sequence_acquisition = count_snap, count_burst


def look(image, metadata):
    if not seen:
        first.append(run.next)  # images are put by another thread, after this has returned
    seen.append(metadata["Axes"])
    tell(axes=metadata["Axes"], sha=sha(image))
    if len(seen) == last + 1:  # those before it are with the daemon
        while run.progress.published < first[0] + last:
            time.sleep(0.005)
        tell(paused=run.next)
        threading.Event().wait()
    return image, metadata


options |= {"resume": True}
if way == "sink":
    with Acquisition("cells", image_process_fn=look, **options) as acq:
        run = acq.run
        for events in [iter_of for iter_of in EVENTS.get(plan, [(event for event in PLANES)])]:
            acq.acquire(events)
    skipped = acq.skipped
else:
    with acqstream.create("cells", **options) as run:
        put, pending = forward(run), PendingEvents(run)
        hook = lambda image, metadata, events: put(*look(image, metadata), events)
        with pycromanager.Acquisition(image_process_fn=hook) as acq:
            for events in EVENTS[plan]:
                if left := pending(events) if way == "forward" else events:
                    acq.acquire(left)
    skipped = pending.skipped
tell(
    complete=run.receipt.complete,
    stored=run.receipt.stored,
    skipped_events=skipped,
    hardware=hardware[0],
    seen=len(seen),
)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as process:
        yield process


def start(daemon: DaemonProcess, way: str, plan: str, last: int = -2) -> subprocess.Popen[str]:
    return microscope.start(PROGRAM, endpoint=daemon.endpoint, way=way, plan=plan, last=last)


def killed(daemon: DaemonProcess, way: str, plan: str, last: int) -> int:
    """Kill the program after so many frames of its own; how many are stored then."""
    process = start(daemon, way, plan, last)
    assert process.stdout is not None
    try:
        told = (json.loads(line) for line in process.stdout if line.startswith("{"))
        assert any("paused" in values for values in told), process.communicate()[1][-4000:]
    finally:
        process.kill()
        process.communicate()
    until(lambda: state_of(daemon.data / "cells")["state"] == "INTERRUPTED", "it is interrupted")
    with acqstream.open(daemon.data / "cells") as dataset:
        return len(list(dataset.keys()))


def finished(daemon: DaemonProcess, way: str, plan: str) -> dict[str, Any]:
    """Run the program to its end; what it told last."""
    told: dict[str, Any] = microscope.finish(start(daemon, way, plan), timeout_s=500)[-1]
    return told


@pytest.mark.parametrize("way", ["sink", "forward"])
@pytest.mark.parametrize("plan", ["burst", "planes of one", "planes of all"])
def test_a_killed_program_that_is_run_again_completes_the_dataset(daemon: DaemonProcess, way: str, plan: str) -> None:
    once = killed(daemon, way, plan, 6)
    assert once == 6
    twice = killed(daemon, way, plan, 4)
    assert twice == 10
    left = TOTAL[plan] - twice
    assert finished(daemon, way, plan) == {
        "complete": True,
        "stored": TOTAL[plan],
        "skipped_events": twice,
        "hardware": left,
        "seen": left,
    }
    with acqstream.open(daemon.data / "cells") as dataset:
        keys = {tuple(sorted(key.items())) for key in dataset.keys()}  # noqa: SIM118
        assert len(keys) == TOTAL[plan]


def test_a_generator_of_events_is_resumed(daemon: DaemonProcess) -> None:
    assert killed(daemon, "sink", "planes of generator", 6) == 6
    told = finished(daemon, "sink", "planes of generator")
    assert (told["complete"], told["stored"], told["hardware"]) == (True, 18, 12)


def test_without_the_filter_of_events_frames_are_dropped(daemon: DaemonProcess) -> None:
    assert killed(daemon, "forward all", "planes of all", 6) == 6
    told = finished(daemon, "forward all", "planes of all")
    assert (told["complete"], told["stored"], told["hardware"], told["seen"]) == (True, 18, 18, 18)


@pytest.mark.parametrize("way", ["sink", "forward"])
def test_nothing_is_left_to_acquire(daemon: DaemonProcess, way: str) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8) as run:
        for time in range(40):
            run.put(acqstream.simulate.pattern.frame(time, (32, 64), "uint16"), time=time)
        until(lambda: run.progress.published == 40, "they are published")
        with pytest.raises(acqstream.AcquisitionFailed):
            run.close("error", "the program died before it could close")
            raise acqstream.AcquisitionFailed("as it should be")
    told = finished(daemon, way, "burst")
    assert (told["complete"], told["stored"], told["hardware"], told["seen"]) == (True, 40, 0, 0)
    assert state_of(daemon.data / "cells")["state"] == "COMPLETE"


def test_a_time_lapse_is_resumed_at_once(daemon: DaemonProcess) -> None:
    """Its next point would come after an hour: the first that is left starts the clock."""
    for stored in (1, 2, 3):
        process = start(daemon, "sink", "slow")
        try:
            until(functools.partial(has_published, daemon, stored), "its first point is published", timeout_s=200)
        finally:
            process.kill()
            process.communicate()
        until(lambda: state_of(daemon.data / "cells")["state"] == "INTERRUPTED", "it is interrupted")


def has_published(daemon: DaemonProcess, count: int) -> bool:
    return any(one.published == count for one in fetch_status(daemon.endpoint).acquisitions)
