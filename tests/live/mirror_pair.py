"""N5 and WKW mirrors of one run: what is done to their disks, and whether other libraries find the log in them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.model.receipt import Receipt
from acqstream.model.status import UnfinishedViewStatus
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import fill, small_disk
from tests.mirrors.mirror_cases import read_plain
from tests.waiting import WAIT_S, until

FORMATS = ("n5", "wkw")
CHANNELS = ("DAPI", "FITC")
N5 = {"format": "n5", "layout": "array", "compression": "raw", "blocks": [4, 64, 64], "levels": 2}
WKW = {"format": "wkw", "cube": 32, "levels": 2}
PAIR = (N5, WKW)
OPTIONS: Mapping[str, Sequence[str]] = {
    "n5": ("--compression", "raw", "--blocks", "4,64,64", "--option", "layout=array", "--option", "levels=2"),
    "wkw": ("--option", "cube=32", "--option", "levels=2"),
}
FAULTS = ("full", "read-only", "removed")
_GATES = FIRST_GATE, SECOND_GATE = 32, 96  # frames
LONGEST_S = 60.0
_FIRST_CHUNK = {"n5": "s0/0/*/*/*/*", "wkw": "**/x*.wkw"}


@contextmanager
def pair_of_disks(dataset: Path, size_mb: int) -> Iterator[dict[str, Path]]:
    """Small disks where both mirrors will lie, by format. Skips where that cannot be had."""
    with contextlib.ExitStack() as stack:
        places = {name: dataset.with_name(f"{dataset.name}.{name}") for name in FORMATS}
        for place in places.values():
            stack.enter_context(small_disk(place, size_mb))
        yield places


def wait_for_chunks(places: Mapping[str, Path]) -> None:
    """Until both have a chunk."""
    for name, place in places.items():
        pattern = _FIRST_CHUNK[name]
        until(lambda place=place, pattern=pattern: any(place.glob(pattern)), f"{name} has a chunk", LONGEST_S)  # type: ignore[misc]


def harm(how: str, place: Path) -> None:
    if how == "full":
        fill(place, 4096)
    elif how == "read-only":
        remount(place, "ro")
    else:
        until(lambda: _emptied(place), f"{place} is empty")


def heal(how: str, place: Path) -> None:
    if how == "full":
        remount(place, "size=64m")
        (place / "filler").unlink()
    elif how == "read-only":
        remount(place, "rw")


def remount(place: Path, how: str) -> None:
    command = ["mount", "-o", f"remount,{how}", str(place)]
    until(
        lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, how
    )  # busy while it writes


def _emptied(place: Path) -> bool:
    for path in sorted(place.rglob("*"), reverse=True):
        with contextlib.suppress(OSError):  # somebody puts something there
            path.unlink() if path.is_symlink() or not path.is_dir() else path.rmdir()
    return not any(place.iterdir())


def mirrors_of(daemon: DaemonProcess, dataset: Path) -> dict[str, UnfinishedViewStatus]:
    """Those that are not complete, by name."""
    found = fetch_status(daemon.endpoint, timeout_s=WAIT_S).views.mirrors
    return {one.mirror: one for one in found if one.path == str(dataset)}


def wait_for_state(daemon: DaemonProcess, dataset: Path, state: str) -> dict[str, UnfinishedViewStatus]:
    """Until both mirrors are in this state."""

    def look() -> dict[str, UnfinishedViewStatus] | None:
        found = mirrors_of(daemon, dataset)
        return found if {one.state for one in found.values()} == {state} and len(found) == len(PAIR) else None

    found: dict[str, UnfinishedViewStatus] = until(look, f"both mirrors of {dataset.name} are {state}", LONGEST_S)
    return found


def wait_until_complete(daemon: DaemonProcess, dataset: Path) -> None:
    until(lambda: not mirrors_of(daemon, dataset), f"both mirrors of {dataset.name} are complete", LONGEST_S)


def mirror(*arguments: str) -> int:
    """The command; its exit code."""
    return command("mirror", *arguments)


def read_wkw(container: Path, shape: Sequence[int]) -> NDArray[Any]:
    """(time, channel, z, y, x) of this shape, by the reference library; which gives zeros for what it cannot open."""
    wkw = pytest.importorskip("wkw")
    times, _, depth, height, width = shape
    stacks = []
    for at in range(times):
        for channel in CHANNELS:
            with wkw.Dataset.open(str(container / f"time{at:04d}" / channel / "1")) as dataset:
                stacks.append(dataset.read((0, 0, 0), (width, height, depth))[0].transpose(2, 1, 0))
    return np.stack(stacks).reshape(shape)


def log_array(dataset: Path) -> NDArray[Any]:
    """(time, channel, z, y, x) of all frames in the log."""
    with acqstream.open(dataset) as log:
        keys = list(log.keys())
        sizes = [max(int(key[name]) for key in keys) + 1 for name in ("time", "z")]
        first = log.read_frame(keys[0])
        found = np.zeros((sizes[0], len(CHANNELS), sizes[1], *first.shape), first.dtype)
        for key in keys:
            found[int(key["time"]), CHANNELS.index(str(key["channel"])), int(key["z"])] = log.read_frame(key)
    return found


def check_pair(dataset: Path) -> NDArray[Any]:
    """Both mirrors equal the log; what that holds."""
    log = log_array(dataset)
    assert np.array_equal(read_plain(dataset.with_name(f"{dataset.name}.n5")), log)
    assert np.array_equal(read_wkw(dataset.with_name(f"{dataset.name}.wkw"), log.shape), log)
    return log


def make_again(dataset: Path, *more: str) -> None:
    """Both, by a command each."""
    for name in FORMATS:
        assert mirror(str(dataset), "--to", name, *OPTIONS[name], *more) == 0


class Gates:
    """Where a camera waits after so many frames, until it may go on. Called after each."""

    def __init__(self) -> None:
        self._reached = {number: threading.Event() for number in _GATES}
        self._opened = {number: threading.Event() for number in _GATES}
        self._count = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self._count += 1
        if self._count in self._reached:
            self._reached[self._count].set()
            assert self._opened[self._count].wait(LONGEST_S)

    def is_reached(self, number: int) -> bool:
        return self._reached[number].is_set()

    def open(self, number: int) -> None:
        self._opened[number].set()

    def open_all(self) -> None:
        for event in self._opened.values():
            event.set()


def go_through(
    daemon: DaemonProcess, dataset: Path, how: str, gates: Gates, run: Future[Receipt], places: Mapping[str, Path]
) -> None:
    """Do it to both mirrors behind the first gate, when both have chunks; behind the second it has shown.

    A full disk is waited for, any other fault ends both mirrors, and the receipt says so; the log never notices.
    """
    first, second = FIRST_GATE, SECOND_GATE
    try:
        until(lambda: gates.is_reached(first), "the first gate", LONGEST_S)
        wait_for_chunks(places)
        for place in places.values():
            harm(how, place)
        gates.open(first)
        until(lambda: gates.is_reached(second), "the second gate", LONGEST_S)
        found = wait_for_state(daemon, dataset, "held" if how == "full" else "failed")
    finally:
        gates.open_all()
    receipt = run.result()
    assert receipt.complete
    for name in FORMATS:
        if how == "full":
            assert "No space left" in found[name].reason
        else:
            assert found[name].reason in receipt.mirrors[name]
    for place in places.values():
        heal(how, place)
    if how == "full":
        wait_until_complete(daemon, dataset)
