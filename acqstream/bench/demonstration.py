"""The demonstration of `acqstream demo`: daemon, camera and live reader; what is stored is compared with the camera."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.child_process import hold, started_child
from acqstream.client.directory_daemon import DirectoryDaemon
from acqstream.client.shutdown import shut_down
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.errors import AcquisitionFailed, ConfigError, DatasetError
from acqstream.mirrors.dataset_end import wait_for_end
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.camera import CameraPlan, CameraResult, run_cameras
from acqstream.simulate.scene import SceneCamera

FOLDER, NAME, MIRROR = "acqstream-demo", "cells", "n5"
CAMERA = SceneCamera(parse_axes("time=25,channel=DAPI|FITC|TRITC|BF,z=3"))
FRAMES, SHAPE, DTYPE = CAMERA.axes.count or 0, (512, 512), "uint16"
_FRAMES_PER_S = 150.0
_TIMEOUT_S = 120.0
_POLL_S = 0.02
_MAX_FOLDERS = 1000


def new_folder(directory: Path) -> Path:
    """A new folder for a demonstration, numbered if the name is taken. Raises ConfigError."""
    try:
        for number in range(1, _MAX_FOLDERS):
            with suppress(FileExistsError):
                folder = directory / (FOLDER if number == 1 else f"{FOLDER}-{number}")
                folder.mkdir()
                return folder
    except OSError as error:
        advice = "change to a folder of your own (cd), or name one: --dir DIR"
        text = f"cannot make the folder {FOLDER} in {directory.absolute()}: {error.strerror}; {advice}"
        raise ConfigError(text) from error
    raise ConfigError(f"{directory.absolute()} has {FOLDER} to {FOLDER}-{_MAX_FOLDERS - 1}; remove some")


def demonstrate(folder: Path, say: Callable[[str], None]) -> Path:
    """Record into the empty `folder`, compare all that is stored, and return the dataset; `say` gets a line per step.

    Raises AcquisitionFailed where something is not as sent. An interrupt ends run and daemon in order, and is raised.
    """
    endpoint, dataset = DirectoryDaemon(folder).wait(_TIMEOUT_S), folder / NAME
    try:
        say(f"1. A daemon of its own writes to {folder.absolute()}")
        say(f"2. A simulated camera sends {FRAMES} frames; another process reads each as it is published")
        result, live = _record(folder)
        say(f"   the reader saw {FRAMES} frames, all as sent, {live} of them while the camera ran")
        say("3. The receipt, and how the mirror ended")
        end = wait_for_end(dataset, timeout_s=_TIMEOUT_S)
        receipt = replace(result.receipt, mirrors={one.name: one.text for one in end.mirrors})
        say("\n".join(f"   {line}" for line in str(receipt).splitlines()))
        if not end.ok:
            raise AcquisitionFailed(f"{dataset}: the run or its mirror is not complete (state {end.outcome})")
        say("4. Read back and compared with the camera")
        for path in (dataset, dataset.with_name(f"{NAME}.{MIRROR}")):
            with open_dataset(path) as stored:
                images = stored.levels[0].read().reshape(-1, *SHAPE)
                check(path, images)
                say(f"   {path.name}: {' x '.join(map(str, stored.shape))} {stored.dtype}, every pixel as sent")
    except KeyboardInterrupt:
        shut_down(endpoint)
        raise
    shut_down(endpoint)
    say("5. The daemon has ended in order")
    return dataset


def _record(folder: Path) -> tuple[CameraResult, int]:
    """Send all frames while another process follows; also the number of frames that it read before the run's end."""
    plan = CameraPlan(
        name=NAME, endpoint=None, data=folder, frames=FRAMES, shape=SHAPE, dtype=DTYPE, axes=CAMERA.axes,
        fps=_FRAMES_PER_S, mirrors=(MIRROR,), pattern="scene",
    )  # fmt: skip
    with started_child("demonstration", timeout_s=_TIMEOUT_S, dataset=folder / NAME) as reader:
        reader.wait_until_ready()
        reader.go()
        (result,) = run_cameras([plan])
        if result.receipt.status == "canceled":
            raise KeyboardInterrupt
        return result, int(reader.result())


def follow(dataset: Path) -> int:
    """Compare each frame of a dataset to come when it is published; the number of those read before the run's end."""
    hold()
    while (growing := _opened(dataset)) is None:  # the parent process ends this one when its time is over
        time.sleep(_POLL_S)
    count = live = 0
    with growing:
        for key in growing.follow(timeout_s=_TIMEOUT_S):
            check(dataset, growing.read_frame(key)[np.newaxis], first=count)
            count += 1
            live += not growing.complete
    if count != FRAMES or not live:
        raise AcquisitionFailed(f"{dataset}: read {count} of {FRAMES} frames, {live} of them while the camera ran")
    return live


def _opened(dataset: Path) -> Dataset | None:
    with suppress(DatasetError, OSError):  # not a dataset yet
        return open_dataset(dataset)
    return None


def check(path: Path, images: NDArray[Any], *, first: int | None = None) -> None:
    """Raise AcquisitionFailed unless these are the camera's frames from number `first` on, or all of them."""
    if first is None and len(images) != FRAMES:
        raise AcquisitionFailed(f"{path} has {len(images)} frames, {FRAMES} were sent")
    for number, image in enumerate(images, first or 0):
        if not np.array_equal(image, CAMERA.frame(number, SHAPE, DTYPE)):
            raise AcquisitionFailed(f"{path}: frame {number} differs from what the camera sent")
