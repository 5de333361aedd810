"""Faults of the disks of OME-Zarr, precomputed and HSDS mirrors: the log never notices, and all end complete."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.run import Run
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.comparison import compare
from acqstream.model.status import UnfinishedViewStatus
from acqstream.views.checkpoint import view_folder
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import FAULTS, LONGEST_S, harm, heal, mirror, mirrors_of
from tests.live.small_disk import small_disk
from tests.live.stored import image_of, unstalled
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(200)]

SHAPE = (120, 200)
SIZES = {"time": 8, "channel": 2, "z": 8}
AXES = [{"name": name, "size": size} for name, size in SIZES.items()]
PLACES = [dict(zip(SIZES, place, strict=True)) for place in np.ndindex(*SIZES.values())]
SPACE = {"PixelSizeUm": 0.1, "z-step_um": 0.3}
FIRST, SECOND = 40, 96  # frames before the fault, and until it has shown
OME: Mapping[str, Any] = {"format": "ome-zarr", "chunks": [1, 64, 64], "levels": 2}
VOLUMES: Mapping[str, Any] = {"format": "precomputed", "chunks": [1, 64, 64], "levels": 2}
MIRRORS: Mapping[str, Mapping[str, Any]] = {
    "blosc": {**OME, "name": "blosc"},
    "raw": {**OME, "name": "raw", "compression": "none"},
    "unsharded": {**OME, "name": "unsharded", "shards": False},
    "files": {**VOLUMES, "name": "files"},
    "shards": {**VOLUMES, "name": "shards", "shards": True},
    "reference": {"format": "hsds", "name": "reference", "pixels": "reference"},
}


def container_of(dataset: Path, name: str) -> Path:
    return dataset.with_name(f"{dataset.name}.{name}{chunk_format(str(MIRRORS[name]['format'])).suffix}")


@contextmanager
def disks(dataset: Path) -> Iterator[dict[str, Path]]:
    """A small disk for each mirror, by its name. Skips where that cannot be had."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(small_disk(container_of(dataset, name), 24)) for name in MIRRORS}


def wait_for_state(daemon: DaemonProcess, dataset: Path, state: str) -> dict[str, UnfinishedViewStatus]:
    def look() -> dict[str, UnfinishedViewStatus] | None:
        found = mirrors_of(daemon, dataset)
        return found if set(found) == set(MIRRORS) and {one.state for one in found.values()} == {state} else None

    found: dict[str, UnfinishedViewStatus] = until(look, f"all mirrors of {dataset.name} are {state}", LONGEST_S)
    return found


@pytest.mark.parametrize("how", FAULTS)
def test_the_log_never_notices(tmp_path: Path, how: str) -> None:
    dataset = tmp_path / "data" / f"harm-{how}"
    (tmp_path / "data").mkdir()
    with disks(dataset) as places, DaemonProcess(tmp_path / "data") as daemon:
        way: dict[str, Any] = {"endpoint": daemon.endpoint, "axes": AXES, "summary": SPACE}
        with acqstream.create(dataset.name, **way, mirrors=[*MIRRORS.values()]) as run:
            put(run, 0, FIRST)
            for name, place in places.items():
                until(partial(_is_begun, place), f"{name} is begun", LONGEST_S)
            for place in places.values():
                harm(how, place)
            put(run, FIRST, SECOND)
            found = wait_for_state(daemon, dataset, "held" if how == "full" else "failed")
            put(run, SECOND, len(PLACES))
        assert run.receipt is not None
        assert run.receipt.complete
        assert unstalled(run.warnings) == []
        for name, place in places.items():
            assert found[name].reason
            assert how == "full" or found[name].reason in run.receipt.mirrors[name]
            heal(how, place)
        if how == "full":
            until(lambda: not mirrors_of(daemon, dataset), "all mirrors are complete", LONGEST_S)
            check(dataset)
    if how != "full":  # and the disks are taken out
        for name, settings in MIRRORS.items():
            given = {key: value for key, value in settings.items() if key not in ("format", "name")}
            options = [word for key, value in given.items() for word in ("--option", f"{key}={json.dumps(value)}")]
            container = str(container_of(dataset, name))
            assert mirror(str(dataset), container, "--to", settings["format"], *options, "--rebuild") == 0
        check(dataset)


def check(dataset: Path) -> None:
    for name in MIRRORS:
        found = compare(dataset, view_folder(container_of(dataset, name), "view"), len(PLACES))
        assert (found.frames, found.text) == (len(PLACES), "all equal"), name


def _is_begun(place: Path) -> bool:
    return any(path.name in ("c", "s0", "home") for path in place.rglob("*"))


def put(run: Run, first: int, stop: int) -> None:
    for number in range(first, stop):
        run.put(image_of(number, SHAPE), PLACES[number])
