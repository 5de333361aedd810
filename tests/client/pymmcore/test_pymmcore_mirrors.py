"""A real core with DemoCamera (time, channel, z), mirrored into N5 and WKW while it runs; their disks fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import useq

from acqstream.client.pymmcore import streaming
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import (
    CHANNELS,
    FAULTS,
    PAIR,
    Gates,
    check_pair,
    go_through,
    log_array,
    make_again,
    pair_of_disks,
    wait_until_complete,
)
from tests.live.stored import unstalled

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(150)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with DaemonProcess(tmp_path_factory.mktemp("mirrors") / "data") as process:
        yield process


def sequence(times):
    return useq.MDASequence(
        axis_order="tcz",
        time_plan={"interval": 0, "loops": times},
        channels=list(CHANNELS),
        z_plan={"range": 7, "step": 1},
    )


def run_core(core, streamer):
    core.mda.run(sequence(8))
    return streamer.last_receipt


def test_equal_to_the_log_frame_by_frame(core, daemon, delivered, sha):
    with streaming(core, "demo", endpoint=daemon.endpoint, mirrors=list(PAIR)) as streamer:
        core.mda.run(sequence(3))
    assert streamer.last_receipt.complete
    wait_until_complete(daemon, daemon.data / "demo")
    log = check_pair(daemon.data / "demo")
    assert [sha(image) for image in log.reshape(-1, *log.shape[-2:])] == [image for _, image in delivered]


@pytest.mark.parametrize("how", FAULTS)
def test_what_happens_to_the_mirrors_disks_the_log_never_notices(core, daemon, delivered, sha, how):
    dataset = daemon.data / f"demo-{how}"
    with pair_of_disks(dataset, 24) as places, ThreadPoolExecutor(1) as pool:
        with streaming(core, dataset.name, endpoint=daemon.endpoint, mirrors=list(PAIR)) as streamer:
            gates = Gates()
            core.mda.events.frameReady.connect(gates)
            run = pool.submit(run_core, core, streamer)
            try:
                go_through(daemon, dataset, how, gates, run, places)
            finally:
                core.mda.events.frameReady.disconnect(gates)
        assert unstalled(streamer.last_run.warnings) == []
        if how == "full":
            check_pair(dataset)
    if how != "full":
        make_again(dataset)
        check_pair(dataset)
    log = log_array(dataset)
    assert [sha(image) for image in log.reshape(-1, *log.shape[-2:])] == [image for _, image in delivered]
