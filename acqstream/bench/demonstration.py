"""The demonstration of `acqstream demo`: daemon, camera and live reader; what is stored is compared with the camera."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.child_process import hold, started_child
from acqstream.client.daemon_requests import shut_down
from acqstream.client.directory_daemon import DirectoryDaemon
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.errors import AcquisitionFailed, ConfigError, DatasetError
from acqstream.mirrors.run_end import wait_for_end
from acqstream.model.receipt import Receipt
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.camera import CameraPlan, run_cameras
from acqstream.simulate.scene import SceneCamera

FOLDER, NAME, MIRROR = "acqstream-demo", "cells", "n5"
CAMERA = SceneCamera(parse_axes("time=25,channel=DAPI|FITC|TRITC|BF,z=3"))
FRAMES, SHAPE, DTYPE, _FRAMES_PER_S = 300, (512, 512), "uint16", 150.0
_MAX_FOLDERS = 1000
_TIMEOUT_S, _POLL_S = 120.0, 0.02


def new_folder(directory: Path) -> Path:
    """A new folder for a demonstration, numbered if the name is taken. Raises ConfigError."""
    names = (FOLDER if number == 1 else f"{FOLDER}-{number}" for number in range(1, _MAX_FOLDERS))
    try:
        for folder in map(directory.joinpath, names):
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
        why = "all its numbers are taken"
    except OSError as error:
        why = error.strerror or str(error)
    advice = "change to a folder of your own (cd), or name one: --dir DIR"
    raise ConfigError(f"cannot make the folder {FOLDER} in {directory.absolute()}: {why}; {advice}")


def demonstrate(folder: Path, say: Callable[[str], None]) -> Path:
    """Record into the empty `folder`, compare all that is stored, and return the dataset; `say` gets a line per step.

    Raises AcquisitionFailed where something is not as sent. An interrupt ends run and daemon in order, and is raised.
    """
    endpoint, dataset = DirectoryDaemon(folder).wait(_TIMEOUT_S), folder / NAME
    try:
        say(f"1. A daemon of its own writes to {folder.absolute()}")
        say(f"2. A simulated camera sends {FRAMES} frames; another process reads each as it is published")
        receipt, live = _record(folder)
        say(f"   the reader saw {FRAMES} frames, all as sent, {live} of them while the camera ran")
        say("3. The receipt, and how the mirror ended")
        end = wait_for_end(dataset, timeout_s=_TIMEOUT_S)
        receipt = replace(receipt, mirrors={one.name: one.text for one in end.mirrors})
        say("\n".join(f"   {line}" for line in str(receipt).splitlines()))
        if not end.ok:
            raise AcquisitionFailed(f"{dataset}: the run or its mirror is not complete (state {end.outcome})")
        say("4. Read back and compared with the camera")
        for path in (dataset, dataset.with_name(f"{NAME}.{MIRROR}")):
            with open_dataset(path) as stored:
                check(path, stored.levels[0].read().reshape(-1, *SHAPE))
                say(f"   {path.name}: {' x '.join(map(str, stored.shape))} {stored.dtype}, every pixel as sent")
    finally:
        shut_down(endpoint)
    say("5. The daemon has ended in order")
    return dataset


def _record(folder: Path) -> tuple[Receipt, int]:
    """Send all frames while another process follows; also the number of frames that it read before the run's end."""
    plan = CameraPlan(
        name=NAME, endpoint=None, data=folder, frames=FRAMES, shape=SHAPE, dtype=DTYPE, axes=CAMERA.axes,
        fps=_FRAMES_PER_S, mirrors=(MIRROR,), pattern="scene",
    )  # fmt: skip
    with started_child("demonstration", follow, _TIMEOUT_S, dataset=folder / NAME) as reader:
        reader.wait_until_ready()
        reader.go()
        (result,) = run_cameras([plan])
        if result.receipt.status == "canceled":
            raise KeyboardInterrupt
        return result.receipt, int(reader.result())


def follow(dataset: Path) -> int:
    """Compare each frame of a dataset to come when it is published; the number of those read before the run's end."""
    hold()
    growing: Dataset | None = None
    while growing is None:  # the parent process ends this one when its time is over
        time.sleep(_POLL_S)
        with suppress(DatasetError, OSError):  # not a dataset yet
            growing = open_dataset(dataset)
    live = 0

    def images() -> Iterator[NDArray[Any]]:
        nonlocal live
        for key in growing.follow(timeout_s=_TIMEOUT_S):
            live += not growing.complete
            yield growing.read_frame(key)

    with growing:
        check(dataset, images())
    return live


def check(path: Path, images: Iterable[NDArray[Any]]) -> None:
    """Raise AcquisitionFailed unless these are all frames of the camera, in order."""
    number = 0
    for number, image in enumerate(images, 1):
        if not np.array_equal(image, CAMERA.frame(number - 1, SHAPE, DTYPE)):
            raise AcquisitionFailed(f"{path}: frame {number - 1} differs from what the camera sent")
    if number != FRAMES:
        raise AcquisitionFailed(f"{path} has {number} frames, {FRAMES} were sent")
