"""What is in a dataset, as our reader and an independent one see it, against what was sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import acqstream
from acqstream.simulate import pattern
from acqstream.storage.files.small_file import read_small_file
from tests.log.read_back import open_ndstorage

Shape = tuple[int, ...]


def unstalled(warnings: Iterable[Any]) -> list[Any]:
    """Warnings of a log or a run, but those of a disk that stood still: whether it does is up to the machine."""
    return [one for one in warnings if "disk_stalled" not in str(one)]


def harmful(warnings: Iterable[Any]) -> list[Any]:
    """Warnings, without those of a disk that stood still and of a camera without a pixel size."""
    return [one for one in unstalled(warnings) if "uncalibrated" not in str(one)]


def image_of(number: int, shape: Shape) -> np.ndarray:
    return pattern.frame(number, shape, "uint16")


def state_of(path: Path | str) -> dict[str, Any]:
    """acqstream.json of a dataset, which may be replaced meanwhile: on Windows `open` would be refused then."""
    content: dict[str, Any] = json.loads(read_small_file(Path(path) / "acqstream.json"))
    return content


def check_frames(
    path: Path | str, shape_of: Callable[[int], Shape], *, least: int = 0, oracle: bool = True, first: int = 0
) -> int:
    """Frames in order of `time`, each once, every pixel right; how many there are (at least `least`).

    first: added to `time`, it is the number of the pattern.
    """
    with acqstream.open(path) as dataset:
        keys = dataset.keys()
        times = [key["time"] for key in keys]
        assert times == list(range(len(times)))
        assert len(times) >= least, f"{path}: {len(times)} frames, {least} were acknowledged"
        for number in range(len(times)):
            assert np.array_equal(dataset.read_frame(time=number), image_of(first + number, shape_of(number))), number
    if oracle and times:
        with open_ndstorage(path) as dataset:
            assert len(dataset.get_image_coordinates_list()) == len(times)
            for number in range(len(times)):
                assert np.array_equal(dataset.read_image(time=number), image_of(first + number, shape_of(number)))
    return len(times)
