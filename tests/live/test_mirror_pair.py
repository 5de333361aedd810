"""N5 and WKW mirrors together on `simulate`: at full speed, and with faults of both their disks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.model.receipt import Receipt
from acqstream.simulate import pattern
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.camera import CameraPlan, run_camera
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import (
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
from tests.live.stored import harmful

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(150)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("pair") / "data") as daemon:
        yield daemon


def plan_of(daemon: DaemonProcess, name: str, axes: str, shape: tuple[int, int], fps: float | None) -> CameraPlan:
    counter = parse_axes(axes)
    assert counter.count is not None
    return CameraPlan(
        name=name,
        endpoint=daemon.endpoint,
        frames=counter.count,
        shape=shape,
        dtype="uint16",
        axes=counter,
        fps=fps,
        mirrors=PAIR,
    )


def right_array(plan: CameraPlan) -> NDArray[Any]:
    """What the camera sends."""
    frames = [pattern.frame(number, plan.shape, plan.dtype) for number in range(plan.frames)]
    sizes = [axis.size for axis in plan.axes.axes]
    return np.stack(frames).reshape(*[size for size in sizes if size], *plan.shape)


@pytest.mark.parametrize("axes", ["time=3,channel=DAPI|FITC,z=20", "z=20,time=3,channel=DAPI|FITC"])
def test_at_full_speed(shared: DaemonProcess, axes: str) -> None:
    plan = plan_of(shared, f"fast-{axes[0]}", axes, (200, 250), None)
    result = run_camera(plan, threading.Event())
    assert result.receipt.complete
    assert harmful(result.warnings) == []
    dataset = shared.data / plan.name
    wait_until_complete(shared, dataset)
    log = check_pair(dataset)
    right = right_array(plan)
    assert np.array_equal(log, right if axes[0] == "t" else right.transpose(1, 2, 0, 3, 4))


@pytest.mark.promise("mirrors")
@pytest.mark.parametrize("how", FAULTS)
def test_what_happens_to_the_mirrors_disks_the_log_never_notices(shared: DaemonProcess, how: str) -> None:
    plan = plan_of(shared, f"harm-{how}", "time=8,channel=DAPI|FITC,z=8", (120, 200), None)
    dataset = shared.data / plan.name
    with pair_of_disks(dataset, 24) as places, ThreadPoolExecutor(1) as pool:
        gates = Gates()
        go_through(shared, dataset, how, gates, pool.submit(record, plan, gates), places)
        if how == "full":
            check_pair(dataset)
    if how != "full":
        make_again(dataset)
        check_pair(dataset)
    assert np.array_equal(log_array(dataset), right_array(plan))


def record(plan: CameraPlan, gates: Gates) -> Receipt:
    result = run_camera(plan, threading.Event(), gates)
    assert harmful(result.warnings) == []
    return result.receipt
