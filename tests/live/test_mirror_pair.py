"""N5 and WKW mirrors together on `simulate`: at full speed, with faults of their disks, and read while they grow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.model.receipt import Receipt
from acqstream.simulate import pattern
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.camera import CameraPlan, run_camera
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import (
    FAULTS,
    FIRST_GATE,
    PAIR,
    SECOND_GATE,
    Gates,
    check_pair,
    go_through,
    log_array,
    make_again,
    mirrors_of,
    pair_of_disks,
    read_n5,
    wait_until_complete,
)

CHANNELS = ("DAPI", "FITC")
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
    assert result.warnings == ()
    dataset = shared.data / plan.name
    wait_until_complete(shared, dataset)
    log = check_pair(dataset, CHANNELS)
    right = right_array(plan)
    assert np.array_equal(log, right if axes[0] == "t" else right.transpose(1, 2, 0, 3, 4))


@pytest.mark.parametrize("how", FAULTS)
def test_what_happens_to_the_mirrors_disks_the_log_never_notices(shared: DaemonProcess, how: str) -> None:
    plan = plan_of(shared, f"harm-{how}", "time=8,channel=DAPI|FITC,z=8", (120, 200), None)
    dataset = shared.data / plan.name
    with pair_of_disks(dataset, 24) as places, ThreadPoolExecutor(1) as pool:
        gates = Gates(FIRST_GATE, SECOND_GATE)
        go_through(shared, dataset, how, gates, pool.submit(record, plan, gates), places)
        if how == "full":
            check_pair(dataset, CHANNELS)
    if how != "full":
        make_again(dataset)
        check_pair(dataset, CHANNELS)
    assert np.array_equal(log_array(dataset, CHANNELS), right_array(plan))


def record(plan: CameraPlan, gates: Gates) -> Receipt:
    result = run_camera(plan, threading.Event(), gates)
    assert result.warnings == ()
    return result.receipt


def test_live_readers_never_see_a_torn_block(shared: DaemonProcess) -> None:
    """Ours, tensorstore and the wkw library: each block of the finest level is whole, or not there."""
    plan = plan_of(shared, "watched", "time=3,channel=DAPI|FITC,z=64", (256, 256), 400)
    dataset, gate = shared.data / plan.name, 256  # all have seen something by then, and see more come
    right = right_array(plan)
    torn: list[str] = []
    reads = dict.fromkeys(("ours n5", "ours wkw", "tensorstore", "wkw"), 0)
    with ThreadPoolExecutor(1) as pool:
        gates = Gates(gate)
        run = pool.submit(run_camera, plan, threading.Event(), gates)
        while not run.done() or mirrors_of(shared, dataset):
            for reader in reads:
                found = look(dataset, reader, right.shape)
                if found is not None:
                    reads[reader] += bool(found.any())
                    side = (4, 64, 64) if "n5" in reader or reader == "tensorstore" else (32, 32, 32)
                    torn += [f"{reader}: block {at}" for at in torn_blocks(found, right, side)]
            if torn or all(reads.values()):
                gates.open(gate)
        assert run.result().receipt.complete
    assert torn == []
    assert all(reads.values()), reads
    check_pair(dataset, CHANNELS)


def look(dataset: Path, reader: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """What a reader sees now, None before there is anything; zeros where it sees nothing."""
    container = dataset.with_name(f"{dataset.name}.{'n5' if reader in ('ours n5', 'tensorstore') else 'wkw'}")
    if reader == "tensorstore":
        return read_n5(container) if (container / "s0" / "attributes.json").exists() else None
    if reader.startswith("ours"):
        if not container.with_name(f"{container.name}.view").exists() or not any(container.glob("a*.json")):
            return None
        with acqstream.open(container) as found:
            return found.levels[0].read()
    return wkw_as_told(container, shape)


def wkw_as_told(container: Path, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """By the reference library, as far as the datasets' own descriptions say that there is something."""
    wkw = pytest.importorskip("wkw")
    found = np.zeros(shape, "uint16")
    is_there = False
    for at in range(shape[0]):
        properties = container / f"time{at:04d}" / "datasource-properties.json"
        if not properties.exists():
            continue
        for layer in json.loads(properties.read_bytes())["dataLayers"]:
            box = layer["boundingBox"]
            with wkw.Dataset.open(str(properties.parent / layer["name"] / "1")) as dataset:
                voxels = dataset.read((0, 0, 0), (box["width"], box["height"], box["depth"]))
            found[at, CHANNELS.index(layer["name"]), : box["depth"]] = voxels[0].transpose(2, 1, 0)
            is_there = True
    return found if is_there else None


def torn_blocks(found: NDArray[Any], right: NDArray[Any], side: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """Blocks that are neither zeros nor right."""
    wrong = []
    sizes = found.shape
    steps = (1, 1, *side)
    for at in np.ndindex(*(-(-size // step) for size, step in zip(sizes, steps, strict=True))):
        part = tuple(slice(n * step, (n + 1) * step) for n, step in zip(at, steps, strict=True))
        seen, expected = (
            found[part],
            right[tuple(slice(s.start, min(s.stop, z)) for s, z in zip(part, sizes, strict=True))],
        )
        if seen.any() and not np.array_equal(seen, expected):
            wrong.append(at)
    return wrong
